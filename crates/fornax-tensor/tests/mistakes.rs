//! What typical mistakes are told: the message, at the caller's line. The `try_` twin returns the same.

use fornax_tensor::{ConvOptions, CrossEntropyOptions, DType, Device, PoolOptions, Result, Tensor, step};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, set_hook, take_hook};

thread_local! {
    static PLACE: RefCell<Option<(String, u32)>> = const { RefCell::new(None) };
}

/// What mistakes were told, beside what they should be.
#[derive(Default)]
struct Told {
    wrong: Vec<String>,
    /// Where each call begins, and where it panicked.
    lines: Vec<(u32, u32)>,
}

impl Told {
    /// A call that panics.
    #[track_caller]
    fn panic(&mut self, call: impl Fn(), want: &str) {
        PLACE.take();
        let got = match catch_unwind(AssertUnwindSafe(call)) {
            Ok(()) => String::from("nothing"),
            Err(payload) => match payload.downcast::<String>() {
                Ok(message) => *message,
                Err(_) => String::from("no string"),
            },
        };
        let line = Location::caller().line();
        // Faults of data are told when they are read, with the line that recorded the op.
        let recorded = format!(" (recorded at {}:{line}:", file!());
        let got = got.split(&recorded).next().unwrap_or_default();
        if got != want {
            self.wrong.push(format!("{line}: {got:?}"));
        }
        match PLACE.take() {
            Some((file, at)) if file == file!() => self.lines.push((line, at)),
            place => self.wrong.push(format!("{line}: panicked at {place:?}")),
        }
    }

    /// A call that panics, and its twin, which returns the same as an error.
    #[track_caller]
    fn both<T>(&mut self, call: impl Fn(), twin: impl Fn() -> Result<T>, want: &str) {
        self.panic(call, want);
        match twin() {
            Err(error) if error.to_string() == want => {}
            Err(error) => {
                self.wrong.push(format!("{}: the twin returns {:?}", Location::caller().line(), error.to_string()));
            }
            Ok(_) => self.wrong.push(format!("{}: the twin returns no error", Location::caller().line())),
        }
    }

    #[track_caller]
    fn finish(mut self, end: u32) {
        let next = self.lines.iter().skip(1).map(|line| line.0).chain([end]);
        for ((start, at), next) in self.lines.iter().copied().zip(next) {
            if at < start || at >= next {
                self.wrong.push(format!("{start}: panicked at line {at}"));
            }
        }
        assert!(self.wrong.is_empty(), "{} are told otherwise:\n{}", self.wrong.len(), self.wrong.join("\n"));
    }
}

#[test]
fn mistakes_are_told_at_the_callers_line() {
    let usual = take_hook();
    set_hook(Box::new(move |info| {
        PLACE.set(info.location().map(|place| (place.file().to_string(), place.line())));
    }));
    let told = mistakes();
    set_hook(usual);
    told.finish(line!() + 1000);
}

