//! `cargo xtask fuzz-files`: sound files, damaged at random, through the readers of `fornax-store`.
//!
//! Seeds are the files in `crates/fornax-store/testdata`, and files written here. Damage knows a little of structure: it
//! overwrites numbers with extremes, moves and repeats parts, joins two seeds; archives are put together again with right
//! digests, so that the readers behind them are reached. A run is right if each file is read or refused without a panic,
//! soon, and in memory in proportion. What is not is written to the temporary folder; kept ones belong in
//! `crates/fornax-store/testdata/findings`.

use crate::root;
use fornax_store::{Value, Weights, save, save_npz, save_torch, save_torch_legacy};
use fornax_tensor::{DType, Device, Tensor};
use std::fs;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// The readers, and how the names of their seeds end.
pub const READERS: [(&str, &[&str]); 6] = [
    ("safetensors", &[".safetensors"]),
    ("pt", &[".pt"]),
    ("pt-legacy", &[".legacy.pt"]),
    ("gguf", &[".gguf"]),
    ("npy", &[".npy"]),
    ("npz", &[".npz"]),
];

/// How long one file may take. Readers promise a second; a busy machine gets some more.
const LIMIT: Duration = Duration::from_secs(4);

/// Damages and reads for this long; gives whether nothing went wrong.
pub fn run(reader: &str, time: Duration, seed: u64) -> Result<bool, String> {
    let Some((_, ends)) = READERS.iter().find(|(name, _)| *name == reader) else {
        let names: Vec<&str> = READERS.iter().map(|(name, _)| *name).collect();
        return Err(format!("there is no reader {reader}, only {}", names.join(", ")));
    };
    let seeds = seeds(reader, ends)?;
    let mut random = Random(seed ^ 0x9e37_79b9_7f4a_7c15);
    let start = Instant::now();
    let (mut files, mut read, mut findings, mut slowest) = (0_u64, 0_u64, 0, Duration::ZERO);
    std::panic::set_hook(Box::new(|_| {}));
    while start.elapsed() < time {
        let bytes = damaged(&seeds, &mut random);
        files += 1;
        let begun = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            Weights::from_bytes(bytes.clone()).and_then(|weights| weights.read_all(&Device::reference())).is_ok()
        }));
        let taken = begun.elapsed();
        slowest = slowest.max(taken);
        read += u64::from(matches!(outcome, Ok(true)));
        if outcome.is_err() || taken > LIMIT {
            findings += 1;
            let path = std::env::temp_dir().join(format!("fornax-finding-{reader}-{seed}-{files}"));
            fs::write(&path, &bytes).map_err(|error| format!("{}: {error}", path.display()))?;
            let what = if outcome.is_err() { "panic" } else { "slow" };
            println!("{reader}: {what} after {taken:.1?}: {}", path.display());
        }
    }
    drop(std::panic::take_hook());
    println!(
        "{reader}: {files} files in {:.0?}, {read} of them read, {findings} findings, slowest {slowest:.1?} (seed {seed})",
        start.elapsed()
    );
    Ok(findings == 0)
}

/// Sound files of a reader.
fn seeds(reader: &str, ends: &[&str]) -> Result<Vec<Vec<u8>>, String> {
    let mut seeds = Vec::new();
    let folder = root().join("crates/fornax-store/testdata");
    let io = |error: std::io::Error| format!("{}: {error}", folder.display());
    for file in fs::read_dir(&folder).map_err(io)? {
        let path = file.map_err(io)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_legacy = name.ends_with(".legacy.pt");
        if ends.iter().any(|end| name.ends_with(end)) && is_legacy == (reader == "pt-legacy") {
            seeds.push(fs::read(&path).map_err(io)?);
        }
    }
    let path = std::env::temp_dir().join(format!("fornax-seed-{}-{reader}", std::process::id()));
    let device = Device::reference();
    let tensors: Vec<(String, Tensor)> = DType::ALL
        .into_iter()
        .map(|dtype| (format!("layer.{}", dtype.name()), Tensor::arange(0, 4, 1, dtype, &device).reshape([2, 2])))
        .collect();
    let write = |path: &Path| match reader {
        "safetensors" => save(path, &tensors),
        "pt" => save_torch(path, &Value::state_dict(&tensors)),
        "pt-legacy" => save_torch_legacy(path, &Value::state_dict(&tensors)),
        "npz" => save_npz(path, &tensors),
        _ => Ok(()),
    };
    write(&path).map_err(|error| error.to_string())?;
    if let Ok(bytes) = fs::read(&path) {
        seeds.push(bytes);
        fs::remove_file(&path).map_err(io)?;
    }
    Ok(seeds)
}

