//! IDX files, good and hostile: every flaw is an error of its kind, and none makes memory grow.

use std::io::{self, Read};

use fornax_data::idx::{Elements, Idx};
use fornax_data::{Error, ErrorKind};

const LIMIT: u64 = 1 << 20;

fn header(code: u8, dims: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0, 0, code, dims.len() as u8];
    bytes.extend(dims.iter().flat_map(|dim| dim.to_be_bytes()));
    bytes
}

fn with_data(mut header: Vec<u8>, data: &[u8]) -> Vec<u8> {
    header.extend(data);
    header
}

#[track_caller]
fn check_error(bytes: &[u8], limit: u64, kind: ErrorKind, offset: Option<u64>) -> Error {
    let error = Idx::read(bytes, limit).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (kind, offset), "{error}");
    error
}

#[test]
fn write_then_read_is_identity() {
    for array in [
        Idx::new([2, 3], Elements::U8(vec![0, 1, 2, 253, 254, 255])),
        Idx::new([3], Elements::I8(vec![-128, 0, 127])),
        Idx::new([1, 2, 1], Elements::I16(vec![i16::MIN, 258])),
        Idx::new([2], Elements::I32(vec![i32::MAX, -2])),
        Idx::new([2, 2], Elements::F32(vec![0.5, -0.0, f32::INFINITY, f32::MIN_POSITIVE])),
        Idx::new([1], Elements::F64(vec![std::f64::consts::PI])),
        Idx::new([], Elements::U8(vec![7])),
        Idx::new([4, 0, 9], Elements::F64(vec![])),
    ] {
        let mut bytes = vec![];
        array.write(&mut bytes).unwrap();
        assert_eq!(Idx::read(&bytes[..], LIMIT).unwrap(), array);
        #[cfg(feature = "gzip")]
        assert_eq!(Idx::read(&gzip(&bytes)[..], LIMIT).unwrap(), array);
    }
}

#[test]
fn elements_are_big_endian() {
    let bytes = with_data(header(0x0C, &[2]), &[0, 0, 1, 2, 0xff, 0xff, 0xff, 0xfe]);
    assert_eq!(Idx::read(&bytes[..], LIMIT).unwrap().elements(), &Elements::I32(vec![258, -2]));
}

#[test]
fn wrong_headers_are_errors() {
    check_error(b"", LIMIT, ErrorKind::Truncated, Some(0));
    check_error(&[0, 0, 8], LIMIT, ErrorKind::Truncated, Some(3));
    check_error(b"PK\x03\x04....", LIMIT, ErrorKind::BadMagic, Some(0));
    check_error(&[0, 1, 8, 1, 0, 0, 0, 0], LIMIT, ErrorKind::BadMagic, Some(0));
    check_error(&header(0x0A, &[1]), LIMIT, ErrorKind::UnknownType, Some(2));
    check_error(&[0, 0, 8, 255, 1, 1, 1, 1], LIMIT, ErrorKind::Truncated, Some(8));
}

#[test]
fn declared_sizes_are_checked_before_reading() {
    check_error(&header(8, &[u32::MAX; 3]), u64::MAX, ErrorKind::Overflow, Some(4));
    check_error(&header(8, &[u32::MAX; 255]), u64::MAX, ErrorKind::Overflow, Some(4));
    check_error(&header(0x0E, &[1 << 31, 1 << 30]), u64::MAX, ErrorKind::Overflow, Some(4));
    check_error(&header(8, &[1 << 20, 2]), LIMIT, ErrorKind::TooLarge, Some(4));
    check_error(&header(0x0D, &[1 << 19]), LIMIT, ErrorKind::TooLarge, Some(4));
    // Exactly at the limit.
    let bytes = with_data(header(0x0D, &[2]), &[0; 8]);
    assert!(Idx::read(&bytes[..], 8).is_ok());
    check_error(&bytes, 7, ErrorKind::TooLarge, Some(4));
    // Zero times anything is zero, in any order.
    assert!(Idx::read(&header(8, &[u32::MAX, u32::MAX, u32::MAX, 0])[..], 0).is_ok());
}

#[test]
fn a_false_size_allocates_nothing() {
    // 4 exbibytes, allowed by the caller: allocating them would abort.
    let bytes = with_data(header(8, &[u32::MAX, 1 << 30]), &[1, 2, 3]);
    check_error(&bytes, u64::MAX, ErrorKind::Truncated, Some(15));
}

