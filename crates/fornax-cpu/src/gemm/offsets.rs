//! Operands whose elements lie at a sum of two offsets, one for the lane and one for the depth: [`PackOffsets`], and
//! [`Shifted`] where lanes lie side by side, so that nothing need be packed.
//!
//! Convolutions are such products: the patches of a padded image, and weights in any layout.

use super::arith::Arith;
use super::pack::{Pack, Panel};
use crate::simd::Isa;
use alloc::vec::Vec;
use core::marker::PhantomData;

/// Lane `l` at depth `d` is `data[lanes[l] + depths[d]]`.
#[derive(Debug)]
pub(crate) struct PackOffsets<'a, R: Arith> {
    data: &'a [R::Packed],
    lanes: Vec<isize>,
    depths: Vec<isize>,
    /// Offsets follow one another in aligned runs of so many.
    lane_run: usize,
    depth_run: usize,
    isa: Isa,
    life: PhantomData<R>,
}

impl<'a, R: Arith> PackOffsets<'a, R> {
    /// # Panics
    /// If an element lies outside `data`.
    pub fn new(data: &'a [R::Packed], lanes: Vec<isize>, depths: Vec<isize>, isa: Isa) -> Self {
        if let (Some(lane), Some(depth)) = (range(&lanes), range(&depths)) {
            let (low, high) = (lane.0.checked_add(depth.0), lane.1.checked_add(depth.1));
            let inside = low.is_some_and(|low| low >= 0) && high.is_some_and(|high| (high as usize) < data.len());
            assert!(inside, "gemm: offsets {lane:?} + {depth:?} leave {} elements", data.len());
        }
        let (lane_run, depth_run) = (run_of(&lanes), run_of(&depths));
        PackOffsets { data, lanes, depths, lane_run, depth_run, isa, life: PhantomData }
    }

    pub(super) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn depth(&self) -> usize {
        self.depths.len()
    }

    /// Where the operand begins and how far apart lanes are, if each is contiguous.
    pub(super) fn rows(&self) -> Option<(*const R::Packed, usize)> {
        let step = if let [first, second, ..] = self.lanes[..] { second - first } else { 0 };
        let even = self.lanes.windows(2).all(|pair| pair[1] - pair[0] == step);
        let start = self.data.as_ptr().wrapping_offset(self.lanes.first()? + self.depths.first()?);
        (even && self.depth_run == self.depths.len()).then_some((start, usize::try_from(step).ok()?))
    }

    /// Writes run by run of lanes.
    fn pack_lanes(&self, panel: Panel, out: &mut [R::Packed]) {
        let depths = &self.depths[panel.depth..panel.depth + panel.depth_count];
        let mut lane = 0;
        while lane < panel.lane_count {
            let at = panel.lane + lane;
            let run = (self.lane_run - at % self.lane_run).min(panel.lane_count - lane);
            let first = self.lanes[at];
            #[cfg(target_arch = "x86_64")]
            if let (Isa::Avx512(_), 1, 4, 1..=32) = (self.isa, panel.group, size_of::<R::Packed>(), run) {
                assert!(panel.len() <= out.len() && lane + run <= panel.width);
                // SAFETY: the machine has AVX-512; offsets were checked against the data, and the panel against `out`.
                unsafe {
                    let from = self.data.as_ptr().wrapping_offset(first).cast::<f32>();
                    let to = out.as_mut_ptr().add(lane).cast::<f32>();
                    super::transpose::copy_rows(from, depths, run, to, panel.width);
                }
                lane += run;
                continue;
            }
            for (depth, offset) in depths.iter().enumerate() {
                let from = &self.data[(first + offset) as usize..][..run];
                if panel.group == 1 {
                    out[depth * panel.width + lane..][..run].copy_from_slice(from);
                } else {
                    from.iter().enumerate().for_each(|(i, &value)| out[panel.index(lane + i, depth)] = value);
                }
            }
            lane += run;
        }
    }