fn mistakes() -> Told {
    let mut told = Told::default();
    let device = Device::cpu();
    let zeros = |shape: &[usize]| Tensor::zeros(shape, &device);
    let (x, v) = (zeros(&[2, 3]), zeros(&[4]));
    let whole = x.to_dtype(DType::I64);
    let far = Tensor::from([[0i64, 5]]);
    let other = Tensor::zeros([2, 3], &Device::reference());
    let image = zeros(&[1, 3, 8, 8]);
    let conv = ConvOptions::default();
    let ce = CrossEntropyOptions::default();
    told.both(
        || drop(x.matmul(&zeros(&[2, 3]))),
        || x.try_matmul(&zeros(&[2, 3])),
        "matmul: inner sizes differ: lhs [2, 3], rhs [2, 3]; 3 ≠ 2\nhelp: transpose rhs?",
    );
    told.both(
        || drop(x.matmul(&zeros(&[]))),
        || x.try_matmul(&zeros(&[])),
        "matmul: 0-d tensors have no product: lhs [2, 3], rhs []\nhelp: multiply with `*`",
    );
    told.both(
        || drop(zeros(&[2, 3, 4]).bmm(&zeros(&[3, 4, 5]))),
        || zeros(&[2, 3, 4]).try_bmm(&zeros(&[3, 4, 5])),
        "bmm: batches differ: [2, 3, 4] and [3, 4, 5]",
    );
    told.both(
        || drop(v.dot(&zeros(&[5]))),
        || v.try_dot(&zeros(&[5])),
        "dot: needs vectors of one length, got [4] and [5]",
    );
    told.both(|| drop(&x + &v), || x.try_add(&v), "add: shapes do not broadcast: lhs [2, 3], rhs [4]; 3 ≠ 4");
    told.both(
        || drop(x.clone() - v.clone()),
        || x.try_sub(&v),
        "sub: shapes do not broadcast: lhs [2, 3], rhs [4]; 3 ≠ 4",
    );
    told.both(|| drop(1.0 * &x / &v), || x.try_div(&v), "div: shapes do not broadcast: lhs [2, 3], rhs [4]; 3 ≠ 4");
    told.panic(
        || {
            let mut sum = x.clone();
            sum += &v;
        },
        "add: shapes do not broadcast: lhs [2, 3], rhs [4]; 3 ≠ 4",
    );
    told.both(|| drop(x.gt(&v)), || x.try_gt(&v), "gt: shapes do not broadcast: lhs [2, 3], rhs [4]; 3 ≠ 4");
    told.both(|| drop(x.gather(1, &x)), || x.try_gather(1, &x), "gather: does not take f32, only i32, i64");
    told.both(
        || drop(x.index_select(0, &v)),
        || x.try_index_select(0, &v),
        "index_select: does not take f32, only i32, i64",
    );
    told.panic(|| drop(x.gather(1, &far).to_vec::<f32>()), "gather: index 5 is out of range for dim 1 of size 3");
    told.both(|| drop(x.sum(2)), || x.try_sum(2), "sum: dim 2 is out of range for [2, 3]; valid are -2 to 1");
    told.both(|| drop(x.mean(-3)), || x.try_mean(-3), "mean: dim -3 is out of range for [2, 3]; valid are -2 to 1");
    told.both(
        || drop(x.softmax(5)),
        || x.try_softmax(5),
        "softmax: dim 5 is out of range for [2, 3]; valid are -2 to 1",
    );
    told.both(
        || drop(x.transpose(0, 2)),
        || x.try_transpose(0, 2),
        "transpose: dim 2 is out of range for [2, 3]; valid are -2 to 1",
    );
    told.panic(|| drop(whole.requires_grad()), "requires_grad: only floats have gradients, not i64");
    told.both(
        || drop(whole.mean(())),
        || whole.try_mean(()),
        "mean: needs a float, got i64\nhelp: convert with `to_dtype`",
    );
    told.both(
        || drop(&x + &other),
        || x.try_add(&other),
        "add: tensors are on different devices: cpu and reference\nhelp: move one with `to_device`",
    );
    told.both(
        || drop(zeros(&[0, 3]).amax(0)),
        || zeros(&[0, 3]).try_amax(0),
        "amax: dims [0] of [0, 3] hold no elements, and there is no identity",
    );
    told.both(
        || drop(zeros(&[0]).argmax(0)),
        || zeros(&[0]).try_argmax(0),
        "argmax: dims [0] of [0] hold no elements, and there is no identity",
    );
    told.both(
        || drop(x.reshape([4, 2])),
        || x.try_reshape([4, 2]),
        "reshape: [2, 3] does not have as many elements as [4, 2]",
    );
    told.both(
        || drop(x.reshape([-1, -1])),
        || x.try_reshape([-1, -1]),
        "reshape: more than one size of -1: from [2, 3] to [-1, -1]",
    );
    told.both(
        || drop(x.permute([0, 0])),
        || x.try_permute([0, 0]),
        "permute: [0, 0] does not name each dim of [2, 3] once",
    );
    told.both(|| drop(x.expand([2, 4])), || x.try_expand([2, 4]), "expand: [2, 3] does not expand to [2, 4]");
    told.both(
        || drop(Tensor::cat(&[&x, &v], 0)),
        || Tensor::try_cat(&[&x, &v], 0),
        "cat: [2, 3] and [4] differ outside dim 0",
    );
    told.both(
        || drop(Tensor::cat(&[&x, &zeros(&[2, 4])], 0)),
        || Tensor::try_cat(&[&x, &zeros(&[2, 4])], 0),
        "cat: [2, 3] and [2, 4] differ outside dim 0",
    );
    told.both(
        || drop(Tensor::stack(&[&x, &v], 0)),
        || Tensor::try_stack(&[&x, &v], 0),
        "stack: shapes differ: [2, 3] and [4]",
    );
    told.both(
        || drop(image.conv2d(&zeros(&[8, 4, 3, 3]), None, &conv)),
        || image.try_conv2d(&zeros(&[8, 4, 3, 3]), None, &conv),
        "conv2d: x [1, 3, 8, 8] has 3 channels, weight [8, 4, 3, 3] with 1 groups takes 4 and gives 8",
    );
    told.both(
        || drop(image.conv2d(&zeros(&[8, 3, 9, 9]), None, &conv)),
        || image.try_conv2d(&zeros(&[8, 3, 9, 9]), None, &conv),
        "conv2d: kernel [8, 3, 9, 9] spans 9 where padded x [1, 3, 8, 8] has 8 (spatial dim 0)",
    );
    told.both(
        || drop(v.max_pool2d(&PoolOptions::new([2, 2]))),
        || v.try_max_pool2d(&PoolOptions::new([2, 2])),
        "max_pool2d: x [4] is not of rank 3 or 4",
    );
    told.both(
        || drop(x.cross_entropy(&whole)),
        || x.try_cross_entropy_with(&whole, &ce),
        "cross_entropy: targets [2, 3] do not fit logits [2, 3]; expected [2]",
    );
    told.both(
        || drop(x.cross_entropy(&Tensor::from([0i64, 1, 2]))),
        || x.try_cross_entropy_with(&Tensor::from([0i64, 1, 2]), &ce),
        "cross_entropy: targets [3] do not fit logits [2, 3]; expected [2]",
    );
    told.both(
        || drop(x.cross_entropy(&zeros(&[2]))),
        || x.try_cross_entropy_with(&zeros(&[2]), &ce),
        "cross_entropy: probabilities [2] do not fit logits [2, 3]",
    );
    told.panic(
        || {
            let _ = x.item::<f32>();
        },
        "item: needs a single element, got [2, 3]",
    );
    told.panic(
        || {
            let _ = x.dims::<3>();
        },
        "dims: expected rank 3, got [2, 3]",
    );
    told.both(|| drop(x.i((.., 3))), || x.try_i((.., 3)), "index: position 3 is out of range for dim 1 of [2, 3]");
    told.both(|| drop(x.i((0, 0, 0))), || x.try_i((0, 0, 0)), "index: 3 dims are indexed, [2, 3] has 2");
    told.both(|| drop(x.i(step(.., 0))), || x.try_i(step(.., 0)), "index: a step of 0 goes nowhere");
    told.both(
        || drop(x.narrow(1, 2, 2)),
        || x.try_narrow(1, 2, 2),
        "narrow: 2 positions from 2 are not in dim 1 of [2, 3]",
    );
    told.panic(
        || drop(Tensor::from_vec(vec![1.0f32; 5], [2, 3], &device)),
        "from data: 20 bytes of data for f32[2, 3]",
    );
    told.both(|| drop(x.where_(&x, &x)), || x.try_where_(&x, &x), "where_: does not take f32, only bool");
    told.both(
        || drop(x.bitwise_and(1)),
        || x.try_bitwise_and(1),
        "bitwise_and: does not take f32, only bool, u8, u16, u32, u64, i8, i16, i32, i64",
    );
    told.both(
        || drop(whole.pow(-1)),
        || whole.try_pow(-1),
        "pow: integers to negative integer powers are not integers",
    );
    told.both(|| drop(x.embedding(&x, None)), || x.try_embedding(&x, None), "embedding: indices are integers, not f32");
    told.both(|| drop(x.inv()), || x.try_inv(), "inv: the matrices of [2, 3] are not square");
    told.both(|| drop(x.topk(4, 1, true)), || x.try_topk(4, 1, true), "topk: k = 4 exceeds size 3 of dim 1 of [2, 3]");
    told.both(
        || drop(Tensor::einsum("ij,jk->ik", &[&x, &x])),
        || Tensor::try_einsum("ij,jk->ik", &[&x, &x]),
        "einsum: `j` is 3 and 2 in \"ij,jk->ik\"",
    );
    told.panic(
        || drop(x.requires_grad().backward()),
        "backward: needs a single element, got [2, 3]\nhelp: reduce the loss with `mean` or `sum`",
    );
    told
}
