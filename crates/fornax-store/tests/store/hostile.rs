//! Files that mean harm: each is a typed error, soon and in little memory.

use crate::fixture;
use fornax_store::{ErrorKind, Weights};
use fornax_tensor::Device;
use std::time::{Duration, Instant};

/// Opens the bytes and reads all tensors. It must take less than a second.
#[track_caller]
fn read(bytes: Vec<u8>) -> Result<(), fornax_store::Error> {
    let start = Instant::now();
    let result = Weights::from_bytes(bytes).and_then(|weights| weights.read_all(&Device::reference()));
    let taken = start.elapsed();
    assert!(taken < Duration::from_secs(1), "took {taken:?}");
    result.map(drop)
}

#[track_caller]
fn refused(bytes: Vec<u8>, kind: ErrorKind, message: &str) {
    let error = read(bytes).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(message), "{error}");
}

/// A PyTorch file of the older format with this object, and no storages.
fn legacy(object: &[u8]) -> Vec<u8> {
    legacy_with(object, &[], b"\x80\x02}.")
}

fn legacy_with(object: &[u8], storages: &[u8], machine: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.".to_vec();
    bytes.extend(machine);
    bytes.extend(object);
    bytes.extend(if storages.is_empty() { &b"\x80\x02]."[..] } else { b"\x80\x02]X\x01\0\0\0ka." });
    bytes.extend(storages);
    bytes
}

/// A dict with a tensor `x` of storage `k` of four floats.
fn tensor(offset: u8, sizes: &[u8], strides: &[u8]) -> Vec<u8> {
    let mut object = b"\x80\x02}X\x01\0\0\0xctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0kX\x03\0\0\0cpuK\x04tQK".to_vec();
    object.push(offset);
    object.extend(sizes);
    object.extend(strides);
    object.extend(b"\x89}tRs.");
    let mut storage = 4_u64.to_le_bytes().to_vec();
    storage.extend([0; 16]);
    legacy_with(&object, &storage, b"\x80\x02}.")
}

#[test]
fn a_sound_file_of_that_kind_is_read() {
    read(legacy(b"\x80\x02}.")).unwrap();
    read(tensor(0, b"K\x02K\x02\x86", b"K\x02K\x01\x86")).unwrap();
    read(tensor(1, b"K\x02\x85", b"K\x02\x85")).unwrap();
}

