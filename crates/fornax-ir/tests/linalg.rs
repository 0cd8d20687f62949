//! The interpreter's factorizations, held against the laws that define them.

use fornax_ir::{DType, Element, Graph, LinalgOp, Op, interpret, random_word};

/// The result's elements and the faults of one op on `f64` operands.
fn run(op: LinalgOp, operands: &[(&[usize], &[f64])]) -> (Vec<f64>, Vec<String>) {
    let mut graph = Graph::default();
    let ids: Vec<_> = operands.iter().map(|(shape, _)| graph.input(DType::F64, *shape)).collect();
    let id = graph.push(Op::Linalg(op), &ids).unwrap();
    graph.outputs.push(id);
    let inputs: Vec<Vec<u8>> = operands.iter().map(|(_, values)| bytes(values)).collect();
    let result = interpret(&graph, &inputs).unwrap();
    (f64::read_le(&result.outputs[0]), result.faults.into_iter().map(|fault| fault.message).collect())
}

fn bytes(values: &[f64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    f64::write_le(values, &mut bytes);
    bytes
}

/// Numbers between −1 and 1.
fn random(seed: u64, n: usize) -> Vec<f64> {
    (0..n as u64).map(|i| f64::from(random_word(seed, 0, i)) / 2f64.powi(31) - 1.0).collect()
}

/// `a [m, k] · b [k, n]`.
fn matmul(a: &[f64], b: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    (0..m * n).map(|at| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum()).collect()
}

fn transpose(a: &[f64], m: usize, n: usize) -> Vec<f64> {
    (0..m * n).map(|at| a[at % m * n + at / m]).collect()
}

#[track_caller]
fn assert_close(got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len());
    let off = got.iter().zip(want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(off <= tolerance, "off by {off}\n got {got:?}\nwant {want:?}");
}

#[track_caller]
fn assert_orthonormal_columns(a: &[f64], m: usize, n: usize) {
    let identity: Vec<f64> = (0..n * n).map(|at| f64::from(u8::from(at / n == at % n))).collect();
    assert_close(&matmul(&transpose(a, m, n), a, n, m, n), &identity, 1e-13);
}

const SIZES: [(usize, usize); 8] = [(1, 1), (2, 2), (5, 5), (7, 3), (3, 7), (1, 4), (4, 1), (12, 12)];

/// Random matrices, then ones of low rank, zero, and the identity.
fn matrices(m: usize, n: usize) -> Vec<Vec<f64>> {
    let low_rank = matmul(&random(7, m), &random(8, n), m, 1, n);
    let identity = (0..m * n).map(|at| f64::from(u8::from(at / n == at % n))).collect();
    vec![random(1, m * n), random(2, m * n), low_rank, vec![0.0; m * n], identity]
}

#[test]
fn cholesky_of_a_gram_matrix() {
    for n in [1, 2, 5, 9] {
        let x = random(3, n * (n + 3));
        let a = matmul(&x, &transpose(&x, n, n + 3), n, n + 3, n);
        let (l, faults) = run(LinalgOp::Cholesky, &[(&[n, n], &a)]);
        assert!(faults.is_empty());
        assert_close(&matmul(&l, &transpose(&l, n, n), n, n, n), &a, 1e-13);
    }
    // Only the lower triangle is read, each matrix of the batch by itself.
    let (l, faults) = run(LinalgOp::Cholesky, &[(&[2, 2, 2], &[4.0, 99.0, 2.0, 5.0, 1.0, 0.0, 2.0, 1.0])]);
    assert_eq!(l[..4], [2.0, 0.0, 1.0, 2.0]);
    assert_eq!(faults, ["matrix 1 of the batch: not positive definite: pivot 1 is -3"]);
}

#[test]
fn lu_with_its_rows_rebuilds() {
    for (m, n) in SIZES {
        for a in matrices(m, n) {
            let (packed, faults) = run(LinalgOp::Lu, &[(&[m, n], &a)]);
            assert!(faults.is_empty());
            let k = m.min(n);
            let at = |i: usize, j: usize| packed[i * (n + 1) + j];
            let lower = |i: usize, j: usize| {
                if i == j {
                    1.0
                } else if i > j {
                    at(i, j)
                } else {
                    0.0
                }
            };
            let l: Vec<f64> = (0..m * k).map(|x| lower(x / k, x % k)).collect();
            let u: Vec<f64> = (0..k * n).map(|x| if x / n <= x % n { at(x / n, x % n) } else { 0.0 }).collect();
            let pa: Vec<f64> = (0..m * n).map(|x| a[at(x / n, n) as usize * n + x % n]).collect();
            assert_close(&matmul(&l, &u, m, k, n), &pa, 1e-13);
            assert!(l.iter().all(|x| x.abs() <= 1.0));
        }
    }
}

#[test]
fn qr_rebuilds_from_orthonormal_columns() {
    for (m, n) in SIZES {
        for a in matrices(m, n) {
            let k = m.min(n);
            let (packed, _) = run(LinalgOp::Qr, &[(&[m, n], &a)]);
            let (q, rt) = packed.split_at(m * k);
            let r = transpose(rt, n, k);
            assert_orthonormal_columns(q, m, k);
            assert_close(&matmul(q, &r, m, k, n), &a, 1e-13);
            assert!((0..k).all(|i| (0..i.min(n)).all(|j| r[i * n + j] == 0.0)), "R is triangular");
        }
    }
}

#[test]
fn svd_rebuilds_in_descending_order() {
    for (m, n) in SIZES {
        for a in matrices(m, n) {
            let k = m.min(n);
            let (packed, faults) = run(LinalgOp::Svd, &[(&[m, n], &a)]);
            assert!(faults.is_empty());
            let (u, rest) = packed.split_at(m * k);
            let (s, vt) = rest.split_at(k);
            assert_orthonormal_columns(u, m, k);
            assert_orthonormal_columns(vt, n, k);
            assert!(s.windows(2).all(|pair| pair[0] >= pair[1]) && s.iter().all(|&s| s >= 0.0));
            let us: Vec<f64> = (0..m * k).map(|at| u[at] * s[at % k]).collect();
            assert_close(&matmul(&us, &transpose(vt, n, k), m, k, n), &a, 1e-13);
        }
    }
}

#[test]
fn eigh_rebuilds_in_ascending_order() {
    for n in [1, 2, 5, 12] {
        for a in matrices(n, n) {
            let lower = |i: usize, j: usize| a[i.max(j) * n + i.min(j)];
            let symmetric: Vec<f64> = (0..n * n).map(|at| lower(at / n, at % n)).collect();
            let (packed, faults) = run(LinalgOp::Eigh, &[(&[n, n], &a)]);
            assert!(faults.is_empty());
            let (w, v) = packed.split_at(n);
            assert_orthonormal_columns(v, n, n);
            assert!(w.windows(2).all(|pair| pair[0] <= pair[1]));
            let vw: Vec<f64> = (0..n * n).map(|at| v[at] * w[at % n]).collect();
            assert_close(&matmul(&vw, &transpose(v, n, n), n, n, n), &symmetric, 1e-13);
        }
    }
}

#[test]
fn eig_maps_vectors_to_multiples() {
    let rotation = vec![0.0, -1.0, 1.0, 0.0];
    let defective = vec![2.0, 1.0, 0.0, 0.0, 2.0, 1.0, 0.0, 0.0, 2.0];
    let cyclic = vec![0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];
    let mut cases = vec![(2, rotation), (3, defective), (4, cyclic)];
    for n in [1, 2, 3, 5, 8, 12, 17] {
        cases.extend(matrices(n, n).into_iter().map(|a| (n, a)));
        cases.extend((10..30).map(|seed| (n, random(seed, n * n))));
    }
    for (n, a) in cases {
        let (packed, faults) = run(LinalgOp::Eig, &[(&[n, n], &a)]);
        assert!(faults.is_empty());
        let pair = |row: usize, column: usize| (packed[(row * n + column) * 2], packed[(row * n + column) * 2 + 1]);
        for j in 0..n {
            let value = pair(0, j);
            let length: f64 = (1..=n).map(|i| pair(i, j).0.powi(2) + pair(i, j).1.powi(2)).sum();
            assert!((length - 1.0).abs() < 1e-13, "vector {j} has length² {length}");
            for i in 0..n {
                let (x, y) = pair(i + 1, j);
                let want = (value.0 * x - value.1 * y, value.0 * y + value.1 * x);
                let got = (0..n).fold((0.0, 0.0), |(re, im), k| {
                    (re + a[i * n + k] * pair(k + 1, j).0, im + a[i * n + k] * pair(k + 1, j).1)
                });
                assert!((got.0 - want.0).abs() < 1e-12 && (got.1 - want.1).abs() < 1e-12, "{n}: {got:?} {want:?}");
            }
        }
        let trace: f64 = (0..n).map(|i| a[i * n + i]).sum();
        let sum = (0..n).fold((0.0, 0.0), |sum, j| (sum.0 + pair(0, j).0, sum.1 + pair(0, j).1));
        assert!((trace - sum.0).abs() < 1e-12 && sum.1 == 0.0, "trace {trace}, sum {sum:?}");
    }
}

#[test]
fn triangular_solve_reads_one_triangle() {
    let a = [2.0, 5.0, 7.0, 4.0];
    let b = [2.0, 4.0, 15.0, 10.0];
    let solve = |upper, unit_diagonal| {
        run(LinalgOp::TriangularSolve { upper, unit_diagonal }, &[(&[2, 2], &a), (&[2, 2], &b)]).0
    };
    assert_eq!(solve(false, false), [1.0, 2.0, 2.0, -1.0]);
    assert_eq!(solve(true, false), [(2.0 - 5.0 * 3.75) / 2.0, (4.0 - 5.0 * 2.5) / 2.0, 3.75, 2.5]);
    assert_eq!(solve(false, true), [2.0, 4.0, 1.0, -18.0]);
    assert_eq!(solve(true, true), [2.0 - 75.0, 4.0 - 50.0, 15.0, 10.0]);
    let singular = run(
        LinalgOp::TriangularSolve { upper: false, unit_diagonal: false },
        &[(&[2, 2], &[1.0, 0.0, 1.0, 0.0]), (&[2, 1], &[1.0, 1.0])],
    );
    assert_eq!(singular.1, ["matrix 0 of the batch: singular: element 1 of the diagonal is 0"]);
}

#[test]
fn empty_matrices_and_huge_empty_batches() {
    assert_eq!(run(LinalgOp::Svd, &[(&[3, 0], &[])]).0, []);
    assert_eq!(run(LinalgOp::Lu, &[(&[2, 0], &[])]).0, [0.0, 1.0]);
    assert_eq!(run(LinalgOp::Eigh, &[(&[1 << 50, 0, 0], &[])]).0, []);
}

#[test]
fn values_that_are_not_finite_fault() {
    for op in [LinalgOp::Svd, LinalgOp::Eigh, LinalgOp::Eig] {
        let (_, faults) = run(op, &[(&[2, 2], &[1.0, 0.0, f64::NAN, 1.0])]);
        assert_eq!(faults, ["matrix 0 of the batch: holds NaN or infinity"], "{op:?}");
    }
}
