//! Products and convolutions by tiles in shared memory: a block of 256 threads makes 64 × 64 results, each thread 4 × 4 of
//! them. Where tiles are few and deep (gradients of weights), blocks share the depth, and a second launch adds up what they
//! made. Plain and for every dtype; what is fast on a device's matrix units is for its library or for other kernels.

use super::super::Lowering;
use super::super::maker::Maker;
use super::super::space::{count, merge};
use super::Out;
use crate::ir::{Memory, Mode, Special, Val, Vals};
use crate::program::{BufferId, Launch, MatmulCall, Operand};
use fornax_ir::{ConvSpec, DType, NodeId};

/// Rows and columns of a tile.
const TILE: u32 = 64;
/// Products between two loads of a tile.
const DEPTH: u32 = 16;
/// Rows and columns of a thread.
const OWN: u32 = 4;
/// Elements from one line of a tile in shared memory to the next: not a multiple of the banks.
const LINE: u32 = TILE + 4;
/// Blocks that fill a large GPU.
const ENOUGH_BLOCKS: usize = 264;
/// Loads of a tile that a block makes at least, where blocks share the depth.
const MIN_LOADS: usize = 16;
const THREADS: u32 = (TILE / OWN) * (TILE / OWN);

/// What is the same for a row at all depths: from the batch and the row.
type Row<'a> = &'a dyn Fn(&mut Maker, Val, Val) -> Vec<Val>;

/// The element of a row at a depth; zero where the mask is false.
type Load<'a> = &'a dyn Fn(&mut Maker, &[Val], Val, Val) -> Val;

/// One factor, as a matrix of rows (or columns) by depth.
struct Side<'a> {
    /// Neighbours in memory lie along the depth.
    along_depth: bool,
    row: Row<'a>,
    load: Load<'a>,
}

/// Sizes of a product.
struct Sizes {
    batches: usize,
    rows: usize,
    columns: usize,
    depth: usize,
}

