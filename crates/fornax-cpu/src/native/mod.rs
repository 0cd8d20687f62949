//! Single ops that are not fused.

mod conv;
#[cfg(feature = "std")]
mod fft;
mod fold;
mod index;
mod movement;
mod order;
mod scan;

use crate::counter::Counter;
use crate::gemm::{self, Arith, Bf16, Bytes, F32, F64, Input, Int8, Output, View, ViewMut, Wrapping};
use crate::simd::Isa;
use crate::threads::Threads;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use bytemuck::Pod;
use core::marker::PhantomData;
use fornax_ir::{DType, Graph, Layout, Node, Op, Shape, Source};
use half::{bf16, f16};

/// An operand: a view of bytes.
pub(crate) struct Operand<'a> {
    pub bytes: &'a [u8],
    pub dtype: DType,
    pub layout: Layout,
}

/// A slice that threads write disjoint parts of.
struct SharedSlice<'a, T> {
    ptr: *mut T,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: parts are handed out under the contract of `part`.
unsafe impl<T: Send> Sync for SharedSlice<'_, T> {}

impl<'a, T> SharedSlice<'a, T> {
    fn new(slice: &'a mut [T]) -> SharedSlice<'a, T> {
        SharedSlice { ptr: slice.as_mut_ptr(), len: slice.len(), life: PhantomData }
    }

    /// # Safety
    /// No two parts alive at one time overlap.
    #[expect(clippy::mut_from_ref, reason = "disjointness is the contract")]
    unsafe fn part(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start <= self.len && len <= self.len - start);
        // SAFETY: in range, and by contract nobody else's.
        unsafe { core::slice::from_raw_parts_mut(self.ptr.add(start), len) }
    }

    /// Writes one element.
    ///
    /// # Safety
    /// Nobody else writes or reads it meanwhile.
    unsafe fn set(&self, place: usize, value: T) {
        assert!(place < self.len);
        // SAFETY: in range, and by contract nobody else's.
        unsafe { self.ptr.add(place).write(value) }
    }
}

