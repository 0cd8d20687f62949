//! [`Kernels`]: functions of the kernel IR as functions of the device, each compiled and loaded once.

use crate::compiler::{Compiler, Source};
use crate::driver::Context;
use crate::error::{Result, check};
use cudarc::driver::sys;
use fornax_ir::DType;
use fornax_kernel::emit;
use fornax_kernel::ir::{Function, Param};
use std::collections::HashMap;
use std::ffi::CString;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// A function that the device can run.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub function: sys::CUfunction,
    /// Threads of a block.
    pub threads: u32,
    /// For each parameter, the dtype of a scalar; `None` for addresses.
    pub params: Vec<Option<DType>>,
    module: sys::CUmodule,
    context: Arc<Context>,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Drop for Kernel {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: the driver made the module, and nobody else has it.
            let _ = unsafe { sys::cuModuleUnload(self.module) };
        }
    }
}

/// All functions that were needed so far.
pub(crate) struct Kernels {
    context: Arc<Context>,
    pub compiler: Compiler,
    loaded: Mutex<HashMap<Function, Arc<Kernel>>>,
}

impl Kernels {
    pub fn new(context: &Arc<Context>, compiler: Compiler) -> Kernels {
        Kernels { context: Arc::clone(context), compiler, loaded: Mutex::default() }
    }

    /// The kernels for `functions`; new ones are compiled, several at a time. The device must be current.
    ///
    /// # Errors
    /// If one does not compile or load, or there is no compiler.
    pub fn get(&self, functions: &[Function]) -> Result<Vec<Arc<Kernel>>> {
        let nameless = |function: &Function| Function { name: String::new(), ..function.clone() };
        let keys: Vec<Function> = functions.iter().map(nameless).collect();
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let missing: Vec<usize> = (0..keys.len()).filter(|&i| !loaded.contains_key(&keys[i])).collect();
        let sources: Vec<Source> = missing
            .iter()
            .map(|&i| Source { name: functions[i].name.clone(), text: emit::emit(&functions[i], &emit::Cuda) })
            .collect();
        for (&i, code) in missing.iter().zip(self.compiler.compile(&sources)?) {
            loaded.insert(keys[i].clone(), Arc::new(self.load(&functions[i], code)?));
        }
        Ok(keys.iter().map(|key| Arc::clone(&loaded[key])).collect())
    }

    fn load(&self, function: &Function, mut code: Vec<u8>) -> Result<Kernel> {
        code.push(0); // PTX is text that ends in 0.
        let name = CString::new(function.name.as_str()).expect("names of functions are identifiers");
        let (mut module, mut handle) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the code is a whole module; the driver writes two handles.
        unsafe {
            check(sys::cuModuleLoadData(&mut module, code.as_ptr().cast()), &format!("loading {}", function.name))?;
            if let Err(error) =
                check(sys::cuModuleGetFunction(&mut handle, module, name.as_ptr()), "cuModuleGetFunction")
            {
                let _ = sys::cuModuleUnload(module);
                return Err(error);
            }
        }
        let params = function.params.iter().map(|param| match param {
            Param::Buffer { .. } => None,
            Param::Scalar(dtype) => Some(*dtype),
        });
        let (params, context) = (params.collect(), Arc::clone(&self.context));
        Ok(Kernel { function: handle, threads: function.threads, params, module, context })
    }
}