/// One of the seeds, damaged in one to five places; if it is an archive, often in its members.
fn damaged(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = random.pick(seeds).clone();
    let other = random.pick(seeds);
    if bytes.starts_with(b"PK")
        && random.below(4) > 0
        && let Some(mut members) = unzipped(&bytes)
    {
        let target = random.below(members.len());
        let donor = members[random.below(members.len())].1.clone();
        damage(&mut members[target].1, &donor, random);
        return zipped(&members);
    }
    damage(&mut bytes, other, random);
    bytes
}

fn damage(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.below(4) {
        // Headers and directories are where damage matters most.
        let spread = if random.below(3) > 0 { bytes.len().min(512) } else { bytes.len() };
        let at = if random.below(4) == 0 { bytes.len() - random.below(spread + 1) } else { random.below(spread + 1) };
        let length = [1, 2, 4, 8, 16, 64][random.below(6)].min(bytes.len() - at);
        match random.below(9) {
            0 => bytes.truncate(at),
            1 => bytes[at..at + length].fill([0, 0xff, 0x7f, 0x80, b'9', b'('][random.below(6)]),
            2 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            3 if at < bytes.len() => bytes[at] = random.next() as u8,
            4 => drop(bytes.drain(at..at + length)),
            5 => {
                let part = bytes[at..at + length].to_vec();
                let count = 1 + random.below(8);
                bytes.splice(at..at, part.repeat(count));
            }
            6 => {
                let from = random.below(other.len() + 1);
                let part = other[from..(from + length * 4).min(other.len())].to_vec();
                bytes.splice(at..at, part);
            }
            7 => {
                let number = [0, 1, 0x7fff_ffff, 0xffff_ffff, 1 << 40, u64::MAX, i64::MAX as u64][random.below(7)];
                let number = number.to_le_bytes();
                let count = length.min(8);
                bytes[at..at + count].copy_from_slice(&number[..count]);
            }
            _ => {
                let from = random.below(bytes.len() - length + 1);
                bytes.copy_within(from..from + length, at);
            }
        }
    }
}

type Members = Vec<(String, Vec<u8>)>;

fn unzipped(bytes: &[u8]) -> Option<Members> {
    let zip = rawzip::ZipArchive::from_slice(bytes).ok()?;
    let mut entries = zip.entries();
    let mut members = Vec::new();
    while let Some(record) = entries.next_entry().ok()? {
        let name = String::from_utf8_lossy(record.file_path().as_ref()).into_owned();
        let data = zip.get_entry(record.wayfinder()).ok()?.data();
        let mut unpacked = Vec::new();
        if record.compression_method() == rawzip::CompressionMethod::STORE {
            unpacked.extend(data);
        } else {
            flate2::read::DeflateDecoder::new(data).read_to_end(&mut unpacked).ok()?;
        }
        members.push((name, unpacked));
    }
    Some(members)
}

fn zipped(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut zip = rawzip::ZipArchiveWriter::new(Vec::new());
    for (name, bytes) in members {
        let (mut entry, config) = zip.new_file(name.as_str()).start().expect("the name came from an archive");
        let mut writer = config.wrap(&mut entry);
        writer.write_all(bytes).expect("a vector takes everything");
        let (_, descriptor) = writer.finish().expect("a vector takes everything");
        entry.finish(descriptor).expect("a vector takes everything");
    }
    zip.finish().expect("a vector takes everything")
}

/// Splitmix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// A number below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}
