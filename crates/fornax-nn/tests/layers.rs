//! Laws that layers obey, where no recorded case looks.

use fornax_nn::optim::Sgd;
use fornax_nn::{
    AlphaDropout, AttentionConfig, AttentionMask, BatchNorm1d, Conv2d, ConvConfig, ConvTranspose2d,
    ConvTransposeConfig, Dropout2d, Embedding, Gru, GruCell, Lstm, Module, MultiheadAttention, PaddingMode,
    RecurrentConfig, Transformer, Unflatten,
};
use fornax_tensor::{DType, Device, PadMode, Padding, Tensor};

fn device() -> Device {
    Device::cpu()
}

#[track_caller]
fn assert_close(got: &Tensor, want: &Tensor, tolerance: f64) {
    assert_eq!(got.shape(), want.shape());
    for (i, (got, want)) in got.to_vec::<f64>().into_iter().zip(want.to_vec::<f64>()).enumerate() {
        assert!((got - want).abs() <= tolerance * (1.0 + want.abs()), "element {i}: got {got}, want {want}");
    }
}

/// A layer with the weights of another.
fn with_weights_of<M: Module>(mut layer: M, other: &impl Module) -> M {
    layer.load_state_dict(&other.state_dict()).unwrap();
    layer
}

#[test]
fn a_padding_mode_is_a_border_in_front_of_the_convolution() {
    let x = Tensor::randn([2, 3, 7, 8], &device());
    for (mode, border) in [
        (PaddingMode::Reflect, PadMode::Reflect),
        (PaddingMode::Replicate, PadMode::Replicate),
        (PaddingMode::Circular, PadMode::Circular),
    ] {
        let config = ConvConfig::default().padding([2, 1]).padding_mode(mode).stride(2);
        let layer = Conv2d::new(3, 4, [3, 2], &config, &device());
        let plain = Conv2d::new(3, 4, [3, 2], &ConvConfig::default().stride(2), &device());
        let plain = with_weights_of(plain, &layer);
        assert_close(&layer.forward(&x), &plain.forward(&x.pad(&[1, 1, 2, 2], border)), 1e-5);

        // The odd one of `same` goes behind.
        let config = ConvConfig::default().padding(Padding::Same).padding_mode(mode).dilation([1, 3]);
        let layer = Conv2d::new(3, 4, [2, 2], &config, &device());
        let plain = Conv2d::new(3, 4, [2, 2], &ConvConfig::default().dilation([1, 3]), &device());
        let plain = with_weights_of(plain, &layer);
        let y = layer.forward(&x);
        assert_eq!(y.dims(), [2, 4, 7, 8]);
        assert_close(&y, &plain.forward(&x.pad(&[1, 2, 0, 1], border)), 1e-5);
    }
}

#[test]
fn a_transposed_convolution_is_the_adjoint() {
    let config = ConvConfig::default().stride([2, 3]).padding([1, 0]).dilation([1, 2]).groups(2).without_bias();
    let conv = Conv2d::new(4, 6, [3, 2], &config, &device());
    let x = Tensor::randn([2, 4, 8, 10], &device());
    let y = conv.forward(&x);
    let transposed = ConvTransposeConfig::default()
        .stride([2, 3])
        .padding([1, 0])
        .output_padding([1, 1])
        .dilation([1, 2])
        .groups(2)
        .without_bias();
    let transposed = with_weights_of(ConvTranspose2d::new(6, 4, [3, 2], &transposed, &device()), &conv);
    let dy = Tensor::randn(y.shape(), &device());
    let back = transposed.forward(&dy);
    assert_eq!(back.shape(), x.shape());
    assert_close(&(y.detach() * dy).sum(()), &(x * back.detach()).sum(()), 1e-4);
}

