//! Products against naive loops. Values are small integers, so sums are exact in every type and must agree to the bit.

use super::*;
use crate::simd::Isa;
use half::{bf16, f16};
use std::vec;
use std::vec::Vec;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }
}

/// A number that small integers convert to and from.
trait Number: Copy + PartialEq + core::fmt::Debug {
    fn of(x: i64) -> Self;
    fn get(self) -> i64;
}

macro_rules! number {
    ($($t:ty)*) => {$(
        impl Number for $t {
            fn of(x: i64) -> Self { x as $t }
            fn get(self) -> i64 { self as i64 }
        }
    )*};
}
number!(f32 f64 i8 i16 i32 i64 u8 u16 u32 u64);
impl Number for f16 {
    fn of(x: i64) -> Self {
        f16::from_f32(x as f32)
    }
    fn get(self) -> i64 {
        self.to_f32() as i64
    }
}
impl Number for bf16 {
    fn of(x: i64) -> Self {
        bf16::from_f32(x as f32)
    }
    fn get(self) -> i64 {
        self.to_f32() as i64
    }
}

/// A buffer with a matrix in it.
#[derive(Clone, Debug)]
struct Data<T> {
    data: Vec<T>,
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<isize>,
}

/// How a matrix lies in memory.
#[derive(Clone, Copy, Debug)]
enum Layout {
    Rows,
    Cols,
    PaddedRows,
    PaddedCols,
    Stepped,
    Reversed,
}

const LAYOUTS: [Layout; 6] =
    [Layout::Rows, Layout::Cols, Layout::PaddedRows, Layout::PaddedCols, Layout::Stepped, Layout::Reversed];

impl<T: Number> Data<T> {
    fn new(random: &mut Random, batch: &[usize], rows: usize, cols: usize, layout: Layout) -> Self {
        let (r, c) = (rows as isize, cols as isize);
        let (row, col, size) = match layout {
            Layout::Rows => (c, 1, r * c),
            Layout::Cols => (1, r, r * c),
            Layout::PaddedRows => (c + 3, 1, r * (c + 3)),
            Layout::PaddedCols => (1, r + 5, c * (r + 5)),
            Layout::Stepped => (3 * c + 1, 2, r * (3 * c + 1)),
            Layout::Reversed => (-c, -1, r * c),
        };
        let matrices: usize = batch.iter().product();
        let len = size as usize * matrices;
        let signed = T::of(-1).get() == -1;
        let data = (0..len).map(|_| T::of(random.below(7) as i64 - if signed { 3 } else { 0 })).collect();
        let mut strides = vec![row, col];
        let mut step = size;
        for dim in batch.iter().rev() {
            strides.insert(0, step);
            step *= *dim as isize;
        }
        let offset = if matches!(layout, Layout::Reversed) { (size - 1).max(0) as usize } else { 0 };
        let shape = [batch, &[rows, cols]].concat();
        Data { data, offset, shape, strides }
    }
    fn view(&self) -> View<'_, T> {
        View::new(&self.data, self.offset, &self.shape, &self.strides)
    }
    fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::new(&mut self.data, self.offset, &self.shape, &self.strides)
    }
    fn place(&self, index: &[usize]) -> usize {
        let offset: isize = index.iter().zip(&self.strides).map(|(i, s)| *i as isize * s).sum();
        (self.offset as isize + offset) as usize
    }
    fn at(&self, index: &[usize]) -> i64 {
        self.data[self.place(index)].get()
    }
}

