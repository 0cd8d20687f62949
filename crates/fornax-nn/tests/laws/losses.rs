//! Losses beyond those of the recorded suites.

use super::{close, wave};
use fornax_nn::*;
use fornax_tensor::{Device, Reduction, Tensor};

#[test]
fn the_binary_focal_loss_is_that_of_its_paper() {
    let target = Tensor::from([1.0, 0.0, 1.0, 0.0]);
    close(&SigmoidFocalLoss::new().forward(&wave([4]), &target), &[0.156_902_9]);
}

#[test]
fn the_focal_loss_without_focus_is_cross_entropy() {
    let (x, target) = (wave([4, 3]), Tensor::from([0i64, 2, 1, 1]));
    let weight = || Some(Buffer::new(&Tensor::from([1.0, 2.0, 0.5])));
    let focal = |gamma| FocalLoss::new().gamma(gamma).weight(weight()).reduction(Reduction::Sum).forward(&x, &target);
    let plain = CrossEntropyLoss::new().weight(weight()).reduction(Reduction::Sum).forward(&x, &target);
    close(&focal(0.0), &plain.to_vec::<f64>());
    let p = x.softmax(-1).gather(1, &target.unsqueeze(1)).squeeze(1);
    let want = -(p.log() * (1.0 - &p).square() * Tensor::from([1.0, 0.5, 2.0, 2.0])).sum(());
    close(&focal(2.0), &want.to_vec::<f64>());
}

#[test]
fn powers_and_gram_matrices_are_compared() {
    let (x, y) = (Tensor::from([1.0, -2.0]), Tensor::from([0.0, 1.0]));
    close(&LpLoss::new().p(3.0).reduction(Reduction::None).forward(&x, &y), &[1.0, 27.0]);
    // Channels (1, 2) and (3, 4): products 5, 11, 11, 25, over 2 channels of 2 pixels.
    let image = Tensor::from([1.0, 2.0, 3.0, 4.0]).reshape([1, 2, 1, 2]);
    let loss = GramMatrixLoss::new().reduction(Reduction::None).forward(&image, &image.zeros_like());
    close(&loss, &[5.0f64, 11.0, 11.0, 25.0].map(|product| (product / 4.0).powi(2)));
}

#[test]
fn triplets_take_any_distance() {
    let (a, p, n) = (wave([3, 4]), wave([3, 4]) * 0.5, wave([3, 4]) * -1.0);
    let loss = TripletMarginWithDistanceLoss::new(|a: &Tensor, b: &Tensor| a.pairwise_distance(b, 2.0, 1e-6, false));
    let want = TripletMarginLoss::new().forward(&a, &p, &n);
    close(&loss.forward(&a, &p, &n), &want.to_vec::<f64>());
}

/// Minus the logarithm of the sum over all ways: every order of `time − 1` blanks and all labels, and a blank at the end.
fn transducer_by_hand(log_probs: &[Vec<Vec<f64>>], targets: &[usize]) -> f64 {
    fn ways(log_probs: &[Vec<Vec<f64>>], targets: &[usize], t: usize, u: usize) -> f64 {
        let here = &log_probs[t][u];
        let last = t + 1 == log_probs.len();
        let mut sum = 0.0;
        if last && u == targets.len() {
            return here[0].exp();
        }
        if !last {
            sum += here[0].exp() * ways(log_probs, targets, t + 1, u);
        }
        if u < targets.len() {
            sum += here[targets[u]].exp() * ways(log_probs, targets, t, u + 1);
        }
        sum
    }
    -ways(log_probs, targets, 0, 0).ln()
}