#[test]
fn views_that_leave_their_storage_are_refused() {
    for (offset, sizes, strides) in [
        (0, &b"K\x05\x85"[..], &b"K\x01\x85"[..]),
        (1, b"K\x04\x85", b"K\x01\x85"),
        (0, b"K\x02K\x02\x86", b"K\x03K\x01\x86"),
        (0, b"K\x02\x85", b"J\xff\xff\xff\x7f\x85"),
        (0, b"K\x02\x85", b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85"),
    ] {
        refused(tensor(offset, sizes, strides), ErrorKind::Format, "leaves its storage k of 16 bytes");
    }
    for (sizes, strides) in [
        (&b"J\xff\xff\xff\xff\x85"[..], &b"K\x01\x85"[..]),
        (b"K\x02\x85", b"J\xff\xff\xff\xff\x85"),
        (b"K\x02\x85", b")"),
        (b"N", b"N"),
        (b"N\x85", b"K\x01\x85"),
    ] {
        refused(tensor(0, sizes, strides), ErrorKind::Format, "is not what it should be");
    }
}

#[test]
fn elements_repeated_without_end_are_refused() {
    // 2³¹ − 1 times the same element, and more than can be counted.
    refused(tensor(0, b"J\xff\xff\xff\x7f\x85", b"K\x00\x85"), ErrorKind::Limit, "tensors of 8589934588 bytes");
    let sizes = b"J\xff\xff\xff\x7fJ\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x87";
    refused(tensor(0, sizes, b"K\x00K\x00K\x00\x87"), ErrorKind::Format, "more elements than can be counted");
}

// burn#4965: each tuple holds the one before it twice.
#[test]
fn tuples_that_double_are_refused() {
    let mut object = b"\x80\x02}X\x01\0\0\0xNq\x00".to_vec();
    for i in 0..40 {
        object.extend([b'0', b'h', i, b'h', i, 0x86, b'q', i + 1]);
    }
    object.extend(b"s.");
    refused(legacy(&object), ErrorKind::Limit, "values that hold one another");
}

#[test]
fn values_that_hold_themselves_are_refused() {
    refused(legacy(b"\x80\x02]q\x00h\x00a."), ErrorKind::Limit, "nested deeper than 100, or in itself");
    refused(legacy(b"\x80\x02}q\x00K\x01h\x00s."), ErrorKind::Limit, "nested deeper than 100, or in itself");
}

#[test]
fn deep_nesting_is_refused() {
    let mut object = b"\x80\x02".to_vec();
    object.extend([b']'; 100_000]);
    object.extend([b'a'; 99_999]);
    object.push(b'.');
    refused(legacy(&object), ErrorKind::Limit, "nested deeper than 100");
    // Parameters of parameters.
    let mut object = b"\x80\x02}X\x01\0\0\0xNq\x00".to_vec();
    for _ in 0..200 {
        object.extend(b"q\x010ctorch._utils\n_rebuild_parameter\nh\x01\x88N\x87R");
    }
    object.extend(b"s.");
    refused(legacy(&object), ErrorKind::Limit, "nested deeper than 100");
}

#[test]
fn two_values_of_one_name_are_refused() {
    refused(legacy(b"\x80\x02}(K\x01NK\x01Nu."), ErrorKind::Format, "1: two values have this key");
    // `a.b`, and `b` within `a`.
    let object = b"\x80\x02}(X\x03\0\0\0a.bNX\x01\0\0\0a}X\x01\0\0\0bNsu.";
    refused(legacy(object), ErrorKind::Format, "a.b: two entries have this name");
}

#[test]
fn code_is_refused_by_name() {
    refused(legacy(b"\x80\x02cposix\nsystem\nX\x02\0\0\0ls\x85R."), ErrorKind::Unsupported, "refers to posix.system");
    refused(legacy(b"\x80\x02\xee."), ErrorKind::Format, "there is no instruction 0xee");
}

#[test]
fn big_endian_files_are_refused() {
    let machine = b"\x80\x02}X\x0d\0\0\0little_endian\x89s.";
    refused(legacy_with(b"\x80\x02}.", &[], machine), ErrorKind::Unsupported, "big-endian machine");

    let mut zip = std::fs::read(fixture("tensors.pt")).unwrap();
    let at = zip.windows(6).position(|bytes| bytes == b"little").unwrap();
    zip[at..at + 6].copy_from_slice(b"big   ");
    // Another text has another digest.
    refused(zip, ErrorKind::Format, "byteorder: wrong digest");
    refused(
        stored_zip(&[("a/data.pkl", b"\x80\x02}."), ("a/byteorder", b"big")]),
        ErrorKind::Unsupported,
        "big-endian",
    );

    let mut gguf = std::fs::read(fixture("quants.gguf")).unwrap();
    gguf[4..8].reverse();
    refused(gguf, ErrorKind::Unsupported, "a big-endian GGUF file");
}

#[test]
fn a_storage_that_claims_more_than_the_file_is_refused() {
    let mut bytes = tensor(0, b"K\x04\x85", b"K\x01\x85");
    let numel = bytes.len() - 24;
    bytes[numel..numel + 8].fill(0xff);
    refused(bytes, ErrorKind::Format, "storage k: truncated");
}

/// A zip archive of stored members.
fn stored_zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    zip(members.iter().map(|&(name, bytes)| Member {
        name,
        bytes,
        method: 0,
        size: bytes.len() as u32,
        crc: crc(bytes),
    }))
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

struct Member<'a> {
    name: &'a str,
    bytes: &'a [u8],
    method: u16,
    size: u32,
    crc: u32,
}

