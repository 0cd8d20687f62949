//! What is not asked for is not read: alone in its program, since it measures the program's memory.
#![cfg(target_os = "linux")]

use fornax_nn::{Linear, Module};
use fornax_store::{ModuleFiles, Value, Weights, save_torch};
use fornax_tensor::Device;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Mutex;

/// One test at a time.
static ALONE: Mutex<()> = Mutex::new(());

const GIB: u64 = 1 << 30;
const ROW: u64 = 1 << 20;

/// Forgets the largest memory that the program has had.
fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// The largest memory the program has had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn one_tensor_of_a_gigabyte_takes_its_own_memory_only() {
    let _alone = ALONE.lock().unwrap();
    let path = std::env::temp_dir().join(format!("fornax-store-{}-memory.safetensors", std::process::id()));
    let entries: Vec<String> = (0..GIB / ROW)
        .map(|i| format!(r#""t{i}":{{"dtype":"U8","shape":[{ROW}],"data_offsets":[{},{}]}}"#, i * ROW, (i + 1) * ROW))
        .collect();
    let header = format!("{{{}}}", entries.join(","));
    let mut file = File::create(&path).unwrap();
    file.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    let start = 8 + header.len() as u64;
    // A hole, but for one byte: the file takes no room on the disk.
    file.seek(SeekFrom::Start(start + 500 * ROW)).unwrap();
    file.write_all(&[9]).unwrap();
    file.set_len(start + GIB).unwrap();
    drop((file, entries, header));

    let device = Device::reference();
    forget_peak();
    let before = peak();
    let weights = Weights::open(&path).unwrap();
    assert_eq!(weights.tensors().len(), 1024);
    let tensor = weights.read("t500", &device).unwrap();
    assert_eq!(tensor.to_vec::<u8>()[..2], [9, 0]);
    let taken = peak().saturating_sub(before);
    println!("{:.1} MiB more for 1 MiB of a file of 1 GiB", taken as f64 / ROW as f64);
    assert!(taken < 16 * ROW, "{taken} bytes more");
    std::fs::remove_file(path).unwrap();
}

// burn#1270: 32 GB for a file of 45 MB.
#[test]
fn a_checkpoint_of_pytorch_takes_twice_its_size_at_most() {
    let _alone = ALONE.lock().unwrap();
    let path = std::env::temp_dir().join(format!("fornax-store-{}-memory.pt", std::process::id()));
    let device = Device::reference();
    let mut model = Linear::new(3500, 3500, &device);
    save_torch(&path, &Value::state_dict(&model.state_dict())).unwrap();
    let size = std::fs::metadata(&path).unwrap().len();
    forget_peak();
    let before = peak();
    model.load(&path).unwrap();
    device.sync().unwrap();
    let taken = peak().saturating_sub(before);
    println!("{:.1} MiB more for a file of {:.1} MiB", taken as f64 / ROW as f64, size as f64 / ROW as f64);
    assert!(taken <= 2 * size, "{taken} bytes for a file of {size}");
    std::fs::remove_file(path).unwrap();
}
