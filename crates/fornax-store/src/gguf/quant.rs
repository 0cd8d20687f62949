//! Quantized values: blocks of small whole numbers with common scales.
//!
//! A block of 32 (kinds `_0`, `_1`) has a scale `d`, and in kinds `_1` a minimum `m`: a value is `d · q + m`. A block of 256
//! (kinds `_K`) has groups whose scales are whole numbers times the block's. The products are taken in the order of the
//! ggml project's reference, so results have its bits.

use alloc::vec::Vec;
use fornax_tensor::{DType, Shape};
use half::f16;

/// How values are kept.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Plain(DType),
    Quantized(Quant),
}

/// How values are quantized.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Quant {
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
}

impl Kind {
    /// By the number in the file.
    pub fn of(number: u32) -> Option<Kind> {
        Some(match number {
            0 => Kind::Plain(DType::F32),
            1 => Kind::Plain(DType::F16),
            24 => Kind::Plain(DType::I8),
            25 => Kind::Plain(DType::I16),
            26 => Kind::Plain(DType::I32),
            27 => Kind::Plain(DType::I64),
            28 => Kind::Plain(DType::F64),
            30 => Kind::Plain(DType::BF16),
            2 => Kind::Quantized(Quant::Q4_0),
            3 => Kind::Quantized(Quant::Q4_1),
            6 => Kind::Quantized(Quant::Q5_0),
            7 => Kind::Quantized(Quant::Q5_1),
            8 => Kind::Quantized(Quant::Q8_0),
            10 => Kind::Quantized(Quant::Q2K),
            11 => Kind::Quantized(Quant::Q3K),
            12 => Kind::Quantized(Quant::Q4K),
            13 => Kind::Quantized(Quant::Q5K),
            14 => Kind::Quantized(Quant::Q6K),
            _ => return None,
        })
    }

    /// The dtype of the tensor.
    pub fn dtype(self) -> DType {
        match self {
            Kind::Plain(dtype) => dtype,
            Kind::Quantized(_) => DType::F32,
        }
    }

    /// The bytes that a tensor takes, if its rows are whole blocks.
    pub fn size(self, shape: &Shape) -> Option<usize> {
        let numel = shape.checked_numel()?;
        numel.checked_mul(DType::F32.size())?;
        match self {
            Kind::Plain(dtype) => numel.checked_mul(dtype.size()),
            Kind::Quantized(quant) => {
                let row = shape.last().copied().unwrap_or(1);
                let (values, bytes) = quant.block();
                row.is_multiple_of(values).then(|| (numel / values).checked_mul(bytes))?
            }
        }
    }
}

impl Quant {
    /// Values and bytes of a block.
    pub fn block(self) -> (usize, usize) {
        match self {
            Quant::Q4_0 => (32, 18),
            Quant::Q4_1 => (32, 20),
            Quant::Q5_0 => (32, 22),
            Quant::Q5_1 => (32, 24),
            Quant::Q8_0 => (32, 34),
            Quant::Q2K => (256, 84),
            Quant::Q3K => (256, 110),
            Quant::Q4K => (256, 144),
            Quant::Q5K => (256, 176),
            Quant::Q6K => (256, 210),
        }
    }

    /// The values of whole blocks.
    pub fn dequantize(self, bytes: &[u8]) -> Vec<f32> {
        let (values, size) = self.block();
        let mut out = Vec::with_capacity(bytes.len() / size * values);
        for block in bytes.chunks_exact(size) {
            self.block_into(block, &mut out);
        }
        out
    }

