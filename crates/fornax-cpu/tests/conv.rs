//! Convolutions of every form: results are the interpreter's.

mod support;

use fornax_ir::{ConvSpec, Op};
use support::{Build, Random, check};

/// Few channels a group, so that the direct form, products and merged products all occur.
#[test]
fn random_convolutions() {
    let mut random = Random(7);
    let mut checked = 0;
    while checked < 300 {
        let spatial = 1 + random.below(3);
        let [batch, groups, channels, outs] =
            [1 + random.below(5), 1 + random.below(4), 1 + random.below(2), 1 + random.below(3)];
        let mut spec = ConvSpec {
            stride: (0..spatial).map(|_| 1 + random.below(3)).collect(),
            padding: (0..spatial).map(|_| (random.below(5) as isize - 2, random.below(5) as isize - 2)).collect(),
            dilation: (0..spatial).map(|_| 1 + random.below(2)).collect(),
            input_dilation: (0..spatial).map(|_| 1 + random.below(3)).collect(),
            groups,
        };
        if random.below(2) == 0 {
            spec.input_dilation.iter_mut().for_each(|dilation| *dilation = 1);
        }
        let sizes: Vec<usize> = (0..spatial).map(|_| 3 + random.below(if spatial == 1 { 90 } else { 9 })).collect();
        let kernel: Vec<usize> = (0..spatial).map(|_| 1 + random.below(3)).collect();
        let fits = (0..spatial).all(|dim| {
            let padded =
                ((sizes[dim] - 1) * spec.input_dilation[dim] + 1) as isize + spec.padding[dim].0 + spec.padding[dim].1;
            padded > ((kernel[dim] - 1) * spec.dilation[dim]) as isize
        });
        if !fits {
            continue;
        }
        let mut b = Build::default();
        let x = b.input([&[batch, groups * channels][..], &sizes].concat());
        let weight = b.input([&[groups * outs, channels][..], &kernel].concat());
        let y = b.op(Op::Conv(Box::new(spec)), &[x, weight]);
        check(&b.output(&[y]), 100.0);
        checked += 1;
    }
}
