//! The differential fuzzer of `fornax-ir` on the CPU: plans against the interpreter, bit for bit the same on 1, 2 and 5
//! threads. `FORNAX_SEED` and `FORNAX_COUNT` choose the cases.

mod support;

use fornax_cpu::CpuBackend;
use fornax_ir::{Graph, fuzz};
use std::panic::{AssertUnwindSafe, catch_unwind};
use support::execute;

/// What is wrong with the CPU's results, if anything.
fn trouble(backends: &[CpuBackend], graph: &Graph, inputs: &[Vec<u8>]) -> Option<String> {
    let expected = match fuzz::expect(graph, inputs) {
        Ok(expected) => expected,
        Err(error) => return Some(error.to_string()),
    };
    let mut first: Option<Vec<Vec<u8>>> = None;
    for cpu in backends {
        let Ok((got, faults)) = catch_unwind(AssertUnwindSafe(|| execute(cpu, graph, inputs))) else {
            return Some("panic".to_string());
        };
        if let Some(fault) = faults.first() {
            return Some(fault.message.clone());
        }
        for (idx, (expected, got)) in expected.iter().zip(&got).enumerate() {
            if let Some(mismatch) = expected.compare(got) {
                return Some(format!("output {idx}: {mismatch}"));
            }
        }
        if first.as_ref().is_some_and(|first| *first != got) {
            return Some("other bits on another number of threads".to_string());
        }
        first = Some(got);
    }
    None
}

#[test]
fn cases_equal_the_interpreter() {
    let number = |name: &str, or: u64| std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(or);
    let (first, count) = (number("FORNAX_SEED", 0), number("FORNAX_COUNT", 150));
    let backends = [1, 2, 5].map(CpuBackend::with_threads);
    for seed in first..first + count {
        let (graph, inputs) = fuzz::case(seed);
        if trouble(&backends, &graph, &inputs).is_some() {
            let mut fails = |graph: &Graph, inputs: &[Vec<u8>]| trouble(&backends, graph, inputs).is_some();
            let (graph, inputs) = fuzz::shrink(graph, inputs, &mut fails);
            let trouble = trouble(&backends, &graph, &inputs).unwrap_or_default();
            panic!("seed {seed}: {trouble}\n{graph}\n{}", fornax_compile::compile(&graph));
        }
    }
}
