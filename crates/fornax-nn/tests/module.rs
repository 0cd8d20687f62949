//! `#[derive(Module)]` on all kinds of types, and what modules can do.

// The derive writes paths into the facade.
extern crate fornax_nn as fornax;

use fornax_nn::{
    BatchNorm1d, Buffer, Conv2d, ConvConfig, Dropout, Identity, Layer, Linear, Lstm, Module, Param, RecurrentConfig,
    Relu,
};
use fornax_tensor::{DType, Device, Tensor};
use std::collections::BTreeMap;
use std::marker::PhantomData;

fn names(module: &dyn Module) -> Vec<String> {
    module.state_dict().into_iter().map(|(name, _)| name).collect()
}

fn linear() -> Linear {
    Linear::without_bias(2, 2, &Device::cpu())
}

#[derive(Module, Debug, Clone)]
struct Everything<M, const N: usize> {
    #[module(rename = "weight_ih_l0")]
    w: Param,
    r#type: Option<Linear>,
    none: Option<Linear>,
    list: Vec<M>,
    array: [M; N],
    pair: (Linear, Relu),
    map: BTreeMap<String, Linear>,
    boxed: Box<Linear>,
    #[module(flatten)]
    flat: Inner,
    #[module(skip)]
    skipped: Linear,
    width: usize,
    marker: PhantomData<M>,
}

#[derive(Module, Debug, Clone)]
struct Inner(Linear, Unit);

#[derive(Module, Debug, Clone)]
struct Unit;

#[derive(Module, Debug, Clone)]
enum Head {
    Plain(Linear),
    Deep { first: Linear, second: Linear },
    Nothing,
}

fn everything() -> Everything<Linear, 1> {
    Everything {
        w: Param::new(&Tensor::zeros([1], &Device::cpu())),
        r#type: Some(linear()),
        none: None,
        list: vec![linear(), linear()],
        array: [linear()],
        pair: (linear(), Relu),
        map: BTreeMap::from([(String::from("a"), linear())]),
        boxed: Box::new(linear()),
        flat: Inner(linear(), Unit),
        skipped: linear(),
        width: 3,
        marker: PhantomData,
    }
}

#[test]
fn fields_are_visited_under_their_names() {
    let module = everything();
    assert_eq!(
        names(&module),
        [
            "weight_ih_l0",
            "type.weight",
            "list.0.weight",
            "list.1.weight",
            "array.0.weight",
            "pair.0.weight",
            "map.a.weight",
            "boxed.weight",
            "0.weight"
        ]
    );
    assert_eq!(module.skipped.num_parameters(), 4);
}

#[test]
fn the_active_variant_of_an_enum_is_visited() {
    assert_eq!(names(&Head::Plain(linear())), ["weight"]);
    assert_eq!(names(&Head::Deep { first: linear(), second: linear() }), ["first.weight", "second.weight"]);
    assert_eq!(names(&Head::Nothing), [""; 0]);
}

#[test]
fn visit_and_visit_mut_agree() {
    let mut module = everything();
    let state: Vec<(String, Tensor)> =
        module.state_dict().into_iter().map(|(name, value)| (name, value.ones_like())).collect();
    module.load_state_dict(&state).unwrap();
    for (name, value) in module.state_dict() {
        assert!(value.to_vec::<f32>().iter().all(|&x| x == 1.0), "{name}");
    }
}

#[test]
fn a_model_prints_as_a_tree() {
    let device = Device::cpu();
    let model = (Conv2d::new(1, 2, [3, 3], &ConvConfig::default(), &device), Dropout::new(0.5));
    let conv = model.0.to_string();
    assert!(conv.starts_with("Conv2d(options: ConvOptions {"), "{conv}");
    assert!(conv.ends_with(")\n  weight: f32[2, 1, 3, 3]\n  bias: f32[2]"), "{conv}");
    assert_eq!(model.1.to_string(), "Dropout(p: 0.5)");
    let mut inner = Inner(linear(), Unit);
    inner.set_trainable("", false);
    assert_eq!(inner.to_string(), "Inner\n  0: Linear\n    weight: f32[2, 2], frozen\n  1: Unit");
    let norm = BatchNorm1d::new(4, &device).to_string();
    assert!(norm.starts_with("BatchNorm1d(eps: 1e-5, momentum: 0.1, channels: 4)\n  weight: f32[4]\n"), "{norm}");
    assert!(norm.ends_with("running_var: f32[4], buffer\n  num_batches_tracked: i64[], buffer"), "{norm}");
}