    /// Writes lane by lane.
    fn pack_depths(&self, panel: Panel, out: &mut [R::Packed]) {
        let lanes = &self.lanes[panel.lane..panel.lane + panel.lane_count];
        let mut depth = 0;
        while depth < panel.depth_count {
            let at = panel.depth + depth;
            let run = (self.depth_run - at % self.depth_run).min(panel.depth_count - depth);
            #[cfg(target_arch = "x86_64")]
            if let (Isa::Avx512(_), 1, 4, 4..) = (self.isa, panel.group, size_of::<R::Packed>(), run) {
                assert!(panel.len() <= out.len() && lanes.len() <= panel.width);
                // SAFETY: the machine has AVX-512; offsets were checked against the data, and the panel against `out`.
                unsafe {
                    let from = self.data.as_ptr().wrapping_offset(self.depths[at]).cast::<f32>();
                    let to = out.as_mut_ptr().add(depth * panel.width).cast::<f32>();
                    super::transpose::pack_lanes(from, lanes, run, to, panel.width);
                }
                depth += run;
                continue;
            }
            for i in 0..run {
                let offset = self.depths[at + i];
                for (lane, first) in lanes.iter().enumerate() {
                    out[panel.index(lane, depth + i)] = self.data[(first + offset) as usize];
                }
            }
            depth += run;
        }
    }
}

impl<R: Arith> Pack<R::Packed> for PackOffsets<'_, R> {
    fn pack(&self, panel: Panel, out: &mut [R::Packed]) {
        if self.lane_run >= self.depth_run.min(8) { self.pack_lanes(panel, out) } else { self.pack_depths(panel, out) }
    }
}

/// A right operand in strips of `cols` columns. Column `j` of strip `s` is at depth `p`
/// `data[start + s · stride + j + offsets[p]]`.
#[derive(Debug)]
pub(crate) struct Shifted<'a, P> {
    data: &'a [P],
    start: isize,
    stride: isize,
    /// Strips.
    pub count: usize,
    pub cols: usize,
    pub offsets: Vec<isize>,
}

impl<'a, P> Shifted<'a, P> {
    /// # Panics
    /// If an element lies outside `data`.
    pub fn new(
        data: &'a [P],
        start: isize,
        (count, stride): (usize, isize),
        cols: usize,
        offsets: Vec<isize>,
    ) -> Shifted<'a, P> {
        if let (Some((low, high)), true) = (range(&offsets), count > 0 && cols > 0) {
            let (first, last) =
                (start.min(start + (count as isize - 1) * stride), start.max(start + (count as isize - 1) * stride));
            let inside = first + low >= 0 && last + high + (cols as isize) <= data.len() as isize;
            assert!(
                inside,
                "gemm: strips of {cols} from {first} to {last}, shifted by {low} to {high}, leave {} elements",
                data.len()
            );
        }
        Shifted { data, start, stride, count, cols, offsets }
    }

    /// The first column of a strip, not shifted: perhaps no element.
    pub(super) fn strip(&self, idx: usize) -> *const P {
        self.data.as_ptr().wrapping_offset(self.start + idx as isize * self.stride)
    }
}

/// Least and greatest.
fn range(offsets: &[isize]) -> Option<(isize, isize)> {
    Some((*offsets.iter().min()?, *offsets.iter().max()?))
}

