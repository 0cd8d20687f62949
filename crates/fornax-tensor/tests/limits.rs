//! Sizes at which counts, offsets and memory break: elements past 2³¹ and 2³², many results, temporaries.

use fornax_tensor::{DType, Device, GridSampleOptions, Tensor, step};

/// More elements than an `i32` or a `u32` counts.
const MANY: usize = (1 << 33) + 6;

/// Runs `f` on a device of its own, and tells how many bytes that held at the most.
fn peak(f: impl FnOnce(&Device)) -> u64 {
    let device = Device::new(fornax_cpu::CpuBackend::with_threads(2));
    f(&device);
    device.report().memory.peak
}

/// Cut out of views and numbers in a row that are never made as a whole.
#[test]
fn views_past_what_32_bits_count() {
    // Nothing holds the whole when the part is read: a temporary would live to the end of the statement.
    let part = |device: &Device, cut: fn(Tensor) -> Tensor| {
        cut(Tensor::arange(0, 3, 1, DType::I64, device).unsqueeze(1).expand([3, MANY]))
    };
    let row = |device: &Device, cut: fn(Tensor) -> Tensor| cut(Tensor::arange(0, MANY, 1, DType::I64, device));
    let last = MANY as i64 - 1;
    let taken = peak(|device| {
        let corner = part(device, |x| x.i((1.., MANY - 1)));
        assert_eq!(corner.to_vec::<i64>(), [1, 2]);
        let turned = part(device, |x| x.flip([0, 1]).i((.., MANY - 2..)));
        assert_eq!(turned.to_vec::<i64>(), [2, 2, 1, 1, 0, 0]);
        let transposed = part(device, |x| x.mt().i((MANY - 3.., 1)));
        assert_eq!(transposed.to_vec::<i64>(), [1; 3]);

        let end = row(device, |x| x.i(MANY - 2..));
        assert_eq!(end.to_vec::<i64>(), [last - 1, last]);
        let flipped = row(device, |x| x.flip([0]).i(..2));
        assert_eq!(flipped.to_vec::<i64>(), [last, last - 1]);
        let stepped = row(device, |x| x.i(step(.., -(1 << 32))));
        assert_eq!(stepped.to_vec::<i64>(), [last, last - (1 << 32), last - (1 << 33)]);
        let computed = row(device, |x| (x * 2 + 1).i(MANY - 1));
        assert_eq!(computed.item::<i64>(), 2 * last + 1);
        let cast = row(device, |x| x.to_dtype(DType::U8).i(MANY - 1));
        assert_eq!(cast.item::<u8>(), last as u8);
        // [2, 2³² + 3], turned.
        let column = row(device, |x| x.reshape([2, MANY / 2]).mt().i(MANY / 2 - 1));
        assert_eq!(column.to_vec::<i64>(), [MANY as i64 / 2 - 1, last]);
    });
    assert!(taken <= 1 << 20, "{taken} bytes");
}

/// A count of elements that no 64-bit number holds is refused when it is asked for.
#[test]
fn more_elements_than_there_are_addresses() {
    let device = Device::cpu();
    let x = Tensor::zeros([1, 1], &device);
    assert!(x.try_expand([usize::MAX, 2]).is_err());
    assert!(x.try_expand([1usize << 40, 1 << 40]).is_err());
    assert!(x.try_repeat([1 << 40, 1 << 40]).is_err());
}

/// cubecl#423, tract PR#2820: counts past what one launch takes.
#[test]
fn many_elements_and_many_results() {
    for device in [Device::cpu(), Device::cpu_unfused()] {
        let n = 10_000_019;
        let y = Tensor::arange(0, n, 1, DType::I32, &device) + 1;
        assert_eq!(y.sum(()).item::<i64>(), (n as i64) * (n as i64 + 1) / 2);
        let rows = Tensor::arange(0, 65_539 * 3, 1, DType::I32, &device).reshape([65_539, 3]);
        let sums = rows.sum(1).to_vec::<i64>();
        assert!(sums.iter().enumerate().all(|(i, &sum)| sum == 9 * i as i64 + 3));
        let deep = Tensor::arange(0, 2 * 81_920, 1, DType::I32, &device).reshape([81_920, 2, 1]).permute([2, 1, 0]);
        assert_eq!(deep.i((0, 1, 81_919)).item::<i32>(), 2 * 81_920 - 1);
    }
}

/// burn PR#4236: many temporaries of full size.
#[test]
fn sampling_a_grid_takes_little_memory() {
    let (mut given, mut result) = (0, 0);
    let taken = peak(|device| {
        let x = Tensor::rand([1, 3, 512, 512], device);
        let grid = Tensor::rand([1, 512, 512, 2], device) * 2.0 - 1.0;
        device.flush();
        given = device.report().memory.in_use;
        let y = x.grid_sample(&grid, &GridSampleOptions::default());
        result = 4 * y.numel() as u64;
        device.flush();
    });
    assert!(taken <= given + 3 * result, "{taken} bytes, {given} of them given, {result} of them the result");
}
