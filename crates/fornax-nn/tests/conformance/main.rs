//! Modules, optimizers and schedules against what PyTorch gives for them.

// `#[derive(Module)]` writes paths into the facade.
extern crate fornax_nn as fornax;

mod fixture;
mod nn;
mod optim;
mod sched;

use fixture::Suite;

#[test]
fn optimizers_take_the_steps_of_pytorch() {
    Suite::read("optim").check(optim::check);
}

#[test]
fn schedules_give_the_rates_of_pytorch() {
    Suite::read("sched").check(|case, _| sched::check(case));
}

#[test]
fn modules_compute_what_those_of_pytorch_do() {
    Suite::read("nn").check(nn::check);
}
