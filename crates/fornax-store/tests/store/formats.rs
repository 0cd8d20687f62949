//! What others wrote is read as they meant it, and what is written is read back.

use crate::{fixture, scratch};
use fornax_store::{
    ErrorKind, Key, Plain, Value, Weights, load_torch, save, save_npz, save_sharded, save_torch, save_torch_legacy,
};
use fornax_tensor::{DType, Device, Tensor};

const TORCH: [&str; 2] = ["tensors.pt", "tensors.legacy.pt"];

#[test]
fn tensors_of_pytorch_have_their_values() {
    let device = Device::reference();
    for file in TORCH {
        let weights = Weights::open(fixture(file)).unwrap();
        let read = |name: &str| weights.read(name, &device).unwrap();
        let floats = |name: &str| read(name).to_vec::<f64>();
        assert_eq!(read("whole").dims(), [2, 3, 4]);
        assert_eq!(floats("whole"), (0..24).map(f64::from).collect::<Vec<_>>());
        assert_eq!(read("transposed").dims(), [4, 3, 2]);
        assert_eq!(floats("transposed")[..6], [0.0, 12.0, 4.0, 16.0, 8.0, 20.0]);
        assert_eq!(read("sliced").dims(), [2, 2, 2]);
        assert_eq!(floats("sliced"), [4.0, 6.0, 8.0, 10.0, 16.0, 18.0, 20.0, 22.0]);
        assert_eq!(floats("expanded"), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
        assert_eq!(floats("tied"), floats("tied_too"));
        assert_eq!((read("scalar").rank(), floats("scalar")[0]), (0, 0.5));
        assert_eq!(read("empty").dims(), [3, 0, 2]);
        assert_eq!(floats("parameter"), [3.0]);
        assert_eq!(read("bool").to_vec::<bool>(), [true, false, true]);
        assert_eq!(read("i64").to_vec::<i64>(), [i64::MIN, i64::MAX]);
        for (name, dtype, value) in [
            ("f16", DType::F16, -65504.0),
            ("bf16", DType::BF16, -3.004_055_3e38),
            ("f64", DType::F64, 0.1),
            ("i32", DType::I32, -7.0),
            ("i16", DType::I16, -8.0),
            ("i8", DType::I8, -9.0),
            ("u8", DType::U8, 255.0),
            ("u16", DType::U16, 65535.0),
            ("u32", DType::U32, 4_294_967_295.0),
            ("u64", DType::U64, 9_223_372_036_854_775_807.0),
        ] {
            assert_eq!(read(name).dtype(), dtype, "{file} {name}");
            let last = *floats(name).last().unwrap();
            assert!((last - value).abs() <= value.abs() * 1e-7, "{file} {name}: {last}");
        }
        assert_eq!(weights.tensors().len(), 21);
    }
}

// burn#3962: keys that are numbers.
#[test]
fn nested_dicts_with_whole_numbers_as_keys_are_read() {
    let device = Device::reference();
    for file in ["trained.pt", "trained.legacy.pt"] {
        let weights = Weights::open(fixture(file)).unwrap();
        assert_eq!(weights.under("model").names().collect::<Vec<_>>(), ["weight", "bias"]);
        assert_eq!(weights.read("optimizer.state.1.step", &device).unwrap().item::<f32>(), 1.0);
        assert_eq!(weights.value("optimizer.param_groups.0.lr"), Some(&Plain::Float(0.01)));
        assert_eq!(weights.value("optimizer.param_groups.0.betas.1"), Some(&Plain::Float(0.999)));
        assert_eq!(weights.value("epoch"), Some(&Plain::Int(3)));
        assert_eq!(weights.value("best"), Some(&Plain::None));

        let whole = load_torch(fixture(file), &device).unwrap();
        let slot = whole.get("optimizer").unwrap().get("state").unwrap().get(0).unwrap();
        let Value::Tensor(moment) = slot.get("exp_avg").unwrap() else { panic!("no tensor") };
        // The gradient of a sum is the input, 1; the first moment is a tenth of it.
        for value in moment.to_vec::<f32>() {
            assert!((value - 0.1).abs() < 1e-7);
        }
    }
}

#[test]
fn what_is_tied_in_a_file_is_one_tensor() {
    let whole = load_torch(fixture("tensors.pt"), &Device::reference()).unwrap();
    let tensor = |name: &str| whole.get(name).unwrap().as_tensor().unwrap().clone();
    assert!(tensor("tied").is_same_value(&tensor("tied_too")));
    assert!(!tensor("tied").is_same_value(&tensor("scalar")));
}

fn of_every_dtype(device: &Device) -> Vec<(String, Tensor)> {
    let mut tensors: Vec<(String, Tensor)> = DType::ALL
        .into_iter()
        .map(|dtype| (dtype.name().to_string(), Tensor::arange(0, 6, 1, dtype, device).reshape([2, 3])))
        .collect();
    tensors.push(("scalar".into(), Tensor::ones((), device)));
    tensors.push(("empty".into(), Tensor::zeros([2, 0], device)));
    tensors
}

fn assert_same(got: &Weights, want: &[(String, Tensor)]) {
    assert_eq!(got.tensors().len(), want.len());
    for (name, want) in want {
        let got = got.read(name, want.device()).unwrap();
        assert_eq!((got.dtype(), got.shape()), (want.dtype(), want.shape()), "{name}");
        assert_eq!(got.to_bytes(), want.to_bytes(), "{name}");
    }
}

#[test]
fn what_is_written_is_read_back() {
    let device = Device::reference();
    let tensors = of_every_dtype(&device);
    let value = Value::state_dict(&tensors);
    let path = |name| scratch("round-trip", name);

    save(path("x.safetensors"), &tensors).unwrap();
    save_torch(path("x.pt"), &value).unwrap();
    save_torch_legacy(path("x.legacy.pt"), &value).unwrap();
    for name in ["x.safetensors", "x.pt", "x.legacy.pt"] {
        assert_same(&Weights::open(path(name)).unwrap(), &tensors);
    }
    // NumPy has no bf16.
    save_npz(path("x.npz"), &tensors).unwrap();
    let wide: Vec<_> = tensors
        .iter()
        .map(|(name, x)| (name.clone(), if x.dtype() == DType::BF16 { x.to_dtype(DType::F32) } else { x.clone() }))
        .collect();
    assert_same(&Weights::open(path("x.npz")).unwrap(), &wide);
    std::fs::remove_dir_all(path("x").parent().unwrap()).unwrap();
}

#[test]
fn nested_values_and_ties_survive_in_pytorch_files() {
    let device = Device::reference();
    let x = Tensor::arange(0, 1000, 1, DType::F32, &device);
    let value = Value::Dict(vec![
        ("model".into(), Value::Dict(vec![("a".into(), Value::Tensor(x.clone())), ("b".into(), Value::Tensor(x))])),
        (Key::Int(-3), Value::List(vec![Value::Plain(Plain::None), Value::Plain(Plain::Bool(true))])),
        ("n".into(), Value::Plain(Plain::Int(i64::MIN))),
        ("lr".into(), Value::Plain(Plain::Float(0.1))),
        ("name".into(), Value::Plain(Plain::Text("é\n".into()))),
    ]);
    for name in ["n.pt", "n.legacy.pt"] {
        let path = scratch("nested", name);
        if name == "n.pt" { save_torch(&path, &value) } else { save_torch_legacy(&path, &value) }.unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() < 6000, "tied tensors are stored once");
        let back = load_torch(&path, &device).unwrap();
        let tensor = |name: &str| back.get("model").unwrap().get(name).unwrap().as_tensor().unwrap().clone();
        assert!(tensor("a").is_same_value(&tensor("b")));
        assert_eq!(tensor("a").to_vec::<f32>()[999], 999.0);
        let plain = |key: Key| back.get(key).unwrap().as_plain().unwrap().clone();
        assert_eq!(plain("n".into()), Plain::Int(i64::MIN));
        assert_eq!(plain("lr".into()), Plain::Float(0.1));
        assert_eq!(plain("name".into()), Plain::Text("é\n".into()));
        assert_eq!(back.get(-3).unwrap().as_list().unwrap()[1].as_plain(), Some(&Plain::Bool(true)));
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn quantized_values_are_those_of_the_reference() {
    let device = Device::reference();
    let file = Weights::open(fixture("quants.gguf")).unwrap();
    let expected = Weights::open(fixture("quants.npz")).unwrap();
    assert_eq!(expected.tensors().len(), 10);
    for (name, want) in expected.read_all(&device).unwrap() {
        let got = file.read(&name, &device).unwrap();
        assert_eq!((got.dtype(), got.shape()), (DType::F32, want.shape()), "{name}");
        assert_eq!(got.to_vec::<f32>(), want.to_vec::<f32>(), "{name}");
    }
    assert_eq!(file.read("f32", &device).unwrap().to_vec::<f32>(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(file.read("f16", &device).unwrap().dims(), [4, 1]);
    assert_eq!(file.value("general.architecture"), Some(&Plain::Text("test".into())));
    assert_eq!(file.value("test.count"), Some(&Plain::Int(7)));
    assert_eq!(file.value("test.eps"), Some(&Plain::Float(0.5)));
    assert_eq!(file.value("test.flag"), Some(&Plain::Bool(true)));
    let tokens = ["a", "b", "ü"].map(|token| Plain::Text(token.into()));
    assert_eq!(file.value("test.tokens"), Some(&Plain::List(tokens.into())));
}

#[test]
fn arrays_of_numpy_are_read_in_either_order() {
    let device = Device::reference();
    let array = Weights::open(fixture("fortran.npy")).unwrap().read("array", &device).unwrap();
    assert_eq!(array.dims(), [2, 3]);
    assert_eq!(array.to_vec::<f64>(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let plain = Weights::open(fixture("plain.npz")).unwrap();
    assert_eq!(plain.read("a", &device).unwrap().to_vec::<i16>(), [0, 1, 2, 3, 4, 5]);
    assert!(plain.read("b", &device).unwrap().item::<bool>());
    assert_eq!(plain.read("c", &device).unwrap().dims(), [0, 2]);
}

#[test]
fn weights_in_several_files_are_read_by_their_index() {
    let device = Device::reference();
    let tensors = of_every_dtype(&device);
    let path = scratch("sharded", "model.safetensors.index.json");
    save_sharded(&path, &tensors, 40).unwrap();
    let files = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert!(files > 5, "{files} files");
    assert_same(&Weights::open(&path).unwrap(), &tensors);

    let shard = path.with_file_name(format!("model-00001-of-{:05}.safetensors", files - 1));
    for (index, kind) in [
        (r#"{"weight_map": {"bool": "SHARD", "x": "SHARD"}}"#, ErrorKind::Format),
        (r#"{"weight_map": {"bool": "../SHARD"}}"#, ErrorKind::Format),
        (r#"{"weight_map": {"bool": "/etc/passwd"}}"#, ErrorKind::Format),
        (r#"{"weight_map": {"bool": "model.safetensors.index.json"}}"#, ErrorKind::Format),
        (r#"{"weight_map": {"bool": "SHARD", "bool": "SHARD"}}"#, ErrorKind::Format),
        (r#"{"weight_map": {"bool": "none.safetensors"}}"#, ErrorKind::Io),
        (r#"{"weight_map": ["bool"]}"#, ErrorKind::Format),
        ("{", ErrorKind::Format),
    ] {
        let shard = shard.file_name().unwrap().to_string_lossy();
        std::fs::write(&path, index.replace("SHARD", &shard)).unwrap();
        let error = Weights::open(&path).unwrap_err();
        assert_eq!(error.kind(), kind, "{index}: {error}");
    }
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

// Found by damaging files: the length of a header can look like the beginning of another format.
#[test]
fn safetensors_are_known_by_any_length_of_header() {
    let device = Device::reference();
    let path = scratch("lengths", "x.safetensors");
    // `{`, pickles of protocols 2 and 4, `PK`.
    for length in [0x7b, 0x0280, 0x0480, 0x4b50, 0x7b20, 0x007b_0a20] {
        let mut header = br#"{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#.to_vec();
        header.resize(length, b' ');
        let bytes = [&(length as u64).to_le_bytes()[..], &header, &[7]].concat();
        std::fs::write(&path, &bytes).unwrap();
        for weights in [Weights::open(&path), Weights::from_bytes(bytes)] {
            assert_eq!(weights.unwrap().read("x", &device).unwrap().to_vec::<u8>(), [7], "{length:#x}");
        }
    }
    std::fs::remove_file(path).unwrap();
}