/// Runs one op; by the reference interpreter where there is nothing better yet, which is counted.
pub(crate) fn run(
    op: &Op,
    operands: &[Operand<'_>],
    dtype: DType,
    shape: &Shape,
    output: &mut [u8],
    threads: &Threads,
    interpreted: &Counter,
) -> Result<(), String> {
    if matches!(op, Op::Matmul { .. }) && matmul(&operands[0], &operands[1], dtype, shape, output, threads) {
        return Ok(());
    }
    match op {
        Op::Conv(spec) if conv::run(spec, &operands[0], &operands[1], dtype, shape, output, threads) => return Ok(()),
        Op::Concat { dim } => {
            movement::concat(operands, *dim, dtype, shape, output);
            return Ok(());
        }
        Op::Pad { low, value } => {
            movement::pad(&operands[0], low, *value, shape, output, threads);
            return Ok(());
        }
        Op::Scan { op, dim } => {
            scan::scan(*op, &operands[0], *dim, output, threads);
            return Ok(());
        }
        Op::ArgSort { dim, descending } | Op::TopK { dim, largest: descending } => {
            order::order(&operands[0], *dim, *descending, shape, output, threads);
            return Ok(());
        }
        Op::Gather { dim } => return index::gather(&operands[0], &operands[1], *dim, output, threads),
        Op::Scatter { dim, mode } => {
            return index::scatter(&operands[0], &operands[1], &operands[2], *dim, *mode, output, threads);
        }
        #[cfg(feature = "std")]
        Op::Fft { dim, kind } if fft::run(&operands[0], *dim, *kind, shape, output, threads) => return Ok(()),
        Op::Fold(spec) if fold::run(spec, &operands[0], shape, output, threads) => return Ok(()),
        _ => {}
    }
    interpreted.add(1);
    let mut graph = Graph::default();
    let mut inputs: Vec<Vec<u8>> = Vec::new();
    let mut ids = Vec::new();
    for operand in operands {
        ids.push(graph.input(operand.dtype, &operand.layout.shape));
        let size = operand.dtype.size();
        let mut bytes = Vec::with_capacity(operand.layout.shape.numel() * size);
        for place in operand.layout.places() {
            bytes.extend_from_slice(&operand.bytes[place * size..(place + 1) * size]);
        }
        inputs.push(bytes);
    }
    let id = graph.push_node(Node {
        op: op.clone(),
        inputs: ids.iter().copied().collect(),
        dtype,
        shape: shape.clone(),
        source: Source::default(),
    });
    graph.outputs.push(id);
    let result = fornax_ir::interpret(&graph, &inputs).map_err(|error| error.to_string())?;
    output.copy_from_slice(&result.outputs[0]);
    match result.faults.into_iter().next() {
        Some(fault) => Err(fault.message),
        None => Ok(()),
    }
}

/// Tells whether it ran.
fn matmul(a: &Operand<'_>, b: &Operand<'_>, dtype: DType, shape: &Shape, output: &mut [u8], threads: &Threads) -> bool {
    fn product<R: Arith, A: Input<R> + Pod, B: Input<R> + Pod, C: Output<R::Acc> + Pod>(
        a: &Operand<'_>,
        b: &Operand<'_>,
        shape: &Shape,
        output: &mut [u8],
        threads: &Threads,
    ) {
        let rank = shape.rank();
        let sizes = [shape[rank - 2], shape[rank - 1], a.layout.shape[rank - 1]];
        // Small products stay on this thread: handing one over costs more than most of them.
        let large = threads.count() > 1 && gemm::is_large::<A, B>(shape[..rank - 2].iter().product(), sizes);
        let hands = if large { gemm::Threads::All } else { gemm::Threads::One };
        let config = gemm::Config { threads: hands, ..gemm::Config::default() };
        let (a_data, b_data): (&[A], &[B]) = (bytemuck::cast_slice(a.bytes), bytemuck::cast_slice(b.bytes));
        let a = View::new(a_data, a.layout.offset, &a.layout.shape, &a.layout.strides);
        let b = View::new(b_data, b.layout.offset, &b.layout.shape, &b.layout.strides);
        let c = ViewMut::row_major(bytemuck::cast_slice_mut(output), shape);
        let run = || gemm::gemm::<R, A, B, C>(&config, a, b, c, None);
        if large { threads.install(run) } else { run() }
    }
    if shape.rank() > gemm::MAX_RANK || shape.contains(&0) || a.layout.shape.contains(&0) {
        return false;
    }
    let native = Bf16::is_native(Isa::best());
    match (a.dtype, b.dtype, dtype) {
        (DType::F32, DType::F32, DType::F32) => product::<F32, f32, f32, f32>(a, b, shape, output, threads),
        (DType::F64, DType::F64, DType::F64) => product::<F64, f64, f64, f64>(a, b, shape, output, threads),
        (DType::F16, DType::F16, DType::F16) => product::<F32, f16, f16, f16>(a, b, shape, output, threads),
        (DType::F16, DType::F16, DType::F32) => product::<F32, f16, f16, f32>(a, b, shape, output, threads),
        (DType::BF16, DType::BF16, DType::BF16) if native => {
            product::<Bf16, bf16, bf16, bf16>(a, b, shape, output, threads);
        }
        (DType::BF16, DType::BF16, DType::F32) if native => {
            product::<Bf16, bf16, bf16, f32>(a, b, shape, output, threads);
        }
        (DType::BF16, DType::BF16, DType::BF16) => product::<F32, bf16, bf16, bf16>(a, b, shape, output, threads),
        (DType::BF16, DType::BF16, DType::F32) => product::<F32, bf16, bf16, f32>(a, b, shape, output, threads),
        (DType::I8, DType::I8, DType::I32) if Bytes::is_native(Isa::best()) => {
            product::<Bytes, i8, i8, i32>(a, b, shape, output, threads);
        }
        (DType::I8, DType::I8, DType::I32) => product::<Int8, i8, i8, i32>(a, b, shape, output, threads),
        (DType::I8, DType::U8, DType::I32) => product::<Int8, i8, u8, i32>(a, b, shape, output, threads),
        (DType::U8, DType::I8, DType::I32) => product::<Int8, u8, i8, i32>(a, b, shape, output, threads),
        (DType::U8, DType::U8, DType::I32) => product::<Int8, u8, u8, i32>(a, b, shape, output, threads),
        (DType::I32, DType::I32, DType::I32) => product::<Wrapping<i32>, i32, i32, i32>(a, b, shape, output, threads),
        (DType::I64, DType::I64, DType::I64) => product::<Wrapping<i64>, i64, i64, i64>(a, b, shape, output, threads),
        _ => return false,
    }
    true
}
