//! Files that appear whole or not at all.

use crate::{Error, ErrorKind};
use alloc::format;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a file beside its place, makes sure that it is on the disk, and renames it.
pub(crate) fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> Result<(), Error> {
    let temporary = beside(path);
    let written = File::create(&temporary).and_then(|file| {
        let mut writer = BufWriter::new(&file);
        write(&mut writer)?;
        writer.flush()?;
        file.sync_all()
    });
    if let Err(error) = written.and_then(|()| fs::rename(&temporary, path)) {
        // The first error counts; that the leftover cannot be removed either adds nothing.
        let _ = fs::remove_file(&temporary);
        return Err(Error::new(ErrorKind::Io, format!("cannot be written: {error}")).caused_by(error).at(path));
    }
    sync_folder(path);
    Ok(())
}

/// Puts the new name on the disk. Some systems cannot open folders; there, the name follows in its time.
fn sync_folder(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

/// A name beside `path` that no other thread or process writes to.
fn beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}-{}.partial", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    path.with_file_name(name)
}
