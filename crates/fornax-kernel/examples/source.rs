//! Prints the kernels of a graph in its text form, read from standard input: `cargo run --example source < graph.txt`.

use fornax_ir::Graph;
use fornax_kernel::emit::{Cuda, emit};
use std::io::Read;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let graph = Graph::parse(&text)?;
    let program = fornax_kernel::lower(&fornax_compile::compile(&graph), &graph);
    for function in &program.kernels {
        println!("{}", emit(function, &Cuda));
    }
    for step in &program.steps {
        for launch in &step.launches {
            let function = &program.kernels[launch.kernel];
            println!("{} {:?} × {}", function.name, launch.grid, function.threads);
        }
    }
    Ok(())
}
