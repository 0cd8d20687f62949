//! What is not asked for is not read: alone in its program, since it measures the program's memory.
#![cfg(target_os = "linux")]

use fornax_store::Weights;
use fornax_tensor::Device;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};

const GIB: u64 = 1 << 30;
const ROW: u64 = 1 << 20;

/// The largest memory the program has had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn one_tensor_of_a_gigabyte_takes_its_own_memory_only() {
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
