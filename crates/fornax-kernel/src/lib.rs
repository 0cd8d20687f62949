//! From plans to kernels: the kernel IR, the languages it is written in, and how plans of `fornax-compile` become launches.
//!
//! [`lower()`] turns a plan and a graph into a [`Program`]: functions of the kernel [`ir`] and a list of launches. A device
//! [`emit`]s each function in its language, compiles it and runs the launches; [`lockstep`] runs them on the host, slowly
//! and with every access checked.
//!
//! This crate knows no device API: no driver, no queue, no memory but the host's.
#![forbid(unsafe_code)]

pub mod emit;
pub mod ir;
pub mod lockstep;
mod lower;
mod program;

pub use lower::{Settings, lower, lower_with};
pub use program::{Arg, BufferId, Call, FaultKind, FaultSite, Launch, MatmulCall, Operand, Program, Step};