#[test]
fn a_recurrent_layer_is_its_cell_step_by_step() {
    let gru = Gru::new(3, 4, &RecurrentConfig::default(), &device());
    let mut cell = GruCell::new(3, 4, &device());
    let state: Vec<(String, Tensor)> =
        gru.state_dict().into_iter().map(|(name, value)| (name.replace("_l0", ""), value)).collect();
    cell.load_state_dict(&state).unwrap();
    let x = Tensor::randn([5, 2, 3], &device());
    let (output, hn) = gru.forward(&x, None);
    let mut h = None;
    for step in 0..5 {
        h = Some(cell.forward(&x.narrow(0, step, 1).squeeze(0), h.as_ref()));
        assert_close(&output.narrow(0, step, 1).squeeze(0), h.as_ref().unwrap(), 1e-5);
    }
    assert_close(&hn.squeeze(0), &h.unwrap(), 1e-5);
    // One sequence alone, and the batch in front.
    let single = gru.forward(&x.narrow(1, 0, 1).squeeze(1), None);
    assert_close(&single.0, &output.narrow(1, 0, 1).squeeze(1), 1e-5);
    assert_eq!(single.1.dims(), [1, 4]);
    let first = Gru::new(3, 4, &RecurrentConfig { batch_first: true, ..RecurrentConfig::default() }, &device());
    let first = with_weights_of(first, &gru);
    assert_close(&first.forward(&x.transpose(0, 1), None).0.transpose(0, 1), &output, 1e-5);
}

#[test]
fn a_projected_lstm_follows_its_formula() {
    let config = RecurrentConfig { proj_size: 2, bidirectional: true, num_layers: 2, ..RecurrentConfig::default() };
    let lstm = Lstm::new(3, 4, &config, &device());
    let names: Vec<String> = lstm.state_dict().into_iter().map(|(name, _)| name).take(5).collect();
    assert_eq!(names, ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_hr_l0"]);
    let x = Tensor::randn([1, 2, 3], &device());
    let (output, (hn, cn)) = lstm.forward(&x, None);
    assert_eq!((output.dims(), hn.dims(), cn.dims()), ([1, 2, 4], [4, 2, 2], [4, 2, 4]));

    let get = |name: &str| lstm.state_dict().into_iter().find(|(known, _)| known == name).unwrap().1;
    let gates = x.squeeze(0).linear(&get("weight_ih_l0"), Some(&get("bias_ih_l0"))) + get("bias_hh_l0");
    let part = |gate: i64| gates.narrow(-1, gate * 4, 4);
    let c = part(0).sigmoid() * part(2).tanh();
    let h = (part(3).sigmoid() * c.tanh()).linear(&get("weight_hr_l0"), None);
    assert_close(&cn.narrow(0, 0, 1).squeeze(0), &c, 1e-5);
    assert_close(&hn.narrow(0, 0, 1).squeeze(0), &h, 1e-5);
}

fn attention(config: &AttentionConfig) -> MultiheadAttention {
    MultiheadAttention::new(8, 2, config, &device())
}

#[test]
fn layouts_of_attention_agree() {
    let plain = attention(&AttentionConfig::default());
    let first = with_weights_of(attention(&AttentionConfig { batch_first: true, ..Default::default() }), &plain);
    let (q, k) = (Tensor::randn([3, 2, 8], &device()), Tensor::randn([5, 2, 8], &device()));
    let y = plain.forward(&q, &k, &k, AttentionMask::default());
    let flipped = k.transpose(0, 1);
    let same = first.forward(&q.transpose(0, 1), &flipped, &flipped, AttentionMask::default());
    assert_close(&same.transpose(0, 1), &y, 1e-5);
    let item = |x: &Tensor| x.narrow(1, 1, 1).squeeze(1);
    let (single, weights) =
        plain.forward_with_weights(&item(&q), &item(&k), &item(&k), AttentionMask::default(), false);
    assert_close(&single, &item(&y), 1e-5);
    assert_eq!(weights.dims(), [2, 3, 5]);
    assert_close(&weights.sum(-1), &Tensor::ones([2, 3], &device()), 1e-5);
}

#[test]
fn masks_of_attention_agree() {
    let layer = attention(&AttentionConfig::default());
    let x = Tensor::randn([4, 2, 8], &device());
    let run = |mask: AttentionMask<'_>| layer.forward(&x, &x, &x, mask);
    let causal = run(AttentionMask { is_causal: true, ..Default::default() });
    let added = Transformer::causal_mask(4, &device());
    let forbidden = added.lt(0.0);
    assert_close(&run(AttentionMask { attn_mask: Some(&added), ..Default::default() }), &causal, 1e-5);
    assert_close(&run(AttentionMask { attn_mask: Some(&forbidden), ..Default::default() }), &causal, 1e-5);
    let for_each_head = forbidden.expand([4, 4, 4]);
    assert_close(&run(AttentionMask { attn_mask: Some(&for_each_head), ..Default::default() }), &causal, 1e-5);
    // Padding is as good as not there.
    let padding = Tensor::from_vec(vec![false, false, false, true], [1, 4], &device()).expand([2, 4]);
    let masked = run(AttentionMask { key_padding_mask: Some(&padding), ..Default::default() });
    let short = x.narrow(0, 0, 3);
    assert_close(&masked.narrow(0, 0, 3), &layer.forward(&short, &short, &short, AttentionMask::default()), 1e-5);
}

#[test]
fn appended_keys_may_always_be_attended_to() {
    let config = AttentionConfig { add_bias_kv: true, add_zero_attn: true, ..Default::default() };
    let layer = attention(&config);
    let names: Vec<String> = layer.state_dict().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["in_proj_weight", "in_proj_bias", "bias_k", "bias_v", "out_proj.weight", "out_proj.bias"]);
    let x = Tensor::randn([3, 2, 8], &device());
    let everything = Tensor::full([3, 3], true, DType::Bool, &device());
    let mask = AttentionMask { attn_mask: Some(&everything), ..Default::default() };
    let (_, weights) = layer.forward_with_weights(&x, &x, &x, mask, true);
    assert_eq!(weights.dims(), [2, 3, 5]);
    assert_eq!(weights.narrow(-1, 0, 3).to_vec::<f32>(), [0.0; 18]);
    assert_close(&weights.sum(-1), &Tensor::ones([2, 3], &device()), 1e-5);
}