#[test]
fn freezing_by_prefix_takes_whole_names() {
    let mut module = everything();
    module.set_trainable("list.1", false);
    let frozen: Vec<String> = module
        .named_parameters()
        .into_iter()
        .filter(|(_, param)| !param.is_trainable())
        .map(|(name, _)| name)
        .collect();
    assert_eq!(frozen, ["list.1.weight"]);
    module.set_trainable("lis", false);
    assert!(module.list[0].weight.is_trainable());
    module.set_trainable("", true);
    assert!(module.parameters().iter().all(|param| param.is_trainable() && param.is_tracked()));
}

#[test]
fn frozen_parameters_get_no_gradient_and_load_as_frozen() {
    let mut layer = linear();
    layer.set_trainable("", false);
    let state = layer.state_dict();
    layer.load_state_dict(&state).unwrap();
    assert!(!layer.weight.is_tracked());
}

#[test]
fn floats_change_their_dtype_and_integers_stay() {
    let mut norm = BatchNorm1d::new(3, &Device::cpu());
    norm.to_dtype(DType::F64);
    let dtypes: Vec<DType> = norm.state_dict().iter().map(|(_, value)| value.dtype()).collect();
    assert_eq!(dtypes, [DType::F64, DType::F64, DType::F64, DType::F64, DType::I64]);
    let mut lstm = Lstm::new(2, 3, &RecurrentConfig::default(), &Device::cpu());
    lstm.to_dtype(DType::F64).to_device(&Device::reference());
    let x = Tensor::full([4, 1, 2], 1.0, DType::F64, &Device::reference());
    assert_eq!(lstm.forward(&x, None).0.dtype(), DType::F64);
}

#[test]
fn transient_buffers_are_not_saved() {
    #[derive(Module)]
    struct Masked {
        mask: Buffer,
        cache: Buffer,
    }
    let value = Tensor::zeros([2], &Device::cpu());
    let mut module = Masked { mask: Buffer::new(&value), cache: Buffer::transient(&value) };
    assert_eq!(names(&module), ["mask"]);
    assert_eq!(module.named_buffers().len(), 2);
    let state = module.state_dict();
    module.load_state_dict(&state).unwrap();
}

#[test]
fn train_and_eval_reach_every_layer() {
    let mut model: Vec<Box<dyn Layer>> = vec![Box::new(linear()), Box::new((Dropout::new(0.9), Identity))];
    let x = Tensor::ones([64, 2], &Device::cpu());
    model.eval();
    assert_eq!(model.forward(&x).to_vec::<f32>(), model.forward(&x).to_vec::<f32>());
    model.train();
    assert_ne!(model.forward(&x).to_vec::<f32>(), model.forward(&x).to_vec::<f32>());
}

#[test]
fn blending_moves_towards_the_other_model() {
    let device = Device::cpu();
    let mut average = BatchNorm1d::new(2, &device);
    let mut other = average.clone();
    let state: Vec<(String, Tensor)> =
        other.state_dict().into_iter().map(|(name, value)| (name, value.full_like(5))).collect();
    other.load_state_dict(&state).unwrap();
    average.blend(&other, 0.25);
    let value = |name: &str| average.state_dict().into_iter().find(|(known, _)| known == name).unwrap().1;
    assert_eq!(value("weight").to_vec::<f32>(), [2.0, 2.0]);
    assert_eq!(value("running_mean").to_vec::<f32>(), [1.25, 1.25]);
    assert_eq!(value("num_batches_tracked").item::<i64>(), 5);
}

#[test]
#[should_panic(expected = "blend: the weights do not fit the model")]
fn models_of_another_structure_do_not_blend() {
    linear().blend(&Linear::new(2, 2, &Device::cpu()), 0.5);
}
