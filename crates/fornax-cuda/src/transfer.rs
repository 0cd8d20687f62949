//! [`Transfer`]: bytes between host and device, through pinned memory, in the order of the stream.

use crate::driver::{Event, Pinned, Stream};
use crate::error::{Result, check};
use cudarc::driver::sys;
use std::sync::{Arc, Mutex, PoisonError};

/// Size of a piece: large enough for full speed of the bus, small enough to overlap with the host's copying.
const PIECE: usize = 8 << 20;

/// Pieces in flight.
const PIECES: usize = 2;

/// Uploads up to this size need no pinned memory: the driver keeps a copy and returns at once.
const SMALL: usize = 64 << 10;

pub(crate) struct Transfer {
    stream: Arc<Stream>,
    staging: Mutex<Vec<Stage>>,
}

struct Stage {
    memory: Pinned,
    /// When the device is through with it.
    done: Event,
}

impl Transfer {
    pub fn new(stream: &Arc<Stream>) -> Transfer {
        Transfer { stream: Arc::clone(stream), staging: Mutex::default() }
    }

    fn stages<R>(&self, work: impl FnOnce(&mut Vec<Stage>) -> Result<R>) -> Result<R> {
        let mut stages = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let context = &self.stream.context;
        while stages.len() < PIECES {
            stages.push(Stage { memory: Pinned::new(context, PIECE)?, done: Event::new(context)? });
        }
        work(&mut stages)
    }

    /// Queues a copy to the device. The bytes may be dropped when it returns. The device must be current.
    ///
    /// # Safety
    /// `place` has room for `bytes`, and no work outside the stream uses it.
    pub unsafe fn upload(&self, place: u64, bytes: &[u8]) -> Result<()> {
        let copy = |place: u64, bytes: &[u8]| {
            // SAFETY: the caller vouches for the place; the bytes stay until they were read: see below.
            unsafe {
                let start = bytes.as_ptr().cast();
                check(sys::cuMemcpyHtoDAsync_v2(place, start, bytes.len(), self.stream.raw), "copying to the device")
            }
        };
        if bytes.is_empty() {
            return Ok(());
        }
        if bytes.len() <= SMALL {
            // From pageable memory: the driver has copied the bytes when it returns.
            return copy(place, bytes);
        }
        self.stages(|stages| {
            for (i, piece) in bytes.chunks(PIECE).enumerate() {
                let stage = &mut stages[i % PIECES];
                stage.done.wait()?;
                stage.memory.bytes_mut()[..piece.len()].copy_from_slice(piece);
                copy(place + (i * PIECE) as u64, &stage.memory.bytes()[..piece.len()])?;
                stage.done.record(&self.stream)?;
            }
            Ok(())
        })
    }

    /// Copies `len` bytes from the device, once the work that is in the stream is done. The device must be current.
    ///
    /// # Safety
    /// `len` bytes at `place` are a live buffer's.
    pub unsafe fn download(&self, place: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        if len == 0 {
            self.stream.synchronize()?;
            return Ok(bytes);
        }
        self.stages(|stages| {
            let sizes = |i: usize| PIECE.min(len - i * PIECE);
            let count = len.div_ceil(PIECE);
            let fetch = |i: usize, stage: &Stage| {
                let start = stage.memory.as_ptr().cast();
                let from = place + (i * PIECE) as u64;
                // SAFETY: the caller vouches for the place; the piece is as long as the copy, and nobody reads it
                // before the event has passed.
                unsafe {
                    let copied = sys::cuMemcpyDtoHAsync_v2(start, from, sizes(i), self.stream.raw);
                    check(copied, "copying from the device")?;
                }
                stage.done.record(&self.stream)
            };
            // An upload may still be reading from the pieces; it stands before the copies in the stream.
            for (i, stage) in stages.iter().enumerate().take(count) {
                fetch(i, stage)?;
            }
            for i in 0..count {
                let stage = &stages[i % PIECES];
                stage.done.wait()?;
                bytes.extend_from_slice(&stage.memory.bytes()[..sizes(i)]);
                if i + PIECES < count {
                    fetch(i + PIECES, stage)?;
                }
            }
            Ok(())
        })?;
        Ok(bytes)
    }
}
