//! Weights come to models strictly, and say what does not fit.

use crate::{fixture, scratch};
use fornax_nn::{Conv1d, ConvConfig, Linear, Module};
use fornax_store::{ErrorKind, ModuleFiles, Rule, Value, Weights, save, save_torch};
use fornax_tensor::{DType, Device, Tensor};

#[test]
fn a_part_of_a_file_loads_into_a_model_of_its_own() {
    let device = Device::reference();
    let mut model = Linear::new(3, 2, &device);
    for file in ["trained.pt", "trained.legacy.pt"] {
        let weights = Weights::open(fixture(file)).unwrap();
        weights.under("model").load_into(&mut model).unwrap();
        let bias = weights.read("model.bias", &device).unwrap().to_vec::<f32>();
        assert_eq!(model.bias.as_ref().unwrap().to_vec::<f32>(), bias);
        // The whole file is more than the model.
        let error = weights.load_into(&mut model).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        assert!(error.to_string().contains("missing    weight"), "{error}");
        assert!(error.to_string().contains("unexpected optimizer.state.0.exp_avg"), "{error}");
    }
}

// burn#2332: an entry of a list went to a layer by the name of its field.
#[test]
fn each_entry_of_a_sequence_loads_into_its_own_layer() {
    let device = Device::reference();
    let path = scratch("sequence", "seq.pt");
    let new =
        || Sequence { seq: (Linear::new(8, 4, &device), Conv1d::new(4, 4, [3], &ConvConfig::default(), &device)) };
    let (saved, mut model) = (new(), new());
    save_torch(&path, &Value::state_dict(&saved.state_dict())).unwrap();
    let names: Vec<String> = Weights::open(&path).unwrap().names().map(String::from).collect();
    assert_eq!(names, ["seq.0.weight", "seq.0.bias", "seq.1.weight", "seq.1.bias"]);
    model.load(&path).unwrap();
    assert_eq!(model.seq.0.weight.to_vec::<f32>(), saved.seq.0.weight.to_vec::<f32>());
    assert_eq!(model.seq.1.weight.to_vec::<f32>(), saved.seq.1.weight.to_vec::<f32>());
    std::fs::remove_file(path).unwrap();
}

#[derive(Module, Debug, Clone)]
struct Sequence {
    seq: (Linear, Conv1d),
}

// burn PR#4194: dtypes changed without a word.
#[test]
fn dtypes_are_kept_or_cast_on_request_only() {
    let device = Device::reference();
    let path = scratch("dtypes", "half.safetensors");
    let tensors = [
        ("weight".to_string(), Tensor::ones([2, 3], &device).to_dtype(DType::F16)),
        ("bias".to_string(), Tensor::full([2], 2, DType::I32, &device)),
    ];
    save(&path, &tensors).unwrap();
    let weights = Weights::open(&path).unwrap();
    assert_eq!(weights.read("weight", &device).unwrap().dtype(), DType::F16);
    assert_eq!(weights.read("bias", &device).unwrap().dtype(), DType::I32);
    let mut model = Linear::new(3, 2, &device);
    let error = model.load(&path).unwrap_err();
    assert_eq!(error.load_error().unwrap().report.mismatched.len(), 2);
    assert!(error.to_string().contains("mismatched weight: the model has f32[2, 3], found f16[2, 3]"), "{error}");

    let report = model.load_lenient(&path).unwrap();
    assert_eq!(report.cast.len(), 2);
    assert_eq!(model.weight.dtype(), DType::F32);
    assert_eq!(model.bias.as_ref().unwrap().to_vec::<f32>(), [2.0, 2.0]);

    let cast = [Rule::Cast { pattern: ".*".into(), dtype: "f32".into() }];
    weights.apply(&cast).unwrap().load_into(&mut model).unwrap();
    std::fs::remove_file(path).unwrap();
}