#[test]
fn the_transducer_loss_sums_over_all_ways() {
    let device = Device::cpu();
    let logits = wave([2, 4, 3, 5]).requires_grad();
    let targets = Tensor::from_vec(vec![2i64, 4, 1, 0], [2, 2], &device);
    // The second item is shorter in time and labels.
    let (times, lengths) = (Tensor::from([4i64, 3]), Tensor::from([2i64, 1]));
    let loss = RnntLoss { reduction: Reduction::None, ..RnntLoss::default() };
    let losses = loss.forward(&logits, &targets, &times, &lengths);
    let all = logits.detach().log_softmax(-1).to_vec::<f64>();
    let of = |item: usize, times: usize, labels: &[usize]| {
        let at = |t: usize, u: usize| all[((item * 4 + t) * 3 + u) * 5..][..5].to_vec();
        let table: Vec<Vec<Vec<f64>>> = (0..times).map(|t| (0..=labels.len()).map(|u| at(t, u)).collect()).collect();
        transducer_by_hand(&table, labels)
    };
    close(&losses, &[of(0, 4, &[2, 4]), of(1, 3, &[1])]);
    // Softmax: the gradient of each place sums to 0; what lies beyond the lengths has none.
    let gradient = losses.sum(()).backward().remove(&logits).unwrap();
    assert!(gradient.to_vec::<f32>().iter().all(|value| value.is_finite()));
    assert!(gradient.sum(-1).abs().amax(()).item::<f32>() < 1e-5);
    assert_eq!(gradient.select(0, 1).select(0, 3).abs().amax(()).item::<f32>(), 0.0);
    assert!(gradient.select(0, 0).abs().amax(()).item::<f32>() > 0.01);
}

#[test]
fn the_adaptive_softmax_is_that_of_pytorch() {
    let device = Device::cpu();
    let mut layer = AdaptiveLogSoftmaxWithLoss::new(8, 10, &[3, 6], 2.0, &device);
    let state: Vec<(String, Tensor)> = [
        ("head.weight", [5, 8]),
        ("tail.0.0.weight", [4, 8]),
        ("tail.0.1.weight", [3, 4]),
        ("tail.1.0.weight", [2, 8]),
        ("tail.1.1.weight", [4, 2]),
    ]
    .into_iter()
    .enumerate()
    .map(|(n, (name, shape))| {
        let values = (0..shape[0] * shape[1]).map(|i| (i as f32 * 1.1 + n as f32).sin()).collect();
        (name.to_string(), Tensor::from_vec::<f32>(values, shape, &device))
    })
    .collect();
    layer.load_state_dict(&state).unwrap();
    let x = wave([3, 8]);
    let (output, loss) = layer.forward(&x, &Tensor::from([0i64, 4, 9]));
    close(&output, &[-3.426645, -3.282884, -3.113728]);
    close(&loss, &[3.274419]);
    assert_eq!(layer.predict(&x).to_vec::<i64>(), [1, 1, 2]);
    close(&layer.log_prob(&x).exp().sum(1), &[1.0, 1.0, 1.0]);
}

#[test]
fn cross_entropy_takes_logits_and_probabilities_their_logarithm() {
    // Case C73.
    let rows =
        [[0.1, 0.2, 0.7, 0.0, 0.0], [0.7, 0.1, 0.1, 0.1, 0.0], [0.2, 0.2, 0.2, 0.2, 0.2], [0.0, 0.3, 0.3, 0.2, 0.2]];
    let (x, target) = (Tensor::from(rows), Tensor::from([2i64, 0, 4, 1]));
    close(&CrossEntropyLoss::new().forward(&x, &target), &[1.354_197]);
    close(&NllLoss::new().forward(&x.maximum(1e-12).log(), &target), &[0.881_690]);
}

#[test]
fn binary_cross_entropy_is_finite_everywhere() {
    // Case C74.
    let loss = |p: f64, t: f64| {
        let p = Tensor::from([p as f32]).requires_grad();
        let loss = BceLoss::new().forward(&p, &Tensor::from([t as f32]));
        let gradient = loss.backward().remove(&p).unwrap().item::<f32>();
        assert!(gradient.is_finite());
        loss.item::<f32>()
    };
    assert_eq!((loss(1.0, 1.0), loss(0.0, 0.0), loss(0.0, 1.0)), (0.0, 0.0, 100.0));
    for (x, t, want) in [(1000.0, 1.0, 0.0), (1000.0, 0.0, 1000.0), (-1000.0, 1.0, 1000.0), (-1000.0, 0.0, 0.0)] {
        let x = Tensor::from([x as f32]).requires_grad();
        let loss = BceWithLogitsLoss::new().forward(&x, &Tensor::from([t as f32]));
        assert_eq!(loss.item::<f32>(), want);
        assert!(loss.backward().remove(&x).unwrap().item::<f32>().is_finite());
    }
}

#[test]
fn the_margin_loss_of_many_classes() {
    // Case C151: p = 2, margin 1, target 2.
    let loss = MultiMarginLoss::new().p(2).forward(&Tensor::from([0.1, 0.2, 0.4]), &Tensor::from(2i64));
    close(&loss, &[0.376_667]);
}