    fn block_into(self, block: &[u8], out: &mut Vec<f32>) {
        let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
        match self {
            Quant::Q4_0 => {
                let (d, quants) = (half(0), &block[2..]);
                out.extend((0..32).map(|i| d * (f32::from(nibble(quants, i)) - 8.0)));
            }
            Quant::Q4_1 => {
                let (d, m, quants) = (half(0), half(2), &block[4..]);
                out.extend((0..32).map(|i| d * f32::from(nibble(quants, i)) + m));
            }
            Quant::Q5_0 => {
                let (d, high, quants) = (half(0), &block[2..6], &block[6..]);
                out.extend((0..32).map(|i| d * (f32::from(nibble(quants, i) | fifth_bit(high, i)) - 16.0)));
            }
            Quant::Q5_1 => {
                let (d, m, high, quants) = (half(0), half(2), &block[4..8], &block[8..]);
                out.extend((0..32).map(|i| d * f32::from(nibble(quants, i) | fifth_bit(high, i)) + m));
            }
            Quant::Q8_0 => {
                let d = half(0);
                out.extend(block[2..].iter().map(|&q| f32::from(q as i8) * d));
            }
            Quant::Q2K => {
                let (scales, quants, d, d_min) = (&block[..16], &block[16..80], half(80), half(82));
                out.extend((0..256).map(|i| {
                    let scale = scales[i / 16];
                    d * f32::from(scale & 15) * f32::from(crumb(quants, i)) - d_min * f32::from(scale >> 4)
                }));
            }
            Quant::Q3K => {
                let (high, quants, scales, d) = (&block[..32], &block[32..96], &block[96..108], half(108));
                out.extend((0..256).map(|i| {
                    let group = i / 16;
                    let low = scales[group % 8] >> (4 * (group / 8)) & 15;
                    let top = scales[8 + group % 4] >> (2 * (group / 4)) & 3;
                    let scale = f32::from(low | top << 4) - 32.0;
                    // The offset is there where the bit is not.
                    let offset = if high[i % 32] >> (i / 32) & 1 == 1 { 0.0 } else { 4.0 };
                    d * scale * (f32::from(crumb(quants, i)) - offset)
                }));
            }
            Quant::Q4K => {
                let (d, d_min, scales, quants) = (half(0), half(2), &block[4..16], &block[16..]);
                out.extend((0..256).map(|i| {
                    let (scale, min) = scale_and_min(scales, i / 32);
                    d * scale * f32::from(wide_nibble(&quants[i / 64 * 32..], i % 64, 32)) - d_min * min
                }));
            }
            Quant::Q5K => {
                let (d, d_min, scales) = (half(0), half(2), &block[4..16]);
                let (high, quants) = (&block[16..48], &block[48..]);
                out.extend((0..256).map(|i| {
                    let (scale, min) = scale_and_min(scales, i / 32);
                    let fifth = (high[i % 32] >> (i / 32) & 1) << 4;
                    let q = wide_nibble(&quants[i / 64 * 32..], i % 64, 32) | fifth;
                    d * scale * f32::from(q) - d_min * min
                }));
            }
            Quant::Q6K => {
                let (quants, high, scales, d) = (&block[..128], &block[128..192], &block[192..208], half(208));
                out.extend((0..256).map(|i| {
                    let q = wide_nibble(&quants[i / 128 * 64..], i % 128, 64) | crumb(high, i) << 4;
                    d * f32::from(scales[i / 16] as i8) * (f32::from(q) - 32.0)
                }));
            }
        }
    }
}

/// Value `i` of 32 in 16 bytes: the low halves first.
fn nibble(quants: &[u8], i: usize) -> u8 {
    wide_nibble(quants, i, 16)
}

/// Value `i` of `2 · width` in `width` bytes: the low halves first.
fn wide_nibble(quants: &[u8], i: usize, width: usize) -> u8 {
    quants[i % width] >> (4 * (i / width)) & 15
}

/// Two bits of value `i` of 256: each 32 bytes hold 128 values, 32 at each of the four places.
fn crumb(quants: &[u8], i: usize) -> u8 {
    quants[i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3
}

/// The fifth bit of value `i` of 32, at its place.
fn fifth_bit(high: &[u8], i: usize) -> u8 {
    (high[i / 8] >> (i % 8) & 1) << 4
}

/// Scale and minimum of group `j` of 8, 6 bits each in 12 bytes: the first four groups have bytes of their own, whose two
/// top bits belong to the last four.
fn scale_and_min(scales: &[u8], j: usize) -> (f32, f32) {
    let (scale, min) = if j < 4 {
        (scales[j] & 63, scales[j + 4] & 63)
    } else {
        let both = scales[j + 4];
        (both & 15 | scales[j - 4] >> 6 << 4, both >> 4 | scales[j] >> 6 << 4)
    };
    (f32::from(scale), f32::from(min))
}
