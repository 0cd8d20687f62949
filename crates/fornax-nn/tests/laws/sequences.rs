//! Recurrent layers, attention, positions, experts.

use super::{close, same, wave};
use fornax_nn::*;
use fornax_tensor::{AttentionOptions, DType, Device, Tensor};

#[test]
fn a_batch_of_sequences_that_end_is_each_sequence_alone() {
    let device = Device::cpu();
    let config =
        RecurrentConfig { num_layers: 2, bidirectional: true, batch_first: true, ..RecurrentConfig::default() };
    let (lstm, gru) = (Lstm::new(3, 4, &config, &device), Gru::new(3, 4, &config, &device));
    let x = wave([3, 5, 3]);
    let lengths = [5i64, 2, 4];
    let packed = Tensor::from(lengths);
    let (output, (hn, cn)) = lstm.forward_packed(&x, &packed, None);
    let (gru_output, gru_hn) = gru.forward_packed(&x, &packed, None);
    for (item, &length) in lengths.iter().enumerate() {
        let (item, length) = (item as i64, length as usize);
        let alone = x.narrow(0, item, 1).narrow(1, 0, length);
        let (want, (want_hn, want_cn)) = lstm.forward(&alone, None);
        same(&output.narrow(0, item, 1).narrow(1, 0, length), &want);
        same(&hn.narrow(1, item, 1), &want_hn);
        same(&cn.narrow(1, item, 1), &want_cn);
        let rest = output.narrow(0, item, 1).narrow(1, length as i64, 5 - length);
        assert!(rest.to_vec::<f32>().iter().all(|&value| value == 0.0));
        let (want, want_hn) = gru.forward(&alone, None);
        same(&gru_output.narrow(0, item, 1).narrow(1, 0, length), &want);
        same(&gru_hn.narrow(1, item, 1), &want_hn);
    }
}

#[test]
fn shared_heads_of_keys_are_repeated_heads() {
    let device = Device::cpu();
    let shared = AttentionConfig { num_kv_heads: Some(2), batch_first: true, ..AttentionConfig::default() };
    let grouped = MultiheadAttention::new(8, 4, &shared, &device);
    let plain_config = AttentionConfig { batch_first: true, ..AttentionConfig::default() };
    let mut plain = MultiheadAttention::new(8, 4, &plain_config, &device);
    // Each head of keys and values stands for two heads of queries: rows of 2 repeated.
    let weight = grouped.in_proj_weight.as_ref().unwrap(); // [8 + 4 + 4, 8]
    let repeated = |start: i64| {
        let heads = weight.narrow(0, start, 4).reshape([2, 1, 2, 8]).expand([2, 2, 2, 8]);
        heads.reshape([8, 8])
    };
    let all = Tensor::cat(&[&weight.narrow(0, 0, 8), &repeated(8), &repeated(12)], 0);
    plain.in_proj_weight.as_mut().unwrap().set(&all);
    plain.out_proj = grouped.out_proj.clone();
    let x = wave([2, 5, 8]);
    let mask = AttentionMask { is_causal: true, ..AttentionMask::default() };
    let want = plain.forward(&x, &x, &x, mask);
    same(&grouped.forward(&x, &x, &x, mask), &want);
    same(&grouped.forward_with_weights(&x, &x, &x, mask, true).0, &want);
}

#[test]
fn a_cache_gives_what_all_positions_at_once_give() {
    let device = Device::cpu();
    let config = AttentionConfig {
        num_kv_heads: Some(1),
        batch_first: true,
        rotary: Some(RotaryEncoding::default()),
        ..AttentionConfig::default()
    };
    let attention = MultiheadAttention::new(8, 2, &config, &device);
    let x = wave([2, 6, 8]);
    let causal = AttentionMask { is_causal: true, ..AttentionMask::default() };
    let want = attention.forward(&x, &x, &x, causal);
    let mut cache = KvCache::default();
    let mut parts = Vec::new();
    // A prompt of three, then one by one.
    for (start, length) in [(0, 3), (3, 1), (4, 1), (5, 1)] {
        parts.push(attention.forward_cached(&x.narrow(1, start, length), &mut cache));
    }
    same(&Tensor::cat(&parts.iter().collect::<Vec<_>>(), 1), &want);
    assert_eq!(cache.len(), 6);
    // Going back and on again gives the same.
    cache.truncate(4);
    same(&attention.forward_cached(&x.narrow(1, 4, 1), &mut cache), &want.narrow(1, 4, 1));
}