/// `alpha · a · b + beta · c + add`, everything else of `c` kept.
fn naive<A: Number, B: Number, C: Number>(
    a: &Data<A>,
    b: &Data<B>,
    c: &Data<C>,
    [alpha, beta, add]: [i64; 3],
) -> Data<C> {
    let mut out = c.clone();
    let rank = c.shape.len();
    let (m, n, k) = (c.shape[rank - 2], c.shape[rank - 1], a.shape[rank - 1]);
    let batch = c.shape[..rank - 2].to_vec();
    for flat in 0..batch.iter().product() {
        let mut index = vec![0; rank];
        let mut rest: usize = flat;
        for dim in (0..batch.len()).rev() {
            index[dim] = rest % batch[dim];
            rest /= batch[dim];
        }
        let with = |i: usize, j: usize| {
            let mut index = index.clone();
            (index[rank - 2], index[rank - 1]) = (i, j);
            index
        };
        let lhs: Vec<i64> = (0..m * k).map(|e| a.at(&with(e / k, e % k))).collect();
        let rhs: Vec<i64> = (0..k * n).map(|e| b.at(&with(e / n, e % n))).collect();
        for i in 0..m {
            let mut row = vec![0i64; n];
            for p in 0..k {
                for (sum, x) in row.iter_mut().zip(&rhs[p * n..][..n]) {
                    *sum += lhs[i * k + p] * x;
                }
            }
            for (j, sum) in row.iter().enumerate() {
                let place = c.place(&with(i, j));
                out.data[place] = C::of(alpha * sum + beta * c.data[place].get() + add);
            }
        }
    }
    out
}

#[derive(Clone, Copy, Debug)]
struct Case {
    batch: [usize; 2],
    shape: [usize; 3],
    layouts: [Layout; 3],
    factors: [i64; 3],
}

#[track_caller]
fn check<R: Arith, A: Input<R> + Number, B: Input<R> + Number, C: Output<R::Acc> + Number>(
    random: &mut Random,
    isa: Isa,
    threads: Threads,
    case: Case,
) where
    R::Acc: Number,
{
    let Case { batch, shape: [m, n, k], layouts, factors: [alpha, beta, add] } = case;
    let batch: Vec<usize> = batch.into_iter().filter(|size| *size != 1).collect();
    let a = Data::<A>::new(random, &batch, m, k, layouts[0]);
    let b = Data::<B>::new(random, &batch, k, n, layouts[1]);
    let mut c = Data::<C>::new(random, &batch, m, n, layouts[2]);
    let want = naive(&a, &b, &c, case.factors);
    let config = Config { isa, threads, alpha: R::Acc::of(alpha), beta: R::Acc::of(beta) };
    let epilogue = |mut tile: Tile<'_, R::Acc>| {
        for i in 0..tile.rows {
            tile.row_mut(i).iter_mut().for_each(|x| *x = x.add(R::Acc::of(add)));
        }
    };
    let epilogue: Option<Epilogue<'_, R::Acc>> = if add == 0 { None } else { Some(&epilogue) };
    gemm::<R, A, B, C>(&config, a.view(), b.view(), c.view_mut(), epilogue);
    if let Some(i) = (0..c.data.len()).find(|i| c.data[*i] != want.data[*i]) {
        panic!("{} {case:?}: element {i}: {:?}, expected {:?}", isa.name(), c.data[i], want.data[i]);
    }
}

fn random_case(random: &mut Random) -> Case {
    let mut size = || match random.below(8) {
        0 => random.below(4),
        _ => random.below(71),
    };
    let shape = [size(), size(), size()];
    let layouts = [0; 3].map(|_| LAYOUTS[random.below(LAYOUTS.len())]);
    let factors = match random.below(4) {
        0 => [1, 0, 0],
        1 => [1, 1, 0],
        2 => [1, 0, 2],
        _ => [2, 3, random.below(2) as i64],
    };
    let batch = if random.below(4) == 0 { [1 + random.below(3), 1 + random.below(3)] } else { [1, 1] };
    Case { batch, shape, layouts, factors }
}

fn check_random<R: Arith, A: Input<R> + Number, B: Input<R> + Number, C: Output<R::Acc> + Number>(count: usize)
where
    R::Acc: Number,
{
    for isa in Isa::available() {
        let mut random = Random(7);
        for _ in 0..count {
            let case = random_case(&mut random);
            check::<R, A, B, C>(&mut random, isa, Threads::All, case);
        }
    }
}

#[test]
fn f32_products_match_naive_loops() {
    check_random::<F32, f32, f32, f32>(400);
}

#[test]
fn f64_products_match_naive_loops() {
    check_random::<F64, f64, f64, f64>(300);
}

