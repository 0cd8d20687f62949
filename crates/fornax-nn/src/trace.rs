//! Calls of layers, recorded while a summary is made. `#[traced]` puts [`enter`] and [`Call::leave`] around `forward`.

use alloc::format;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;
use fornax_tensor::{Device, Tensor};

/// What was recorded of one call.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Where the layer lies.
    pub address: usize,
    /// Its type, without generics and path.
    pub type_name: &'static str,
    /// The shapes of its results.
    pub output: String,
    /// Arithmetic in it, that of layers inside included.
    pub flops: u64,
}

struct Recorder {
    device: Device,
    records: Vec<Record>,
}

impl Recorder {
    /// Arithmetic so far. All that is recorded runs first, on a device that only counts it.
    fn flops(&self) -> u64 {
        self.device.flush();
        self.device.report().counter("flops")
    }
}

#[cfg(feature = "std")]
mod slot {
    use super::Recorder;
    use core::cell::RefCell;

    std::thread_local! {
        static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
    }

    pub(super) fn with<T>(f: impl FnOnce(&mut Option<Recorder>) -> T) -> T {
        RECORDER.with_borrow_mut(f)
    }
}

#[cfg(not(feature = "std"))]
mod slot {
    use super::Recorder;

    static RECORDER: spin::Mutex<Option<Recorder>> = spin::Mutex::new(None);

    pub(super) fn with<T>(f: impl FnOnce(&mut Option<Recorder>) -> T) -> T {
        f(&mut RECORDER.lock())
    }
}

/// Whether calls are recorded.
pub(crate) fn is_on() -> bool {
    slot::with(|recorder| recorder.is_some())
}

/// Calls of layers on `device` while `f` runs, each after those inside it; and all arithmetic.
pub(crate) fn record(device: &Device, f: impl FnOnce()) -> (Vec<Record>, u64) {
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            slot::with(|recorder| *recorder = None);
        }
    }
    let before = device.report().counter("flops");
    slot::with(|recorder| *recorder = Some(Recorder { device: device.clone(), records: Vec::new() }));
    let _off = Off;
    f();
    let recorder = slot::with(Option::take).expect("it was just put there");
    let flops = recorder.flops() - before;
    (recorder.records, flops)
}

/// A call that has begun.
pub(crate) struct Call {
    address: usize,
    type_name: &'static str,
    before: u64,
}

/// A call of a layer begins.
pub(crate) fn enter<L>(layer: &L) -> Call {
    let name = core::any::type_name::<L>();
    let name = name.split('<').next().unwrap_or(name);
    let before = slot::with(|recorder| recorder.as_ref().map_or(0, Recorder::flops));
    Call { address: core::ptr::from_ref(layer).addr(), type_name: name.rsplit(':').next().unwrap_or(name), before }
}

impl Call {
    /// The call ends.
    pub(crate) fn leave(self, result: &impl Shapes) {
        slot::with(|recorder| {
            let Some(recorder) = recorder else { return };
            let flops = recorder.flops() - self.before;
            let Call { address, type_name, .. } = self;
            recorder.records.push(Record { address, type_name, output: result.shapes(), flops });
        });
    }
}

/// Results of layers.
pub(crate) trait Shapes {
    /// Their shapes, to print.
    fn shapes(&self) -> String;
}

impl Shapes for Tensor {
    fn shapes(&self) -> String {
        self.shape().to_string()
    }
}

impl<A: Shapes, B: Shapes> Shapes for (A, B) {
    fn shapes(&self) -> String {
        format!("{}, {}", self.0.shapes(), self.1.shapes())
    }
}