#[test]
fn rotary_encodings_turn_pairs_by_their_position() {
    // Case C88: with and without heads, lengths of pairs kept, position 0 unchanged.
    for pairs in [RotaryPairs::Halves, RotaryPairs::Neighbours] {
        let rotary = RotaryEncoding { pairs, ..RotaryEncoding::default() };
        let x = wave([2, 5, 8]);
        let y = rotary.forward(&x, 0);
        same(&rotary.forward(&x.unsqueeze(1), 0).squeeze(1), &y);
        same(&y.narrow(1, 0, 1), &x.narrow(1, 0, 1));
        let pair_norms = |x: &Tensor| match pairs {
            RotaryPairs::Halves => x.narrow(-1, 0, 4).square() + x.narrow(-1, 4, 4).square(),
            RotaryPairs::Neighbours => x.reshape([2, 5, 4, 2]).square().sum(-1),
        };
        same(&pair_norms(&y), &pair_norms(&x));
        // Products depend on distances only.
        let q = Tensor::randn([1, 8], &Device::cpu());
        let product = |a: usize, b: usize| (rotary.forward(&q, a) * rotary.forward(&q, b)).sum(());
        same(&product(3, 7), &product(13, 17));
        same(&rotary.forward(&x.narrow(1, 2, 2), 2), &y.narrow(1, 2, 2));
    }
    // By the formula: position 1, first pair turned by 1.
    let x = Tensor::from([[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]);
    close(&RotaryEncoding::default().forward(&x, 0).narrow(0, 1, 1), &[1f64.cos(), 0.0, 1f64.sin(), 0.0]);
    let part = RotaryEncoding { rotary_dim: Some(2), ..RotaryEncoding::default() };
    close(&part.forward(&Tensor::from([[1.0, 0.0, 5.0]]), 1), &[1f64.cos(), 1f64.sin(), 5.0]);
}

#[test]
fn experts_compute_what_a_dense_mixture_does() {
    let device = Device::cpu();
    let experts: Vec<SwiGlu> = (0..4).map(|_| SwiGlu::new(6, 5, &device)).collect();
    let layer = MixtureOfExperts::new(6, experts, 2, &device);
    let x = wave([2, 3, 6]).requires_grad();
    let (y, balance) = layer.forward_with_balance(&x);
    let scores = layer.gate.forward(&x);
    let (best, chosen) = scores.topk(2, -1, true);
    let weights = Tensor::zeros([2, 3, 4], &device).scatter(-1, &chosen, best.softmax(-1)); // [2, 3, experts]
    let all: Vec<Tensor> = layer.experts.iter().map(|expert| expert.forward(&x)).collect();
    let all = Tensor::stack(&all.iter().collect::<Vec<_>>(), -1); // [2, 3, 6, experts]
    let want = (all * weights.unsqueeze(2)).sum(-1);
    same(&y, &want);
    let gradient = |y: &Tensor| y.square().sum(()).backward().remove(&x).unwrap();
    same(&gradient(&y), &gradient(&want));
    let share = chosen.flatten(0, -1).one_hot(4).to_dtype(DType::F32).mean(0);
    same(&balance, &((share * scores.softmax(-1).mean([0, 1])).sum(()) * 4.0));
}

#[test]
fn queries_that_may_see_nothing_give_zero() {
    // Cases C79 and C80.
    let q = wave([1, 4, 3]).requires_grad();
    let mut allowed = vec![true; 16];
    allowed[8..12].fill(false);
    let mask = Some(Tensor::from_vec(allowed, [4, 4], &Device::cpu()));
    for is_causal in [false, true] {
        let options = AttentionOptions { mask: mask.clone(), is_causal, ..AttentionOptions::default() };
        let y = q.scaled_dot_product_attention(&q, &q, &options);
        close(&y.narrow(1, 2, 1), &[0.0; 3]);
        let gradient = y.square().sum(()).backward().remove(&q).unwrap();
        assert!(gradient.to_vec::<f32>().iter().all(|value| value.is_finite()));
    }
    for length in [1usize, 2, 3, 31, 32, 33, 64, 65, 128, 130] {
        let x = wave([1, length, 4]);
        let causal = Tensor::ones([length, length], &Device::cpu()).tril(0).to_dtype(DType::Bool);
        let run = |mask: Option<Tensor>, is_causal| {
            x.scaled_dot_product_attention(&x, &x, &AttentionOptions { mask, is_causal, ..AttentionOptions::default() })
        };
        let want = run(None, true);
        same(&run(Some(causal.clone()), true), &want);
        same(&run(Some(causal), false), &want);
    }
}
