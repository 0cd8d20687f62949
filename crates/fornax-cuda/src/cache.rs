//! [`DiskCache`]: compiled kernels on disk, by all that they were made from.
//!
//! A file is written under another name first, so that a reader never sees half of one. A file that is not whole, or of
//! another kernel with the same hash, counts as missing. Trouble with the disk is never an error: the kernel is compiled
//! again.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Marks our files and their layout.
const MAGIC: &[u8; 8] = b"FXCUDA01";

/// Bytes of all files beyond which the oldest go.
const MAX_BYTES: u64 = 1 << 30;

/// Files are deleted down to this share of [`MAX_BYTES`].
const KEPT: u64 = MAX_BYTES / 4 * 3;

/// Compiled kernels on disk.
#[derive(Debug)]
pub struct DiskCache {
    folder: Option<PathBuf>,
    written: AtomicU64,
}

impl DiskCache {
    /// The user's: `FORNAX_CACHE`, or `fornax` in the system's folder for caches. Without one, nothing is kept.
    pub fn user() -> DiskCache {
        let path = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let system = || match (cfg!(windows), cfg!(target_os = "macos")) {
            (true, _) => path("LOCALAPPDATA"),
            (_, true) => env::home_dir().map(|home| home.join("Library/Caches")),
            _ => path("XDG_CACHE_HOME").or_else(|| env::home_dir().map(|home| home.join(".cache"))),
        };
        let root = path("FORNAX_CACHE").or_else(|| Some(system()?.join("fornax")));
        DiskCache::new(root.map(|root| root.join("cuda")))
    }

    /// In a folder of one's own, made when needed; or none.
    pub fn new(folder: Option<PathBuf>) -> DiskCache {
        DiskCache { folder, written: AtomicU64::new(0) }
    }

    /// Where the files lie.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Files and bytes in it.
    pub fn size(&self) -> (usize, u64) {
        let files = self.folder().map(files).unwrap_or_default();
        (files.len(), files.iter().map(|file| file.bytes).sum())
    }

    fn file(&self, key: &str) -> Option<PathBuf> {
        Some(self.folder()?.join(format!("{:032x}.bin", hash(key.as_bytes()))))
    }

    /// What was stored under `key`.
    pub fn read(&self, key: &str) -> Option<Vec<u8>> {
        let bytes = fs::read(self.file(key)?).ok()?;
        let rest = bytes.strip_prefix(MAGIC)?;
        let (sum, rest) = rest.split_at_checked(16)?;
        if hash(rest).to_le_bytes() != sum {
            return None;
        }
        let (len, rest) = rest.split_at_checked(8)?;
        let len = usize::try_from(u64::from_le_bytes(len.try_into().ok()?)).ok()?;
        let (stored, value) = rest.split_at_checked(len)?;
        (stored == key.as_bytes()).then(|| value.to_vec())
    }

    /// Stores `value` under `key`, if the disk lets it.
    pub fn write(&self, key: &str, value: &[u8]) {
        let Some(file) = self.file(key) else { return };
        let mut rest = Vec::with_capacity(8 + key.len() + value.len());
        rest.extend_from_slice(&(key.len() as u64).to_le_bytes());
        rest.extend_from_slice(key.as_bytes());
        rest.extend_from_slice(value);
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        if number == 0 {
            self.prepare();
        }
        let part = file.with_extension(format!("{}-{number}.part", std::process::id()));
        let stored = fs::File::create(&part)
            .and_then(|mut open| {
                open.write_all(MAGIC)?;
                open.write_all(&hash(&rest).to_le_bytes())?;
                open.write_all(&rest)
            })
            .and_then(|()| fs::rename(&part, &file));
        if stored.is_err() {
            let _ = fs::remove_file(&part);
        }
    }

    /// Makes the folder, and room in it.
    fn prepare(&self) {
        let Some(folder) = self.folder() else { return };
        let _ = fs::create_dir_all(folder);
        let mut files = files(folder);
        let mut bytes: u64 = files.iter().map(|file| file.bytes).sum();
        if bytes <= MAX_BYTES {
            return;
        }
        files.sort_by_key(|file| file.changed);
        for file in files {
            if bytes <= KEPT {
                break;
            }
            if fs::remove_file(&file.path).is_ok() {
                bytes -= file.bytes;
            }
        }
    }
}

struct File {
    path: PathBuf,
    bytes: u64,
    changed: Option<SystemTime>,
}

fn files(folder: &Path) -> Vec<File> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let file = |entry: fs::DirEntry| {
        let about = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(File { path: entry.path(), bytes: about.len(), changed: about.modified().ok() })
    };
    entries.flatten().filter_map(file).collect()
}

/// FNV-1a of 128 bits: stable over releases, which the hashers of the standard library are not.
pub(crate) fn hash(bytes: &[u8]) -> u128 {
    let start = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    bytes
        .iter()
        .fold(start, |hash: u128, &byte| (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(name: &str) -> DiskCache {
        let folder = env::temp_dir().join(format!("fornax-cuda-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        DiskCache::new(Some(folder))
    }

    #[test]
    fn the_hash_is_that_of_the_standard() {
        // The empty string and "a": draft-eastlake-fnv.
        assert_eq!(hash(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(hash(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }

    #[test]
    fn what_was_written_is_read_again_by_another_process() {
        let cache = cache("read");
        assert_eq!(cache.read("key"), None);
        cache.write("key", b"value");
        cache.write("empty", b"");
        let other = DiskCache::new(cache.folder().map(Path::to_path_buf));
        assert_eq!(other.read("key").unwrap(), b"value");
        assert_eq!(other.read("empty").unwrap(), b"");
        assert_eq!(other.read("other"), None);
        assert_eq!(other.size().0, 2);
        fs::remove_dir_all(cache.folder().unwrap()).unwrap();
    }

    #[test]
    fn a_damaged_file_counts_as_missing_and_is_replaced() {
        let cache = cache("damaged");
        cache.write("key", b"some value");
        let file = cache.file("key").unwrap();
        let whole = fs::read(&file).unwrap();
        for len in 0..whole.len() {
            fs::write(&file, &whole[..len]).unwrap();
            assert_eq!(cache.read("key"), None, "cut to {len}");
        }
        for place in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[place] ^= 0x40;
            fs::write(&file, bytes).unwrap();
            assert_eq!(cache.read("key"), None, "byte {place}");
        }
        cache.write("key", b"some value");
        assert_eq!(cache.read("key").unwrap(), b"some value");
        fs::remove_dir_all(cache.folder().unwrap()).unwrap();
    }

    #[test]
    fn a_file_of_another_key_counts_as_missing() {
        let cache = cache("other");
        cache.write("key", b"value");
        fs::copy(cache.file("key").unwrap(), cache.file("other").unwrap()).unwrap();
        assert_eq!(cache.read("other"), None);
        fs::remove_dir_all(cache.folder().unwrap()).unwrap();
    }

    #[test]
    fn without_a_folder_nothing_is_kept_and_nothing_fails() {
        let cache = DiskCache::new(None);
        cache.write("key", b"value");
        assert_eq!(cache.read("key"), None);
        let folder = env::temp_dir().join(format!("fornax-cuda-file-{}", std::process::id()));
        fs::write(&folder, b"a file where the folder should be").unwrap();
        let cache = DiskCache::new(Some(folder.clone()));
        cache.write("key", b"value");
        assert_eq!(cache.read("key"), None);
        fs::remove_file(folder).unwrap();
    }
}
