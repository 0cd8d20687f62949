//! Modules, optimizers and schedules against recorded cases of PyTorch: the suites `nn`, `optim` and `sched`.
//!
//! [`Suite`] reads a folder and runs its cases; `cargo xtask conformance` reports on them, and the tests below hold
//! those of `testdata/conformance/`. The module `nn` knows how PyTorch's modules are called, `build` what they are here.

// `#[derive(Module)]` writes paths into the facade.
extern crate fornax_nn as fornax;

mod build;
mod config;
mod fixture;
mod nn;
mod optim;
mod sched;

pub use fixture::{Outcome, Suite};

#[cfg(test)]
mod tests {
    use super::*;
    use fornax_tensor::Device;
    use std::path::Path;

    #[track_caller]
    fn passes(name: &str) {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/conformance").join(name);
        let device = Device::from_name(&std::env::var("FORNAX_DEVICE").unwrap_or("cpu".into())).unwrap();
        let suite = Suite::read(&dir, &device).unwrap();
        let (mut passed, mut wrong) = (0, Vec::new());
        suite.run(
            |_| true,
            |id, _, outcome| match outcome {
                Outcome::Passed => passed += 1,
                Outcome::Failed(why) => wrong.push(format!("{id}: {why}")),
                Outcome::Missing => wrong.push(format!("{id}: there is no such thing")),
            },
        );
        assert!(wrong.is_empty(), "{} of {} cases are wrong:\n{}", wrong.len(), passed + wrong.len(), wrong.join("\n"));
        assert!(passed > 0, "{name} has no cases");
    }

    #[test]
    fn optimizers_take_the_steps_of_pytorch() {
        passes("optim");
    }

    #[test]
    fn schedules_give_the_rates_of_pytorch() {
        passes("sched");
    }

    #[test]
    fn modules_compute_what_those_of_pytorch_do() {
        passes("nn");
    }
}
