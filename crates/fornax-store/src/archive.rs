//! Zip archives, as PyTorch and NumPy write them: members by name, checked when they are read.

use crate::source::Source;
use crate::{Error, ErrorKind};
use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};
use flate2::Crc;
use flate2::read::DeflateDecoder;
use rawzip::{CompressionMethod, Header, ZipArchive, ZipArchiveWriter};
use std::io::{Read, Write};

/// How an archive that is not empty begins.
pub(crate) const MAGIC: &[u8] = b"PK\x03\x04";
/// How many times longer than the file all members may be, beyond [`SLACK`]. Weights rarely halve; arrays of zeros shrink
/// by a thousand.
const MAX_RATIO: u64 = 128;
const SLACK: u64 = 64 << 20;
const MAX_MEMBERS: u64 = 1 << 20;
/// Where PyTorch lets the data of members begin, so that mapped storages are aligned.
const ALIGNMENT: u64 = 64;

/// The members of a zip archive. None is read yet.
pub(crate) struct Archive {
    source: Arc<Source>,
    members: BTreeMap<String, Member>,
}

struct Member {
    range: Range<usize>,
    is_deflated: bool,
    size: usize,
    crc: u32,
    is_checked: AtomicBool,
}

impl Archive {
    /// Reads the directory. Members of one name, that overlap, are encrypted or swell too much are refused.
    pub fn open(source: Arc<Source>) -> Result<Archive, Error> {
        let mut members = BTreeMap::new();
        let zip = ZipArchive::from_slice(&source[..]).map_err(|error| damaged(&error))?;
        if zip.entries_hint() > MAX_MEMBERS {
            return Err(Error::new(ErrorKind::Limit, format!("{} members in a zip archive", zip.entries_hint())));
        }
        let mut entries = zip.entries();
        let (mut ranges, mut total, mut count) = (Vec::new(), 0_u64, 0);
        while let Some(record) = entries.next_entry().map_err(|error| damaged(&error))? {
            count += 1;
            let name = String::from_utf8_lossy(record.file_path().as_ref()).to_string();
            if record.is_dir() {
                continue;
            }
            let fail = |kind, what: &str| Err(Error::new(kind, format!("member {name}: {what}")));
            let is_deflated = match record.compression_method() {
                CompressionMethod::STORE => false,
                CompressionMethod::DEFLATE => true,
                method => return fail(ErrorKind::Unsupported, &format!("compressed by method {method:?}")),
            };
            if record.flags().is_encrypted() {
                return fail(ErrorKind::Unsupported, "encrypted");
            }
            let entry = zip.get_entry(record.wayfinder()).map_err(|error| damaged(&error))?;
            let (start, end) = entry.compressed_data_range();
            let size = record.uncompressed_size_hint();
            if !is_deflated && end - start != size {
                return fail(ErrorKind::Format, "stored in another size than its own");
            }
            total = total.saturating_add(size);
            ranges.push((start, end));
            let member = Member {
                range: start as usize..end as usize,
                is_deflated,
                size: usize::try_from(size).unwrap_or(usize::MAX),
                crc: record.crc32(),
                is_checked: AtomicBool::new(false),
            };
            if members.contains_key(&name) {
                return fail(ErrorKind::Format, "two members have this name");
            }
            members.insert(name, member);
        }
        if count != zip.entries_hint() {
            let message = format!("a zip archive of {} members, with {count} in its directory", zip.entries_hint());
            return Err(Error::new(ErrorKind::Format, message));
        }
        if total > (source.len() as u64).saturating_mul(MAX_RATIO).saturating_add(SLACK) {
            let message = format!("a zip archive of {} bytes that swells to {total}", source.len());
            return Err(Error::new(ErrorKind::Limit, message));
        }
        ranges.sort_unstable();
        if ranges.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return Err(Error::new(ErrorKind::Format, "members of a zip archive overlap"));
        }
        Ok(Archive { source, members })
    }

    /// The length of the whole file, in bytes.
    pub fn file_len(&self) -> usize {
        self.source.len()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.keys().map(String::as_str)
    }

    /// The size of a member, once unpacked.
    pub fn size(&self, name: &str) -> Option<usize> {
        self.members.get(name).map(|member| member.size)
    }

    /// The first bytes of a member, at most `limit`; unchecked, for its header.
    pub fn head(&self, name: &str, limit: usize) -> Result<Vec<u8>, Error> {
        let (member, bytes) = self.member(name)?;
        let mut head = Vec::new();
        let count = if member.is_deflated {
            DeflateDecoder::new(bytes).take(limit as u64).read_to_end(&mut head)
        } else {
            bytes.take(limit as u64).read_to_end(&mut head)
        };
        count.map_err(|error| Error::new(ErrorKind::Format, format!("member {name}: {error}")).caused_by(error))?;
        Ok(head)
    }

    /// The bytes of a member. Its digest is checked, once if the bytes are in the file as they are.
    pub fn read(&self, name: &str) -> Result<Cow<'_, [u8]>, Error> {
        let (member, bytes) = self.member(name)?;
        if !member.is_deflated {
            if !member.is_checked.load(Ordering::Relaxed) {
                check(name, bytes, member.crc)?;
                member.is_checked.store(true, Ordering::Relaxed);
            }
            return Ok(Cow::Borrowed(bytes));
        }
        // No room is reserved for a size that the file claims; what is longer is cut off behind it.
        let mut unpacked = Vec::new();
        DeflateDecoder::new(bytes)
            .take((member.size as u64).saturating_add(1))
            .read_to_end(&mut unpacked)
            .map_err(|error| Error::new(ErrorKind::Format, format!("member {name}: {error}")).caused_by(error))?;
        if unpacked.len() != member.size {
            let message = format!("member {name}: unpacks to another size than {}", member.size);
            return Err(Error::new(ErrorKind::Format, message));
        }
        check(name, &unpacked, member.crc)?;
        Ok(Cow::Owned(unpacked))
    }

    fn member(&self, name: &str) -> Result<(&Member, &[u8]), Error> {
        let Some(member) = self.members.get(name) else {
            return Err(Error::new(ErrorKind::Format, format!("the archive has no member {name}")));
        };
        Ok((member, self.source.slice(member.range.clone())?))
    }
}