impl Lowering<'_> {
    pub(super) fn matmul(
        &mut self,
        node: NodeId,
        lhs: &Operand,
        rhs: &Operand,
        out: Out<'_>,
    ) -> (MatmulCall, Vec<Launch>) {
        let rank = out.shape.rank();
        let call = MatmulCall {
            node,
            lhs: lhs.clone(),
            rhs: rhs.clone(),
            out: out.buffer,
            dtype: out.dtype,
            shape: out.shape.dims().into(),
        };
        let batch = merge((0..rank - 2).map(|d| (out.shape[d], vec![lhs.layout.strides[d], rhs.layout.strides[d]])));
        let sizes = Sizes {
            batches: count(&batch),
            rows: out.shape[rank - 2],
            columns: out.shape[rank - 1],
            depth: lhs.layout.shape[rank - 1],
        };
        let mut m = Maker::new("fx_matmul", THREADS, self.index_of(out.shape.numel(), &[lhs, rhs], out.buffer));
        let batch_sizes = m.loop_sizes(&batch);
        let side = |m: &mut Maker, walk: usize, operand: &Operand, [row, depth]: [usize; 2]| {
            let strides: Vec<Val> = batch.iter().map(|one| m.stride(one.strides[walk])).collect();
            let offset = m.offset(operand.layout.offset as isize);
            let (row, depth) = (m.stride(operand.layout.strides[row]), m.stride(operand.layout.strides[depth]));
            (m.buffer(operand.buffer, operand.dtype, Mode::Read), offset, strides, row, depth)
        };
        let (a, a_offset, a_batch, a_row, a_depth) = side(&mut m, 0, lhs, [rank - 2, rank - 1]);
        let (b, b_offset, b_batch, b_row, b_depth) = side(&mut m, 1, rhs, [rank - 1, rank - 2]);
        let row = |offset: Val, strides: &[Val], stride: Val, m: &mut Maker, batch: Val, row: Val| {
            let coordinates = m.coordinates(batch, &batch_sizes);
            let place = m.place(offset, &coordinates, strides);
            vec![m.place(place, &[row], &[stride])]
        };
        let load = |memory: Memory, stride: Val, m: &mut Maker, row: &[Val], depth: Val, mask: Val| {
            let place = m.place(row[0], &[depth], &[stride]);
            m.b.load(memory, place, Some(mask))
        };
        let sides = [
            Side {
                along_depth: lhs.layout.strides[rank - 1] == 1,
                row: &|m, batch, number| row(a_offset, &a_batch, a_row, m, batch, number),
                load: &|m, row, depth, mask| load(a, a_depth, m, row, depth, mask),
            },
            Side {
                along_depth: rhs.layout.strides[rank - 1] != 1,
                row: &|m, batch, number| row(b_offset, &b_batch, b_row, m, batch, number),
                load: &|m, row, depth, mask| load(b, b_depth, m, row, depth, mask),
            },
        ];
        let (lines, width) = (m.size(sizes.rows * sizes.columns), m.size(sizes.columns));
        let place = |m: &mut Maker, batch: Val, row: Val, column: Val| {
            let start = m.b.mul(batch, lines);
            let line = m.place(start, &[row], &[width]);
            m.b.add(line, column)
        };
        let launches = self.tiles(m, &sizes, &sides, out, &place);
        (call, launches)
    }

    /// Implicit matrix product: rows are output channels of a group, columns the places of the result, depth the elements
    /// of a kernel.
    pub(super) fn conv(&mut self, spec: &ConvSpec, x: &Operand, weight: &Operand, out: Out<'_>) -> Vec<Launch> {
        let n = spec.stride.len();
        let groups = spec.groups;
        let (x_shape, w_shape) = (&x.layout.shape, &weight.layout.shape);
        let places: usize = out.shape[2..].iter().product();
        let sizes = Sizes {
            batches: groups,
            rows: out.shape[1] / groups,
            columns: out.shape[0] * places,
            depth: w_shape[1..].iter().product(),
        };
        let mut m = Maker::new("fx_conv", THREADS, self.index_of(out.shape.numel(), &[x, weight], out.buffer));
        let taps: Vec<Val> = m.sizes(&w_shape[1..]);
        let outs: Vec<Val> = [out.shape[0]].iter().chain(&out.shape[2..]).map(|&size| m.size(size)).collect();
        let x_sizes: Vec<Val> = m.sizes(&x_shape[2..]);
        let (x_view, w_view) = (m.view(x), m.view(weight));
        let (rows, per_group) = (m.size(sizes.rows), m.size(w_shape[1]));
        let stride: Vec<Val> = spec.stride.iter().map(|&stride| m.size(stride)).collect();
        let dilation: Vec<Val> = spec.dilation.iter().map(|&dilation| m.size(dilation)).collect();
        let low: Vec<Val> = spec.padding.iter().map(|&(low, _)| m.number(low as i64)).collect();
        let spread: Vec<Option<Val>> =
            spec.input_dilation.iter().map(|&spread| (spread != 1).then(|| m.size(spread))).collect();
        let kernel = merge((1..w_shape.rank()).map(|d| (w_shape[d], vec![weight.layout.strides[d]])));
        let kernel_sizes = m.loop_sizes(&kernel);
        let kernel_strides: Vec<Val> = kernel.iter().map(|one| m.stride(one.strides[0])).collect();
        let sides = [
            Side {
                along_depth: true,
                row: &|m, group, row| {
                    let channel = m.place(row, &[group], &[rows]);
                    vec![m.place(w_view.offset, &[channel], &w_view.strides[..1])]
                },
                load: &|m, row, depth, mask| {
                    let at = m.coordinates(depth, &kernel_sizes);
                    let place = m.place(row[0], &at, &kernel_strides);
                    m.b.load(w_view.memory, place, Some(mask))
                },
            },
            Side {
                along_depth: false,
                row: &|m, group, column| {
                    // The place of the image and the group's first channel, then the window's first position by dim.
                    let at = m.coordinates(column, &outs);
                    let channel = m.b.mul(group, per_group);
                    let image = m.place(x_view.offset, &[at[0], channel], &x_view.strides[..2]);
                    let mut row = vec![image];
                    for dim in 0..n {
                        let first = m.b.mul(at[1 + dim], stride[dim]);
                        row.push(m.b.sub(first, low[dim]));
                    }
                    row
                },
                load: &|m, row, depth, mask| {
                    let tap = m.coordinates(depth, &taps);
                    let mut place = m.place(row[0], &tap[..1], &x_view.strides[1..2]);
                    let mut there = mask;
                    let zero = m.int(0);
                    for dim in 0..n {
                        let mut position = m.place(row[1 + dim], &[tap[1 + dim]], &[dilation[dim]]);
                        let right = m.b.le(zero, position);
                        there = m.b.and(there, right);
                        if let Some(spread) = spread[dim] {
                            let safe = m.b.select(right, position, zero);
                            let (number, rest) = m.div_rem(safe, spread);
                            let whole = m.b.eq(rest, zero);
                            there = m.b.and(there, whole);
                            position = number;
                        }
                        let left = m.b.lt(position, x_sizes[dim]);
                        there = m.b.and(there, left);
                        place = m.place(place, &[position], &x_view.strides[2 + dim..3 + dim]);
                    }
                    m.b.load(x_view.memory, place, Some(there))
                },
            },
        ];
        let (channels, area) = (m.size(out.shape[1]), m.size(places));
        let place = |m: &mut Maker, group: Val, row: Val, column: Val| {
            let channel = m.place(row, &[group], &[rows]);
            let (image, at) = m.div_rem(column, area);
            let line = m.place(channel, &[image], &[channels]);
            m.place(at, &[line], &[area])
        };
        self.tiles(m, &sizes, &sides, out, &place)
    }

    /// `out[place(batch, row, column)] = Σ a[row, depth] · b[column, depth]`.
    fn tiles(
        &mut self,
        mut m: Maker,
        sizes: &Sizes,
        sides: &[Side<'_>; 2],
        out: Out<'_>,
        place: &dyn Fn(&mut Maker, Val, Val, Val) -> Val,
    ) -> Vec<Launch> {
        let acc = out.dtype.compute();
        let tiles = [sizes.rows, sizes.columns].map(|size| size.div_ceil(TILE as usize));
        let blocks = sizes.batches * tiles[0] * tiles[1];
        let parts = (ENOUGH_BLOCKS / blocks).min(sizes.depth / (DEPTH as usize * MIN_LOADS)).max(1);
        let part = sizes.depth.div_ceil(parts).next_multiple_of(DEPTH as usize);
        let parts = sizes.depth.div_ceil(part.max(1)).max(1);
        let elements = out.shape.numel();
        let (target, dtype) = match parts {
            1 => (out.buffer, out.dtype),
            _ => (self.temporary(parts * elements * acc.size()), acc),
        };
        let ends = [m.size(sizes.rows), m.size(sizes.columns)];
        let depth = m.size(sizes.depth);
        let [down, across] = tiles.map(|tiles| m.size(tiles));
        let block = m.special(Special::Block(0));
        let (rest, column_tile) = m.div_rem(block, across);
        let (batch, row_tile) = m.div_rem(rest, down);
        let edge = m.int(TILE.into());
        let firsts = [m.b.mul(row_tile, edge), m.b.mul(column_tile, edge)];
        let thread = m.b.special(Special::Thread);
        let arrays = [m.b.shared(acc, DEPTH * LINE), m.b.shared(acc, DEPTH * LINE)];
        // What each thread loads of each tile: the place in the tile, the depth, and what its rows have in common.
        let mut loads = Vec::new();
        for (side, (first, end)) in sides.iter().zip(firsts.into_iter().zip(ends)) {
            let mut rows: Vec<(Val, Val, Vec<Val>)> = Vec::new();
            let mut own = Vec::new();
            for part in 0..TILE * DEPTH / THREADS {
                let number = m.b.int(DType::U32, (part * THREADS).into());
                let number = m.b.add(thread, number);
                let width = m.b.int(DType::U32, if side.along_depth { DEPTH } else { TILE }.into());
                let (slow, fast) = (m.b.div(number, width), m.b.rem(number, width));
                let (row, at) = if side.along_depth { (slow, fast) } else { (fast, slow) };
                let line = m.b.int(DType::U32, LINE.into());
                let target = m.b.mul(at, line);
                let target = m.b.add(target, row);
                let (row, at) = (m.b.cast(row, m.index), m.b.cast(at, m.index));
                let row = m.b.add(first, row);
                if !rows.iter().any(|(known, ..)| *known == row) {
                    let inside = m.b.lt(row, end);
                    let common = (side.row)(&mut m, batch, row);
                    rows.push((row, inside, common));
                }
                let nth = rows.iter().position(|(known, ..)| *known == row).expect("it was just added");
                own.push((target, at, nth));
            }
            loads.push((rows, own));
        }
        let (width, four) = (m.b.int(DType::U32, (TILE / OWN).into()), m.b.int(DType::U32, OWN.into()));
        let (y, x) = (m.b.div(thread, width), m.b.rem(thread, width));
        let own = [m.b.mul(y, four), m.b.mul(x, four)];
        let (step, nothing) = (m.int(DEPTH.into()), m.b.number(acc, 0));
        // A part is whole loads, so that only the last one ends within a load.
        let (start, end, ahead) = match parts {
            1 => (m.int(0), depth, m.int(0)),
            _ => {
                let (number, size, all) = (m.special(Special::Block(1)), m.size(part), m.size(elements));
                let start = m.b.mul(number, size);
                let next = m.b.add(start, size);
                (start, m.b.min(next, depth), m.b.mul(number, all))
            }
        };
        let head = m.b.open_for([start, end, step], &[nothing; (OWN * OWN) as usize]);
        for ((side, (rows, own)), array) in sides.iter().zip(&loads).zip(arrays) {
            for (target, at, nth) in own {
                let (_, inside, common) = &rows[*nth];
                let at = m.b.add(head.counter(), *at);
                let exists = m.b.lt(at, depth);
                let mask = m.b.and(*inside, exists);
                let value = (side.load)(&mut m, common, at, mask);
                let value = m.b.cast(value, acc);
                m.b.store(array, *target, &[value], None);
            }
        }
        m.b.barrier();
        let mut sums = head.carried().to_vec();
        let piece = OWN.min(16 / acc.size() as u32);
        for k in 0..DEPTH {
            let [a, b] = [0, 1].map(|side| {
                let mut values = Vec::new();
                for part in (0..OWN).step_by(piece as usize) {
                    let ahead = m.b.int(DType::U32, (k * LINE + part).into());
                    let at = m.b.add(own[side], ahead);
                    values.extend(m.b.load_vector(arrays[side], at, piece as usize, None));
                }
                values
            });
            for (i, &a) in a.iter().enumerate() {
                for (j, &b) in b.iter().enumerate() {
                    let sum = &mut sums[i * OWN as usize + j];
                    *sum = match acc.is_float() {
                        true => m.b.fma(a, b, *sum),
                        false => {
                            let product = m.b.mul(a, b);
                            m.b.add(*sum, product)
                        }
                    };
                }
            }
        }
        m.b.barrier();
        let sums = m.b.close_for(head, Vals::from_vec(sums));
        let memory = m.buffer(target, dtype, Mode::Write);
        for i in 0..OWN {
            for j in 0..OWN {
                let at = [0, 1].map(|side| {
                    let ahead = m.b.int(DType::U32, if side == 0 { i } else { j }.into());
                    let number = m.b.add(own[side], ahead);
                    let number = m.b.cast(number, m.index);
                    m.b.add(firsts[side], number)
                });
                let inside = [0, 1].map(|side| m.b.lt(at[side], ends[side]));
                let mask = m.b.and(inside[0], inside[1]);
                let to = place(&mut m, batch, at[0], at[1]);
                let to = m.b.add(ahead, to);
                let value = m.b.cast(sums[(i * OWN + j) as usize], dtype);
                m.b.store(memory, to, &[value], Some(mask));
            }
        }
        let mut launches = vec![self.launch(m, [blocks, parts, 1])];
        if parts > 1 {
            launches.push(self.add_parts(target, acc, parts, out));
        }
        launches
    }

    /// Adds up the parts of each element, in order.
    fn add_parts(&mut self, from: BufferId, acc: DType, parts: usize, out: Out<'_>) -> Launch {
        let elements = out.shape.numel();
        let mut m = Maker::new("fx_add_parts", THREADS, self.index_of(parts * elements, &[], out.buffer));
        let (i, end) = (m.thread_of_grid(), m.size(elements));
        let inside = m.b.lt(i, end);
        let (zero, one, parts) = (m.int(0), m.int(1), m.size(parts));
        let (memory, nothing) = (m.buffer(from, acc, Mode::Read), m.b.number(acc, 0));
        let head = m.b.open_for([zero, parts, one], &[nothing]);
        let place = m.place(i, &[head.counter()], &[end]);
        let value = m.b.load(memory, place, Some(inside));
        let sum = m.b.add(head.carried()[0], value);
        let sum = m.b.close_for(head, Vals::from_slice(&[sum]))[0];
        let sum = m.b.cast(sum, out.dtype);
        let memory = m.buffer(out.buffer, out.dtype, Mode::Write);
        m.b.store(memory, i, &[sum], Some(inside));
        self.launch(m, [elements.div_ceil(THREADS as usize), 1, 1])
    }
}