fn zip<'a>(members: impl IntoIterator<Item = Member<'a>>) -> Vec<u8> {
    let (mut out, mut directory, mut count) = (Vec::new(), Vec::new(), 0_u16);
    for member in members {
        let mut header = Vec::new();
        header.extend([20, 0, 0, 0]);
        header.extend(member.method.to_le_bytes());
        header.extend([0; 4]);
        header.extend(member.crc.to_le_bytes());
        header.extend((member.bytes.len() as u32).to_le_bytes());
        header.extend(member.size.to_le_bytes());
        header.extend((member.name.len() as u16).to_le_bytes());
        header.extend([0; 2]);
        directory.extend(b"PK\x01\x02\x14\0");
        directory.extend(&header);
        directory.extend([0; 10]);
        directory.extend((out.len() as u32).to_le_bytes());
        directory.extend(member.name.as_bytes());
        out.extend(b"PK\x03\x04");
        out.extend(&header);
        out.extend(member.name.as_bytes());
        out.extend(member.bytes);
        count += 1;
    }
    let start = out.len() as u32;
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend(count.to_le_bytes());
    out.extend(count.to_le_bytes());
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend([0; 2]);
    out
}

/// An NPY file of bytes.
fn npy(count: usize, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({count},), }}\n");
    let mut bytes = b"\x93NUMPY\x01\0".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

#[test]
fn archives_that_are_not_sound_are_refused() {
    read(stored_zip(&[("a.npy", &npy(2, &[1, 2]))])).unwrap();
    let array = npy(2, &[1, 2]);
    let twice = stored_zip(&[("a.npy", &array), ("a.npy", &array)]);
    refused(twice, ErrorKind::Format, "member a.npy: two members have this name");
    refused(stored_zip(&[("a.txt", b"x")]), ErrorKind::Format, "not an NPZ file");
    refused(stored_zip(&[("a.npy", &npy(3, &[1, 2]))]), ErrorKind::Format, "u8[3] is not what the member holds");
    refused(stored_zip(&[("x/data.pkl", b"\x80\x02")]), ErrorKind::Format, "truncated");
    let of = |method, size, crc| zip([Member { name: "a.npy", bytes: &array, method, size, crc }]);
    let (size, sum) = (array.len() as u32, crc(&array));
    refused(of(0, size, sum ^ 1), ErrorKind::Format, "member a.npy: wrong digest");
    refused(of(0, size + 1, sum), ErrorKind::Format, "another size than its own");
    refused(of(12, size, sum), ErrorKind::Unsupported, "compressed by method");
    refused(of(8, size, sum), ErrorKind::Format, "a: not an NPY file");
    // Two entries of the directory for the same bytes.
    let mut overlapping = stored_zip(&[("a.npy", &array), ("b.npy", &array)]);
    let second = overlapping.windows(4).rposition(|bytes| bytes == b"PK\x01\x02").unwrap();
    overlapping[second + 42..second + 46].fill(0);
    refused(overlapping, ErrorKind::Format, "");
}

#[test]
fn archives_that_swell_are_refused() {
    // 1 GiB of zeros in 1 MiB, by its claim or by its contents.
    let mut zeros = npy(1 << 30, &[]);
    let start = zeros.len();
    zeros.resize(start + (64 << 20), 0);
    let packed = deflated(&zeros[start..]);
    let bomb = |size| zip([Member { name: "a.npy", bytes: &packed, method: 8, size, crc: 0 }]);
    refused(bomb(u32::MAX - 1), ErrorKind::Limit, "swells to 4294967294");
    // It says that it is small, and is not.
    let head = npy(16, &[]);
    let mut liar = head.clone();
    liar.resize(64 << 20, 0);
    let packed = deflated(&liar);
    let size = head.len() as u32 + 16;
    refused(
        zip([Member { name: "a.npy", bytes: &packed, method: 8, size, crc: 0 }]),
        ErrorKind::Format,
        "unpacks to another size",
    );
}

