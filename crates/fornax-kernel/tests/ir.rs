//! What functions must not be, and what lockstep finds when they run.

use fornax_kernel::ir::Function;
use fornax_kernel::lockstep::{Bound, Buffer, launch};

#[track_caller]
fn parse(params: &str, body: &str) -> Function {
    Function::parse(&format!("kernel f threads 64 ({params}) {{\n{body}\n}}")).unwrap()
}

#[track_caller]
fn refused(params: &str, body: &str, why: &str) {
    let error = parse(params, body).verify().unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
}

#[test]
fn values_are_defined_once_and_before_their_uses() {
    refused("", "v0: u32 = thread v0: u32 = lane", "v0 is defined twice");
    refused("", "v1: u32 = add v0, v0 v0: u32 = thread", "v0 is not defined here");
    let inner = "v0: u32 = thread v1: bool = eq v0, v0 if v1 { v2: u32 = lane } v3: u32 = add v2, v0";
    refused("", inner, "v2 is not defined here");
}

#[test]
fn dtypes_fit() {
    refused("p0: f32, p1: u32", "v0: f32 = p0 v1: u32 = p1 v2: f32 = add v0, v1", "of one dtype");
    refused("p0: f16", "v0: f16 = p0 v1: f16 = add v0, v0", "add does not take f16");
    refused("p0: f32", "v0: f32 = p0 v1: f32 = and v0, v0", "and does not take f32");
    refused("p0: f32", "v0: u32 = p0", "no such scalar parameter");
    refused("p0: read f32", "v0: u32 = thread v1: u32 = load p0 v0", "of the memory's dtype");
    refused("p0: read f32", "v0: u32 = thread v1: f32 = load p0 v0 store p0 v0, v1", "the buffer is not for that");
    refused("p0: change f64", "v0: u32 = const 0 v1: f64, v2: f64, v3: f64, v4: f64 = load p0 v0", "16 bytes");
    refused("p0: change f32", "v0: u32 = const 0 v1: f32 = const 0x0 atomic maximum p0 v0, v1", "does not take f32");
}

#[test]
fn barriers_stand_where_all_threads_come_by() {
    let body = "v0: u32 = thread v1: u32 = const 3 v2: bool = lt v0, v1 if v2 { barrier }";
    refused("", body, "not all threads");
    let body = "v0: u32 = thread v1: u32 = const 1 for v2: u32 in v1, v0, v1 { barrier }";
    refused("", body, "not all threads");
    let body = "v0: u32 = block.0 v1: u32 = const 1 for v2: u32 in v1, v0, v1 { barrier }";
    assert_eq!(parse("", body).verify(), Ok(()));
}

#[test]
fn text_that_is_no_kernel_is_refused_with_its_line() {
    let error = |text: &str| Function::parse(text).unwrap_err().to_string();
    assert_eq!(error("kernel f threads 32 () {\n  v0: u32 = jump\n}"), "line 2: there is no instruction \"jump\"");
    assert_eq!(error("kernel f threads 32 () {\n  v0: u33 = lane\n}"), "line 2: expected a dtype, found \"u33\"");
    assert_eq!(error("kernel f threads 32 () {\n  v1: u32 = lane\n}"), "line 3: a value between others is not defined");
    assert_eq!(error("kernel f threads 32 () {"), "line 1: there is no instruction \"\"");
    assert!(error("kernel f threads 32 () {\n v4000000000: u32 = lane }").contains("expected a value"));
    let deep = format!("kernel f threads 32 () {{ v0: bool = const 1 {}", "if v0 { ".repeat(10_000));
    assert!(error(&deep).contains("nested too deep"));
}

/// Runs a kernel of one block with a buffer of 64 `u32`, the first half of it written.
#[track_caller]
fn violates(body: &str, why: &str) {
    let function = parse("p0: change u32", body);
    assert_eq!(function.verify(), Ok(()));
    let mut buffers = [Buffer::from_bytes(vec![0; 256])];
    let error = launch(&function, [2, 1, 1], &[Bound::Buffer(0)], &mut buffers).unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
}

#[test]
fn lockstep_finds_places_out_of_bounds() {
    violates("v0: u32 = thread v1: u32 = add v0, v0 v2: u32 = load p0 v1", "thread 32: load from element 64 of p0");
    let negative = "v0: i32 = const -1 v1: u32 = const 0 store p0 v0, v1";
    violates(negative, "store to element -1 of p0");
    violates(
        "v0: u32 = thread v1: u32, v2: u32 = load p0 v0",
        "thread 1: load from 2 elements from 1 on of p0, which is not",
    );
}

#[test]
fn lockstep_finds_races() {
    violates("v0: u32 = const 0 v1: u32 = thread store p0 v0, v1", "thread 1: store to element 0 of p0, which another");
    let other = "v0: u32 = thread v1: u32 = const 1 v2: u32 = xor v0, v1 v3: u32 = load p0 v0 store p0 v2, v3";
    violates(other, "another thread reads in this launch");
    let blocks = "v0: u32 = thread store p0 v0, v0";
    violates(blocks, "block 1, thread 0: store to element 0 of p0, which another thread writes");
    let shared = "shared s0: u32 64 v0: u32 = thread v1: u32 = const 1 v2: u32 = xor v0, v1 store s0 v0, v0";
    violates(&format!("{shared} v3: u32 = load s0 v2"), "another thread has written since the last barrier");
    let fine = parse("p0: change u32", &format!("{shared} barrier v3: u32 = load s0 v2"));
    assert_eq!(launch(&fine, [1, 1, 1], &[Bound::Buffer(0)], &mut [Buffer::new(0)]), Ok(()));
}

#[test]
fn lockstep_finds_reads_of_what_nobody_wrote() {
    violates("shared s0: u32 64 v0: u32 = thread v1: u32 = load s0 v0", "which nobody has written");
    let function = parse("p0: change u32", "v0: u32 = thread v1: u32 = load p0 v0");
    let error = launch(&function, [1, 1, 1], &[Bound::Buffer(0)], &mut [Buffer::new(256)]).unwrap_err();
    assert!(error.to_string().contains("which nobody has written"), "{error}");
}

#[test]
fn lockstep_finds_threads_that_stay_away() {
    let some = "v0: u32 = thread v1: u32 = const 3 v2: bool = lt v0, v1 if v2 { v3: u32 = shuffle xor v0, v1 }";
    violates(some, "thread 3: does not come to a shuffle of its warp");
    // Told by a value that the verifier takes for the same in all threads.
    let loaded = "v0: u32 = thread store p0 v0, v0 v1: u32 = const 1 v2: u32 = load p0 v0";
    violates(&format!("{loaded} for v3: u32 in v1, v1, v0 {{ }}"), "a loop with step 0");
}

#[test]
fn atomics_add_up() {
    let function = parse("p0: change u32", "v0: u32 = const 0 v1: u32 = thread atomic add p0 v0, v1");
    let mut buffers = [Buffer::from_bytes(vec![0; 4])];
    launch(&function, [3, 1, 1], &[Bound::Buffer(0)], &mut buffers).unwrap();
    assert_eq!(buffers[0].bytes(), (3 * (63 * 64 / 2) as u32).to_le_bytes());
}
