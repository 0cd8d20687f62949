//! [`doctor`]: what CUDA has to offer here, as a report to paste.

use crate::backend::CudaBackend;
use crate::cache::DiskCache;
use crate::compiler;
use crate::driver::{DeviceInfo, device_count, driver_version};
use crate::libraries::Library;
use crate::matmul;
use crate::memory::bytes;
use fornax_ir::{Backend, BinaryOp, DType, Element, Graph, Op, ReduceOp, UnaryOp};
use std::fmt::Write;

/// Driver, libraries, cache and devices, each with a small self-test; and whether all is well.
pub fn doctor() -> (String, bool) {
    let mut text = String::new();
    let mut well = true;
    let mut line = |name: &str, found: Result<String, String>| {
        let (mark, told) = match found {
            Ok(told) => ("ok", told),
            Err(told) => {
                well = false;
                ("missing", told)
            }
        };
        let told = told.replace('\n', "\n                      ");
        writeln!(text, "{name:<12} {mark:<8} {told}").expect("strings take all text");
    };
    let place = |library: Library| library.path().map_or(String::new(), |path| format!(" at {}", path.display()));
    line(
        "driver",
        driver_version()
            .map(|version| format!("serves CUDA {}.{}{}", version / 1000, version % 1000 / 10, place(Library::Driver)))
            .map_err(|error| error.to_string()),
    );
    line(
        "nvrtc",
        compiler::version()
            .map(|(major, minor)| format!("{major}.{minor}{}", place(Library::Nvrtc)))
            .map_err(|error| error.to_string()),
    );
    line(
        "cublaslt",
        matmul::version()
            .map(|version| format!("{version}{}", place(Library::CublasLt)))
            .map_err(|error| error.to_string()),
    );
    let cache = DiskCache::user();
    let (files, size) = cache.size();
    let told = cache.folder().map(|folder| format!("{files} files, {} in {}", bytes(size), folder.display()));
    line("cache", told.ok_or("there is no folder for it; FORNAX_CACHE names one".to_string()));
    for index in 0..device_count().unwrap_or(0) {
        let told = DeviceInfo::new(index).map_err(|error| error.to_string()).and_then(|info| {
            let tested = self_test(index).map_err(|error| format!("self-test: {error}"))?;
            let (major, minor) = info.capability;
            Ok(format!(
                "{}, compute capability {major}.{minor}, {} multiprocessors, {}, L2 {}, PCI {}; {tested}",
                info.name,
                info.multiprocessors,
                bytes(info.memory),
                bytes(info.l2_cache as u64),
                info.pci
            ))
        });
        line(&format!("cuda:{index}"), told);
    }
    (text, well)
}

/// Runs a fused kernel, a reduction and a product; compares with what must come out.
fn self_test(index: usize) -> Result<String, Box<dyn std::error::Error>> {
    let cuda = CudaBackend::new(index)?;
    let mut graph = Graph::default();
    let (rows, columns) = (64, 96);
    let x = graph.input(DType::F32, [rows, columns]);
    let w = graph.input(DType::F32, [columns, rows]);
    let square = graph.push(Op::Binary(BinaryOp::Mul), &[x, x])?;
    let map = graph.push(Op::Unary(UnaryOp::Neg), &[square])?;
    let sum = graph.push(Op::Reduce { op: ReduceOp::Sum, dims: [1].as_slice().into() }, &[map])?;
    let product = graph.push(Op::Matmul { out: DType::F32 }, &[x, w])?;
    graph.outputs = vec![map, sum, product];
    // Small whole numbers: every sum is exact in f32, in any order.
    let value = |i: usize| ((i * 7 + i / 5) % 11) as f32 - 5.0;
    let xs: Vec<f32> = (0..rows * columns).map(value).collect();
    let ws: Vec<f32> = (0..rows * columns).map(|i| value(i + 3)).collect();
    let mut inputs = Vec::new();
    for values in [&xs, &ws] {
        let mut bytes = Vec::new();
        f32::write_le(values, &mut bytes);
        inputs.push(cuda.upload(DType::F32, &bytes)?);
    }
    let at = |i: usize| &xs[i * columns..][..columns];
    let want: [Vec<f32>; 3] = [
        xs.iter().map(|x| -x * x).collect(),
        (0..rows).map(|i| -at(i).iter().map(|x| x * x).sum::<f32>()).collect(),
        (0..rows * rows).map(|i| (0..columns).map(|k| at(i / rows)[k] * ws[k * rows + i % rows]).sum()).collect(),
    ];
    // Often enough to become a CUDA graph.
    for _ in 0..4 {
        let outcome = cuda.execute(&graph, inputs.clone())?;
        for (buffer, want) in outcome.outputs.iter().zip(&want) {
            let got = f32::read_le(&cuda.fetch(buffer, buffer.len())?);
            if got != *want {
                return Err("a kernel computes wrong values".into());
            }
        }
    }
    let (compiled, from_disk) = cuda.compiler().counts();
    Ok(format!("self-test passed ({compiled} kernels compiled, {from_disk} from the cache)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_a_line_for_everything() {
        let (text, _) = doctor();
        for name in ["driver", "nvrtc", "cublaslt", "cache"] {
            assert!(text.lines().any(|line| line.starts_with(name)), "{text}");
        }
    }
}