#[test]
fn without_momentum_running_statistics_are_means_over_batches() {
    let norm = BatchNorm1d::new(2, &device()).momentum(None);
    let batches = [Tensor::randn([6, 2], &device()), Tensor::randn([6, 2], &device()) + 3.0];
    for batch in &batches {
        norm.forward(batch);
    }
    let want = (batches[0].mean(0) + batches[1].mean(0)) / 2.0;
    assert_close(&norm.stats.as_ref().unwrap().running_mean.get(), &want, 1e-5);
}

#[test]
fn whole_channels_are_dropped_and_the_rest_grows() {
    let y = Dropout2d::new(0.25).forward(&Tensor::ones([40, 10, 2, 2], &device()));
    let mut kept = 0;
    for channel in y.to_vec::<f32>().chunks(4) {
        assert!(channel == [0.0; 4] || channel.iter().all(|value| (value - 4.0 / 3.0).abs() < 1e-5), "{channel:?}");
        kept += usize::from(channel[0] > 0.0);
    }
    assert!((250..350).contains(&kept), "{kept} of 400");
}

#[test]
fn alpha_dropout_keeps_mean_and_variance() {
    let y = AlphaDropout::new(0.3).forward(&Tensor::randn([100_000], &device()));
    let (mean, square) = (y.mean(()).item::<f64>(), y.square().mean(()).item::<f64>());
    assert!(mean.abs() < 0.03 && (square - 1.0).abs() < 0.03, "mean {mean}, mean square {square}");
}

#[test]
fn the_padding_vector_of_an_embedding_stays_zero() {
    let mut table = Embedding::new(4, 3, &device()).padding_idx(-1);
    let tokens = Tensor::from_vec(vec![0i64, 3, 3, 1], [4], &device());
    let gradients = (table.forward(&tokens) - 1.0).square().sum(()).backward();
    Sgd::new(0.1).step(&mut table, &gradients);
    assert_eq!(table.weight.narrow(0, 3, 1).to_vec::<f32>(), [0.0; 3]);
    assert_eq!(table.forward(&tokens).narrow(0, 1, 1).to_vec::<f32>(), [0.0; 3]);
}

#[test]
fn one_size_of_unflatten_may_be_left_open() {
    let x = Tensor::zeros([2, 0, 6], &device());
    assert_eq!(Unflatten::new(-1, [2, -1]).forward(&x).dims(), [2, 0, 2, 3]);
}

#[test]
#[should_panic(expected = "BatchNorm1d: x [4, 5] is not [n, channels] or [n, channels, length] with 3 channels")]
fn a_layer_that_does_not_fit_names_itself() {
    BatchNorm1d::new(3, &device()).forward(&Tensor::zeros([4, 5], &device()));
}

#[test]
#[should_panic(expected = "Gru: x [4, 2, 5] is not [time, n, 3]")]
fn a_recurrent_layer_that_does_not_fit_names_itself() {
    Gru::new(3, 4, &RecurrentConfig::default(), &device()).forward(&Tensor::zeros([4, 2, 5], &device()), None);
}
