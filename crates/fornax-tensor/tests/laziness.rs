//! When work runs, what of it runs, and what several threads see.

use fornax_tensor::{Device, ErrorKind, Tensor};
use std::thread;

#[test]
fn threads_that_record_and_read_at_once_see_their_own_values() {
    let device = Device::new(fornax_cpu::CpuBackend::new());
    thread::scope(|scope| {
        for number in 0..4i64 {
            let device = device.clone();
            scope.spawn(move || {
                for round in 0..200 {
                    let x = Tensor::full([8], number, fornax_tensor::DType::I64, &device);
                    let mut sum = x.clone();
                    for _ in 0..round % 7 {
                        // Each operand is dropped as soon as the next op is recorded.
                        sum = (sum * 2) + 1;
                    }
                    if round % 3 == 0 {
                        device.flush();
                    }
                    let want = (0..round % 7).fold(number, |sum, _| sum * 2 + 1);
                    assert_eq!((sum + 0).to_vec::<i64>(), [want; 8]);
                }
            });
        }
    });
}

#[test]
fn a_fault_belongs_to_the_values_that_depend_on_it() {
    let device = Device::cpu();
    let x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0], [3], &device);
    let good = &x * 2.0;
    let bad = x.index_select(0, &Tensor::from_vec(vec![0i64, 7], [2], &device));
    let worse = &bad + 1.0;
    let error = worse.try_to_vec::<f32>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Execution);
    let message = error.to_string();
    assert!(message.contains("7") && message.contains("laziness.rs"), "{message}");
    assert_eq!(good.to_vec::<f32>(), [2.0, 4.0, 6.0]);
    assert_eq!((&x + 1.0).to_vec::<f32>(), [2.0, 3.0, 4.0]);
}

#[test]
fn new_sizes_and_scalars_compile_nothing() {
    let device = Device::new(fornax_cpu::CpuBackend::new());
    let run = |batch: usize, scale: f64| {
        let x = Tensor::ones([batch, 6], &device);
        let y = (x * scale).softmax(-1).sum(-1);
        assert_eq!(y.dims(), [batch]);
        for value in y.to_vec::<f32>() {
            assert!((value - 1.0).abs() < 1e-6);
        }
    };
    // A size of 1 is a structure of its own: it broadcasts.
    run(3, 0.5);
    run(1, 0.5);
    let before = device.report();
    for batch in 1..20 {
        run(batch, batch as f64);
    }
    let report = device.report().since(&before);
    assert_eq!(report.counter("plans_compiled"), 0, "{report}");
}

#[test]
fn a_long_chain_is_recorded_run_and_dropped_without_recursion() {
    let x = Tensor::from([0.0, 1.0]).requires_grad();
    let mut y = x.clone();
    for _ in 0..50_000 {
        y += 1.0;
    }
    assert_eq!(y.to_vec::<f32>(), [50_000.0, 50_001.0]);
    drop(y);
}

#[test]
fn doubling_sixty_times_has_one_entry_a_doubling() {
    let x = Tensor::from([1.0]).requires_grad();
    let mut y = x.clone();
    for _ in 0..60 {
        y = &y + &y;
    }
    let gradients = y.sum(()).backward();
    assert_eq!(gradients.get(&x).unwrap().item::<f32>(), (1u64 << 60) as f32);
}

#[test]
fn memory_does_not_grow_over_steps() {
    let device = Device::new(fornax_cpu::CpuBackend::new());
    let mut w = Tensor::ones([64, 64], &device).requires_grad();
    let mut after_ten = 0;
    for step in 0..200 {
        let x = Tensor::ones([32, 64], &device);
        let loss = x.matmul(&w).square().mean(());
        let gradients = loss.backward();
        w = (w.detach() - gradients.get(&w).unwrap() * 1e-4).requires_grad();
        device.flush();
        let in_use = device.report().memory.in_use;
        if step == 10 {
            after_ten = in_use;
        }
        assert!(step <= 10 || in_use == after_ten, "step {step}: {in_use} bytes in use, {after_ten} after ten steps");
    }
}

/// Threads share the log, so a graph may hold the ops of several: a fault of one is nobody else's.
#[test]
fn a_fault_stays_with_its_thread() {
    for device in [Device::cpu(), Device::reference()] {
        thread::scope(|scope| {
            for number in 0..4i64 {
                let device = &device;
                scope.spawn(move || {
                    for round in 0..300i64 {
                        let ints = Tensor::from_slice(&[round, number, 7], [3], device);
                        let floats = Tensor::from_slice(&[round as f64, number as f64, 7.0], [3], device);
                        if number % 2 == 0 {
                            let zeros = Tensor::from_slice(&[1, 0, 3i64], [3], device);
                            assert!(ints.div_floor(&zeros).try_to_vec::<i64>().is_err());
                            let far = Tensor::from_slice(&[0, 9, 1i64], [3], device);
                            assert!(floats.gather(0, &far).try_to_vec::<f64>().is_err());
                        } else {
                            assert_eq!(ints.div_floor(2).to_vec::<i64>(), [round / 2, number / 2, 3]);
                            let (sum, square) = (floats.sum(()), floats.square());
                            assert_eq!(sum.item::<f64>(), (round + number + 7) as f64);
                            assert_eq!(square.to_vec::<f64>()[2], 49.0);
                            let order = ints.argsort(0, false);
                            assert_eq!(floats.gather(0, &order).to_vec::<f64>().len(), 3);
                            assert!(
                                floats.prod(()).item::<f64>().is_finite() && floats.i0().sum(()).item::<f64>() > 0.0
                            );
                        }
                    }
                });
            }
        });
    }
}

/// What there is no memory for is lost with all that is made of it; the rest of its graph is there.
#[test]
fn no_memory_for_one_value_is_no_loss_of_others() {
    let device = Device::cpu();
    let x = Tensor::from_slice(&[1.0, 2.0, 3.0], [3], &device);
    let small = &x * 2.0;
    let huge = x.sum(()).expand([1usize << 44]).exp();
    let again = x.sum(()).expand([1usize << 44]).exp();
    let made_of_it = &huge + 1.0;
    let sorted = huge.argsort(0, false);
    let total = x.sum(());
    assert_eq!(small.to_vec::<f64>(), [2.0, 4.0, 6.0]);
    assert_eq!(total.item::<f64>(), 6.0);
    for lost in [huge, again, made_of_it] {
        let error = lost.try_to_vec::<f64>().unwrap_err();
        assert!(error.to_string().contains("no memory for"), "{error}");
    }
    assert!(sorted.try_to_vec::<i64>().is_err());
    assert_eq!((&small + 1.0).to_vec::<f64>(), [3.0, 5.0, 7.0]);
}