/// The longest run that all of `offsets`, cut into pieces of it, consists of.
fn run_of(offsets: &[isize]) -> usize {
    let follows = |i: usize| offsets[i] == offsets[i - 1] + 1;
    let run = (1..offsets.len()).find(|&i| !follows(i)).unwrap_or(offsets.len()).max(1);
    if (1..offsets.len()).all(|i| i % run == 0 || follows(i)) { run } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::{F32, F64, Int8, Plain};
    use alloc::vec;

    /// Lanes in runs of `lane_run`, depths in runs of `depth_run`, gaps between them.
    fn offsets(count: usize, run: usize, gap: isize) -> Vec<isize> {
        (0..count).map(|i| (i / run) as isize * gap + (i % run) as isize).collect()
    }

    fn check<R: Arith>(make: impl Fn(usize) -> R::Packed) {
        let data: Vec<R::Packed> = (0..20_000).map(make).collect();
        for isa in Isa::available() {
            for (lane_run, depth_run) in [(1, 1), (40, 1), (7, 3), (3, 26), (1, 16), (1, 50), (33, 40)] {
                let (lanes, depths) = (offsets(40, lane_run, 61), offsets(50, depth_run, -70));
                let depths: Vec<isize> = depths.iter().map(|offset| offset + 7000).collect();
                let operand = PackOffsets::<R>::new(&data, lanes.clone(), depths.clone(), isa);
                for (lane, lane_count, width) in [(0, 32, 32), (5, 14, 14), (30, 10, 32), (2, 3, 14)] {
                    let group = R::kernel(isa).group;
                    let (depth, depth_count) = (4, 43);
                    let panel = Panel { lane, lane_count, depth, depth_count, width, group };
                    let mut out = vec![<R::Packed as Plain>::ZERO; panel.len()];
                    operand.pack(panel, &mut out);
                    let mut expected = vec![<R::Packed as Plain>::ZERO; panel.len()];
                    for l in 0..lane_count {
                        for d in 0..depth_count {
                            expected[panel.index(l, d)] = data[(lanes[lane + l] + depths[depth + d]) as usize];
                        }
                    }
                    assert_eq!(out, expected, "{isa:?}, {panel:?}, runs {lane_run} and {depth_run}");
                }
            }
        }
    }

    #[test]
    fn every_way_of_packing_gives_the_same_panel() {
        check::<F32>(|i| i as f32);
        check::<F64>(|i| i as f64);
        check::<Int8>(|i| i as i16);
    }

    #[test]
    fn shifted_columns_are_read_in_place() {
        let data: Vec<f32> = (0..4000).map(|i| (i % 13) as f32 - 6.0).collect();
        let lhs: Vec<f32> = (0..40 * 700).map(|i| (i % 7) as f32 - 3.0).collect();
        for isa in Isa::available() {
            for (rows, depth, cols) in [(1, 1, 1), (5, 9, 70), (40, 700, 129), (15, 330, 31)] {
                let shifts: Vec<isize> = (0..depth).map(|p| (p * 5 % 900) as isize).collect();
                let shifted = Shifted::new(&data, 3, (3, 1000), cols, shifts.clone());
                let starts = (0..rows).map(|row| (row * depth) as isize).collect();
                let weights = PackOffsets::<F32>::new(&lhs, starts, (0..depth as isize).collect(), isa);
                let sums = std::sync::Mutex::new(vec![f32::NAN; rows * 3 * cols]);
                crate::gemm::gemm_shifted::<F32>(isa, crate::gemm::Threads::All, &weights, &shifted, &|mut tile| {
                    for i in 0..tile.rows {
                        let (at, count) = ((tile.row + i) * 3 * cols + tile.col, tile.cols);
                        sums.lock().unwrap()[at..at + count].copy_from_slice(tile.row_mut(i));
                    }
                });
                for (at, &sum) in sums.into_inner().unwrap().iter().enumerate() {
                    let (row, strip, col) = (at / (3 * cols), at / cols % 3, at % cols);
                    let terms =
                        (0..depth).map(|p| lhs[row * depth + p] * data[3 + strip * 1000 + col + shifts[p] as usize]);
                    assert_eq!(sum, terms.sum::<f32>(), "{isa:?}, {rows} x {cols}, depth {depth}");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "leave 10 elements")]
    fn elements_outside_the_data_are_refused() {
        let _ = PackOffsets::<F32>::new(&[0.0; 10], vec![0, 6], vec![0, 4], Isa::Scalar);
    }
}