#[test]
fn half_products_accumulate_in_f32() {
    check_random::<F32, f16, f16, f32>(100);
    check_random::<F32, bf16, bf16, bf16>(100);
    check_random::<F32, f16, f32, f16>(100);
}

#[test]
fn bf16_products_in_pairs_accumulate_in_f32() {
    check_random::<Bf16, bf16, bf16, f32>(200);
    check_random::<Bf16, bf16, bf16, bf16>(50);
}

#[test]
fn byte_products_accumulate_in_i32() {
    check_random::<Bytes, i8, i8, i32>(200);
    check_random::<Int8, i8, i8, i32>(200);
    check_random::<Int8, u8, i8, i32>(100);
    check_random::<Int8, u8, u8, i32>(100);
}

#[test]
fn integer_products_wrap() {
    check_random::<Wrapping<i8>, i8, i8, i8>(50);
    check_random::<Wrapping<i32>, i32, i32, i32>(100);
    check_random::<Wrapping<i64>, i64, i64, i64>(50);
    check_random::<Wrapping<u16>, u16, u16, u16>(50);
}

/// Shapes around tile edges, with several depth blocks, and skinny ones.
const ODD: [[usize; 3]; 14] = [
    [257, 193, 1031],
    [1, 1003, 517],
    [1003, 1, 517],
    [2, 515, 1300],
    [14, 33, 2049],
    [515, 2, 300],
    [33, 700, 3],
    [700, 33, 1],
    [13, 4097, 17],
    [4097, 13, 17],
    [300, 300, 0],
    [28, 64, 512],
    [29, 65, 513],
    [1, 1, 5000],
];

#[test]
fn odd_large_shapes_match_naive_loops() {
    for isa in Isa::available() {
        let mut random = Random(11);
        for shape in ODD {
            for layouts in [[Layout::Rows; 3], [Layout::Cols; 3], [Layout::Rows, Layout::Cols, Layout::PaddedRows]] {
                for factors in [[1, 0, 0], [1, 1, 1]] {
                    let case = Case { batch: [1, 1], shape, layouts, factors };
                    check::<F32, f32, f32, f32>(&mut random, isa, Threads::All, case);
                }
                let case = Case { batch: [1, 1], shape, layouts, factors: [1, 0, 0] };
                check::<F64, f64, f64, f64>(&mut random, isa, Threads::All, case);
                check::<Int8, i8, u8, i32>(&mut random, isa, Threads::All, case);
                check::<F32, bf16, bf16, f32>(&mut random, isa, Threads::All, case);
                check::<Bf16, bf16, bf16, f32>(&mut random, isa, Threads::All, case);
            }
        }
    }
}

#[test]
fn batches_of_any_size_match_naive_loops() {
    for isa in Isa::available() {
        let mut random = Random(13);
        for (batch, shape) in
            [([64, 3], [17, 31, 9]), ([3, 1], [200, 150, 100]), ([40, 2], [1, 64, 64]), ([5, 5], [64, 64, 64])]
        {
            for factors in [[1, 0, 0], [1, 0, 1], [3, 1, 0]] {
                let case = Case { batch, shape, layouts: [Layout::Rows; 3], factors };
                check::<F32, f32, f32, f32>(&mut random, isa, Threads::All, case);
                check::<F32, f16, f16, f16>(&mut random, isa, Threads::All, case);
            }
        }
    }
}

#[test]
fn broadcast_batches_fold_into_rows_or_columns() {
    let (batch, m, n, k) = (6, 5, 7, 11);
    let mut random = Random(17);
    let mut matrix = |rows, cols| Data::<f32>::new(&mut random, &[batch], rows, cols, Layout::Rows);
    let (mut a, mut b, c) = (matrix(m, k), matrix(k, n), matrix(m, n));
    for fixed in 0..3 {
        let (a_was, b_was) = (a.clone(), b.clone());
        if fixed != 1 {
            b.strides[0] = 0;
        }
        if fixed != 0 {
            a.strides[0] = 0;
        }
        let want = naive(&a, &b, &c, [1, 0, 0]);
        let mut got = c.clone();
        gemm::<F32, _, _, _>(&Config::default(), a.view(), b.view(), got.view_mut(), None);
        assert_eq!(got.data, want.data);
        (a, b) = (a_was, b_was);
    }
}