fn check(name: &str, bytes: &[u8], crc: u32) -> Result<(), Error> {
    let mut digest = Crc::new();
    digest.update(bytes);
    if digest.sum() == crc {
        return Ok(());
    }
    let message = format!("member {name}: wrong digest: {:08x} in place of {crc:08x}", digest.sum());
    Err(Error::new(ErrorKind::Format, message))
}

fn damaged(error: &rawzip::Error) -> Error {
    Error::new(ErrorKind::Format, format!("not a sound zip archive: {error}"))
}

/// Writes members one after another, stored and aligned.
pub(crate) struct ArchiveWriter<W> {
    zip: ZipArchiveWriter<W>,
}

impl<W: Write> ArchiveWriter<W> {
    pub fn new(writer: W) -> ArchiveWriter<W> {
        ArchiveWriter { zip: ZipArchiveWriter::new(writer) }
    }

    pub fn member(&mut self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        // A local header: 30 bytes, the name, and the padding as an extra field with 4 bytes of its own.
        let unpadded = self.zip.stream_offset() + 30 + name.len() as u64 + 4;
        let padding = unpadded.next_multiple_of(ALIGNMENT) - unpadded;
        let fail = |error: rawzip::Error| std::io::Error::other(format!("{error}"));
        let (mut entry, config) = self
            .zip
            .new_file(name)
            .extra_field(
                rawzip::extra_fields::ExtraFieldId::new(0x4246),
                &[b'Z'; 64][..padding as usize],
                Header::LOCAL,
            )
            .map_err(fail)?
            .start()
            .map_err(fail)?;
        let mut writer = config.wrap(&mut entry);
        writer.write_all(bytes)?;
        let (_, descriptor) = writer.finish().map_err(fail)?;
        entry.finish(descriptor).map_err(fail)?;
        Ok(())
    }

    pub fn finish(self) -> std::io::Result<W> {
        self.zip.finish().map_err(|error| std::io::Error::other(format!("{error}")))
    }
}