#[test]
fn any_prefix_is_truncated_and_any_suffix_is_trailing() {
    let bytes = with_data(header(0x0B, &[2, 3]), &[9; 12]);
    for n in 0..bytes.len() {
        check_error(&bytes[..n], LIMIT, ErrorKind::Truncated, Some(n as u64));
    }
    check_error(&with_data(bytes.clone(), &[0]), LIMIT, ErrorKind::TrailingData, Some(24));
}

#[test]
fn failing_reader_is_an_io_error_with_its_source() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::new(io::ErrorKind::InvalidData, "the disk is on fire"))
        }
    }
    for n in [0, 1, 2, 6, 13] {
        let bytes = with_data(header(8, &[9]), &[0; 5]);
        let error = Idx::read(bytes[..n].chain(Failing), LIMIT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("on fire"));
    }
}

#[test]
fn a_reader_that_gives_one_byte_at_a_time_is_enough() {
    struct Slow<'a>(&'a [u8]);
    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = buffer.len().min(1);
            self.0.read(&mut buffer[..n])
        }
    }
    let bytes = with_data(header(8, &[5]), b"abcde");
    assert_eq!(Idx::read(Slow(&bytes), LIMIT).unwrap().elements(), &Elements::U8(b"abcde".to_vec()));
    #[cfg(feature = "gzip")]
    assert!(Idx::read(Slow(&gzip(&bytes)), LIMIT).is_ok());
}

#[test]
fn missing_file_is_an_error_with_its_path() {
    let error = Idx::open("no/such/file", LIMIT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(error.path().unwrap().to_str(), Some("no/such/file"));
    assert!(error.to_string().starts_with("no/such/file: idx: cannot read: "), "{error}");
}

#[cfg(not(feature = "gzip"))]
#[test]
fn gzip_without_the_feature_is_an_error() {
    check_error(&[0x1f, 0x8b, 8, 0], LIMIT, ErrorKind::Unsupported, None);
}

#[cfg(feature = "gzip")]
fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[cfg(feature = "gzip")]
#[test]
fn gzip_bombs_are_cut_off() {
    /// Counts how much of the bomb is touched.
    struct Counting<'a>(&'a [u8], usize);
    impl Read for Counting<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = self.0.read(buffer)?;
            self.1 += n;
            Ok(n)
        }
    }
    let zeros = vec![0; 96 << 20];
    let small_claim = gzip(&with_data(header(8, &[10]), &zeros));
    let mut reader = Counting(&small_claim, 0);
    let error = Idx::read(&mut reader, LIMIT).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::TrailingData, Some(18)));
    // The decoder fills a buffer of 32 KiB first.
    assert!(reader.1 < small_claim.len() / 2, "{} of {} bytes read", reader.1, small_claim.len());

    let honest_claim = gzip(&with_data(header(8, &[zeros.len() as u32]), &zeros));
    check_error(&honest_claim, LIMIT, ErrorKind::TooLarge, Some(4));
    let endless_name = [&[0x1f, 0x8b, 8, 0x08, 0, 0, 0, 0, 0, 3][..], &vec![b'a'; 1 << 20]].concat();
    check_error(&endless_name, LIMIT, ErrorKind::Compression, Some(0));
}

#[cfg(feature = "gzip")]
#[test]
fn damaged_gzip_is_an_error_or_the_same_array() {
    let array = Idx::new([16], Elements::U8((0..16).collect()));
    let mut plain = vec![];
    array.write(&mut plain).unwrap();
    let packed = gzip(&plain);

    for n in 2..packed.len() {
        let error = Idx::read(&packed[..n], LIMIT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Truncated, "{n} of {} bytes: {error}", packed.len());
    }
    for bit in 0..8 * packed.len() {
        let mut damaged = packed.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        // Time stamp and operating system are not covered by the checksum, all else is.
        match Idx::read(&damaged[..], LIMIT) {
            Ok(read) => assert_eq!(read, array, "bit {bit}"),
            Err(error) => assert_ne!(error.kind(), ErrorKind::Io, "bit {bit}: {error}"),
        }
    }
    let mut wrong_checksum = packed.clone();
    let n = packed.len();
    wrong_checksum[n - 8] ^= 1;
    check_error(&wrong_checksum, LIMIT, ErrorKind::Compression, Some(24));
    check_error(&with_data(packed.clone(), b"junk after the end"), LIMIT, ErrorKind::Compression, Some(24));
    check_error(&[packed.clone(), packed].concat(), LIMIT, ErrorKind::TrailingData, Some(24));
}
