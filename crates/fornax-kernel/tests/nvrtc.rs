//! The CUDA C++ of kernels goes through NVRTC, which needs neither a GPU nor a driver. Where the library is not found
//! (`FORNAX_NVRTC` names it, else the usual names are tried), the tests say so and do nothing.
//! `FORNAX_NVRTC_ARCH` names another architecture than `sm_90`, `FORNAX_NVRTC_CASES` a number of random graphs.

use fornax_ir::Graph;
use fornax_kernel::emit::{Cuda, emit};
use fornax_kernel::ir::Function;
use libloading::{Library, Symbol};
use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

struct Nvrtc(Library);

type Program = *mut c_void;

impl Nvrtc {
    fn load() -> Option<Nvrtc> {
        let named = std::env::var("FORNAX_NVRTC").ok();
        let usual = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"].map(String::from);
        // SAFETY: loading NVRTC runs nothing but its own initializers.
        named.into_iter().chain(usual).find_map(|name| unsafe { Library::new(name) }.ok()).map(Nvrtc)
    }

    /// The log, if the source does not compile.
    fn compile(&self, source: &str) -> Result<(), String> {
        type Create = unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int;
        type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
        type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
        type Log = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
        type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;
        let architecture = std::env::var("FORNAX_NVRTC_ARCH").unwrap_or_else(|_| "sm_90".to_string());
        let architecture = format!("--gpu-architecture={architecture}");
        let options: Vec<CString> = Cuda::OPTIONS
            .iter()
            .copied()
            .chain([architecture.as_str()])
            .map(|option| CString::new(option).unwrap())
            .collect();
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let text = CString::new(source).unwrap();
        // SAFETY: the functions have these signatures in every version of NVRTC, and get pointers that live on.
        unsafe {
            let create: Symbol<'_, Create> = self.0.get(b"nvrtcCreateProgram").unwrap();
            let compile: Symbol<'_, Compile> = self.0.get(b"nvrtcCompileProgram").unwrap();
            let size: Symbol<'_, Size> = self.0.get(b"nvrtcGetProgramLogSize").unwrap();
            let log: Symbol<'_, Log> = self.0.get(b"nvrtcGetProgramLog").unwrap();
            let destroy: Symbol<'_, Destroy> = self.0.get(b"nvrtcDestroyProgram").unwrap();
            let mut program: Program = std::ptr::null_mut();
            let none = std::ptr::null();
            assert_eq!(create(&mut program, text.as_ptr(), none, 0, none.cast(), none.cast()), 0);
            let code = compile(program, options.len() as c_int, options.as_ptr());
            let mut len = 0;
            size(program, &mut len);
            let mut message = vec![0u8; len.max(1)];
            log(program, message.as_mut_ptr().cast());
            destroy(&mut program);
            let message = CStr::from_bytes_until_nul(&message).unwrap().to_string_lossy().into_owned();
            if code == 0 { Ok(()) } else { Err(message) }
        }
    }
}

/// Sizes at which threads share the work in other ways than random graphs do.
const LARGE: &[&str] = &[
    "%0 = input 0 : f32[16384, 4096] %1 = max %0, dims=[1] : f32[16384, 1] %2 = expand %1 : f32[16384, 4096]
     %3 = sub %0, %2 : f32[16384, 4096] %4 = exp %3 : f32[16384, 4096] %5 = sum %4, dims=[1] : f32[16384, 1]
     %6 = expand %5 : f32[16384, 4096] %7 = div %4, %6 : f32[16384, 4096] return %7",
    "%0 = input 0 : bf16[2, 3000000] %1 = max %0, dims=[1] : bf16[2, 1] %2 = expand %1 : bf16[2, 3000000]
     %3 = sub %0, %2 : bf16[2, 3000000] %4 = sum %3, dims=[1] : bf16[2, 1] return %3, %4",
    "%0 = input 0 : f32[16384, 8192] %1 = sum %0, dims=[1] : f32[16384, 1] %2 = sum %0, dims=[0] : f32[1, 8192]
     %3 = sum %0, dims=[0, 1] : f32[1, 1] %4 = argmax %0, dims=[0] : i64[1, 8192] return %1, %2, %3, %4",
    "%0 = input 0 : f16[70000, 60000] %1 = add %0, %0 : f16[70000, 60000] return %1",
    "%0 = input 0 : bf16[64, 512, 100] %1 = input 1 : bf16[64, 100, 300] %2 = matmul %0, %1 : bf16[64, 512, 300]
     %3 = cumsum %0, dim=1 : bf16[64, 512, 100] return %2, %3",
    "%0 = input 0 : f64[3, 100000] %1 = argsort %0, dim=1, descending=true : i64[3, 100000] return %1",
];

/// NVRTC takes the source of all kernels.
#[test]
fn kernels_of_random_graphs_compile() {
    let Some(nvrtc) = Nvrtc::load() else {
        eprintln!("NVRTC is not here: nothing was compiled");
        return;
    };
    let cases = std::env::var("FORNAX_NVRTC_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(25);
    let mut seen: HashSet<Function> = HashSet::new();
    let large = LARGE.iter().map(|text| Graph::parse(text).unwrap());
    for (seed, graph) in (0..cases).map(|seed| fornax_ir::fuzz::case(seed).0).chain(large).enumerate() {
        let program = fornax_kernel::lower(&fornax_compile::compile(&graph), &graph);
        for function in program.kernels {
            if seen.insert(function.clone()) {
                let source = emit(&function, &Cuda);
                if let Err(log) = nvrtc.compile(&source) {
                    panic!("graph {seed}: {log}\n{function}\n{source}");
                }
            }
        }
    }
    println!("{} kernels compiled", seen.len());
}

/// Kernels print as text that gives them back.
#[test]
fn text_gives_kernels_back() {
    for seed in 0..150 {
        let (graph, _) = fornax_ir::fuzz::case(seed);
        for function in fornax_kernel::lower(&fornax_compile::compile(&graph), &graph).kernels {
            let text = function.to_string();
            assert_eq!(Function::parse(&text).as_ref(), Ok(&function), "seed {seed}:\n{text}");
        }
    }
}