#[test]
fn nan_and_infinity_are_not_skipped() {
    for isa in Isa::available() {
        for (m, n) in [(1, 5), (5, 1), (5, 5), (40, 40)] {
            let mut a = vec![0.0f32; m * 3];
            a[1] = f32::NAN;
            let b = vec![0.0f32; 3 * n];
            let mut c = vec![f32::NAN; m * n];
            let config = Config { isa, ..Config::default() };
            let (lhs, rhs) = (View::row_major(&a, &[m, 3]), View::row_major(&b, &[3, n]));
            gemm::<F32, _, _, _>(&config, lhs, rhs, ViewMut::row_major(&mut c, &[m, n]), None);
            assert!(c[..n].iter().all(|x| x.is_nan()) && c[n..].iter().all(|x| *x == 0.0));
        }
    }
}

#[cfg(feature = "std")]
#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let pools = [1, 2, 3, 7].map(|n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap());
    for [m, n, k] in [[300, 500, 1100], [1, 4000, 600], [4000, 1, 600], [64, 3000, 700], [3000, 64, 70]] {
        let mut random = Random(19);
        let mut real = |len| (0..len).map(|_| random.next() as f32 / 1e8 - 10.0).collect::<Vec<f32>>();
        let (a, b) = (real(m * k), real(k * n));
        for isa in Isa::available() {
            for b_strides in [[n as isize, 1], [1, k as isize]] {
                let run = |threads| {
                    let mut c = vec![0.0f32; m * n];
                    let config = Config { isa, threads, ..Config::default() };
                    let (lhs, rhs) = (View::row_major(&a, &[m, k]), View::new(&b, 0, &[k, n], &b_strides));
                    gemm::<F32, _, _, _>(&config, lhs, rhs, ViewMut::row_major(&mut c, &[m, n]), None);
                    c
                };
                let want = run(Threads::One);
                for pool in &pools {
                    assert!(pool.install(|| run(Threads::All)) == want, "{} {m} {n} {k}", isa.name());
                }
            }
        }
    }
}

#[test]
fn packers_and_tile_closures_see_every_element() {
    struct Ones;
    impl Pack<i16> for Ones {
        fn pack(&self, panel: Panel, out: &mut [i16]) {
            for lane in 0..panel.lane_count {
                for depth in 0..panel.depth_count {
                    out[panel.index(lane, depth)] = 1;
                }
            }
        }
    }
    for isa in Isa::available() {
        for [m, n, k] in [[3, 5, 7], [100, 129, 1025], [300, 300, 300]] {
            let mut c = vec![0i32; m * n];
            let config = Config { isa, ..Config::default() };
            gemm_packed::<Int8, _>(&config, k, &Ones, &Ones, ViewMut::row_major(&mut c, &[m, n]), None);
            assert!(c.iter().all(|x| *x == k as i32));
            let sum = core::sync::atomic::AtomicI64::new(0);
            gemm_tiles::<Int8>(isa, Threads::All, [m, n, k], &Ones, &Ones, &|mut tile| {
                for i in 0..tile.rows {
                    let row: i64 = tile.row_mut(i).iter().map(|x| *x as i64).sum();
                    sum.fetch_add(row, core::sync::atomic::Ordering::Relaxed);
                }
            });
            assert_eq!(sum.into_inner(), (m * n * k) as i64);
        }
    }
}

#[test]
#[should_panic(expected = "gemm: shapes do not fit: a [2, 3], b [4, 2], c [2, 2]")]
fn shape_mismatch_names_all_shapes() {
    let x = [0.0f32; 8];
    let mut c = [0.0f32; 4];
    let (a, b) = (View::row_major(&x[..6], &[2, 3]), View::row_major(&x, &[4, 2]));
    gemm::<F32, _, _, _>(&Config::default(), a, b, ViewMut::row_major(&mut c, &[2, 2]), None);
}

#[test]
#[should_panic(expected = "elements of the result coincide")]
fn overlapping_results_are_refused() {
    let _ = ViewMut::new(&mut [0.0f32; 8], 0, &[2, 4], &[2, 1]);
}
