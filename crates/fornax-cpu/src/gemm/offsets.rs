//! [`PackOffsets`]: operands whose elements lie at a sum of two offsets, one for the lane and one for the depth.
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
    #[should_panic(expected = "leave 10 elements")]
    fn elements_outside_the_data_are_refused() {
        let _ = PackOffsets::<F32>::new(&[0.0; 10], vec![0, 6], vec![0, 4], Isa::Scalar);
    }
}