fn deflated(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A GGUF file with these numbers of tensors and values, and what follows.
fn gguf(n_tensors: u64, n_values: u64, rest: &[u8]) -> Vec<u8> {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(n_tensors.to_le_bytes());
    bytes.extend(n_values.to_le_bytes());
    bytes.extend(rest);
    bytes
}

/// What a GGUF file says of an `f32` tensor `x`.
fn info(sizes: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let mut bytes = b"\x01\0\0\0\0\0\0\0x".to_vec();
    bytes.extend((sizes.len() as u32).to_le_bytes());
    bytes.extend(sizes.iter().flat_map(|size| size.to_le_bytes()));
    bytes.extend(kind.to_le_bytes());
    bytes.extend(offset.to_le_bytes());
    bytes
}

#[test]
fn gguf_files_that_are_not_sound_are_refused() {
    let with_data = |info: &[u8]| {
        let mut bytes = gguf(1, 0, info);
        bytes.resize(bytes.len().next_multiple_of(32) + 64, 0);
        bytes
    };
    read(with_data(&info(&[4, 4], 0, 0))).unwrap();
    refused(with_data(&info(&[4, 5], 0, 0)), ErrorKind::Format, "leave the data of 64 bytes");
    refused(with_data(&info(&[4], 0, 64)), ErrorKind::Format, "leave the data of 64 bytes");
    refused(with_data(&info(&[4], 0, u64::MAX - 31)), ErrorKind::Format, "leave the data");
    refused(with_data(&info(&[4], 0, 4)), ErrorKind::Format, "leave the data");
    refused(with_data(&info(&[u64::MAX, 2], 0, 0)), ErrorKind::Format, "not whole blocks");
    refused(with_data(&info(&[33], 2, 0)), ErrorKind::Format, "not whole blocks");
    refused(with_data(&info(&[1, 1, 1, 1, 1], 0, 0)), ErrorKind::Format, "5 dims");
    refused(with_data(&info(&[4], 99, 0)), ErrorKind::Unsupported, "values of kind 99");
    refused(gguf(u64::MAX, 0, &[]), ErrorKind::Format, "truncated");
    refused(gguf(0, u64::MAX, &[]), ErrorKind::Format, "truncated");
    let twice = [info(&[4], 0, 0), info(&[4], 0, 32)].concat();
    let mut bytes = gguf(2, 0, &twice);
    bytes.resize(bytes.len().next_multiple_of(32) + 64, 0);
    refused(bytes, ErrorKind::Format, "two tensors have this name");
    // Values: a name of any length, a list of lists of lists, a list without end.
    refused(gguf(0, 1, &[0xff; 16]), ErrorKind::Format, "truncated");
    let mut nested = b"\x01\0\0\0\0\0\0\0v\x09\0\0\0".to_vec();
    for _ in 0..1000 {
        nested.extend(b"\x09\0\0\0\x01\0\0\0\0\0\0\0");
    }
    refused(gguf(0, 1, &nested), ErrorKind::Limit, "nested deeper");
    let long = b"\x01\0\0\0\0\0\0\0v\x09\0\0\0\0\0\0\0\x00\x09\x3d\0\0\0\0\0";
    refused(gguf(0, 1, long), ErrorKind::Format, "truncated: a list of 4000000 values");
    let longer = b"\x01\0\0\0\0\0\0\0v\x09\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\0\0\0";
    refused(gguf(0, 1, longer), ErrorKind::Limit, "lists of more than");
    let alignment = b"\x11\0\0\0\0\0\0\0general.alignment\x04\0\0\0\0\0\0\0";
    refused(gguf(0, 1, alignment), ErrorKind::Format, "is no alignment");
}

#[test]
fn safetensors_with_two_entries_of_one_name_are_refused() {
    let header = br#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.extend([0; 4]);
    refused(bytes, ErrorKind::Format, "two entries are called x");
    refused(vec![0xff; 100], ErrorKind::Format, "a header of 18446744073709551615 bytes");
}

#[test]
fn every_sound_file_cut_anywhere_is_refused() {
    for name in ["tensors.pt", "tensors.legacy.pt", "trained.pt", "quants.gguf", "fortran.npy", "plain.npz"] {
        let bytes = std::fs::read(fixture(name)).unwrap();
        // The last bytes of a GGUF file may be padding.
        let needed = if name.ends_with("gguf") { bytes.len() - 31 } else { bytes.len() };
        for end in 0..needed {
            let error = read(bytes[..end].to_vec()).expect_err(&format!("{name} cut at {end}"));
            assert!(matches!(error.kind(), ErrorKind::Format), "{name} cut at {end}: {error}");
        }
    }
}

/// Findings of `cargo xtask fuzz-files`, each a file that once went wrong.
#[test]
fn findings_stay_fixed() {
    let Ok(findings) = std::fs::read_dir(fixture("findings")) else { return };
    for finding in findings {
        // Either is fine: no panic, no long time.
        drop(read(std::fs::read(finding.unwrap().path()).unwrap()));
    }
}
