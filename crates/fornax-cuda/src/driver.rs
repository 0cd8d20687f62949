//! The driver: devices, their contexts and streams, events, pinned memory. Calls that come from elsewhere go through
//! [`Context::enter`] first, since the driver keeps the current context per thread.

use crate::error::{Error, ErrorKind, Result, check};
use crate::libraries::Library;
use cudarc::driver::sys::{self, CUdevice_attribute_enum as Attribute, CUresult};
use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::{Arc, OnceLock};

/// The oldest version of CUDA that the driver must serve: 12.0.
const OLDEST_DRIVER: i32 = 12_000;

/// The oldest compute capability that is served: 7.0 (Volta), the first whose warps meet at named barriers.
const OLDEST_DEVICE: (i32, i32) = (7, 0);

/// Loads and starts the driver; gives the version of CUDA that it serves, 12040 for 12.4.
///
/// # Errors
/// If there is no driver, it does not start, or it is too old.
pub fn driver_version() -> Result<i32> {
    static VERSION: OnceLock<Result<i32>> = OnceLock::new();
    VERSION.get_or_init(start).clone()
}

fn start() -> Result<i32> {
    Library::Driver.load()?;
    let mut version = 0;
    // SAFETY: the driver is loaded; it writes one integer.
    unsafe { check(sys::cuDriverGetVersion(&mut version), "cuDriverGetVersion")? };
    new_enough(version)?;
    // SAFETY: the driver is loaded.
    match unsafe { sys::cuInit(0) } {
        CUresult::CUDA_SUCCESS => Ok(version),
        CUresult::CUDA_ERROR_NO_DEVICE => Err(no_device()),
        other => {
            let error = check(other, "cuInit").expect_err("success was matched above");
            Err(Error::new(ErrorKind::NoDriver, format!("the CUDA driver does not start: {error}")))
        }
    }
}

fn new_enough(version: i32) -> Result<()> {
    if version >= OLDEST_DRIVER {
        return Ok(());
    }
    let text = |version: i32| format!("{}.{}", version / 1000, version % 1000 / 10);
    let message = format!(
        "the CUDA driver serves CUDA {}, at least {} is needed; install a newer driver",
        text(version),
        text(OLDEST_DRIVER)
    );
    Err(Error::new(ErrorKind::DriverTooOld, message))
}

fn no_device() -> Error {
    let message = "the CUDA driver sees no device (CUDA_VISIBLE_DEVICES may hide it)";
    Error::new(ErrorKind::NoDevice, message)
}

/// How many devices there are.
///
/// # Errors
/// As [`driver_version`].
pub fn device_count() -> Result<usize> {
    driver_version()?;
    let mut count = 0;
    // SAFETY: the driver is started; it writes one integer.
    unsafe { check(sys::cuDeviceGetCount(&mut count), "cuDeviceGetCount")? };
    Ok(count as usize)
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its index in this process.
    pub index: usize,
    /// The vendor's name.
    pub name: String,
    /// Compute capability: `(9, 0)` for Hopper.
    pub capability: (i32, i32),
    /// Multiprocessors.
    pub multiprocessors: i32,
    /// Device memory, in bytes.
    pub memory: u64,
    /// Second-level cache, in bytes.
    pub l2_cache: i32,
    /// The device in its server: `0000:0b:00.0`.
    pub pci: String,
}

impl DeviceInfo {
    /// The device of this index.
    ///
    /// # Errors
    /// If there is no driver or no such device.
    pub fn new(index: usize) -> Result<DeviceInfo> {
        let count = device_count()?;
        let device = device(index, count)?;
        let mut name = [0; 256];
        let mut pci = [0; 32];
        let mut memory = 0;
        // SAFETY: the driver writes strings that end in 0 within the given lengths, and one size.
        let [name, pci] = unsafe {
            check(sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device), "cuDeviceGetName")?;
            check(sys::cuDeviceGetPCIBusId(pci.as_mut_ptr(), pci.len() as i32, device), "cuDeviceGetPCIBusId")?;
            check(sys::cuDeviceTotalMem_v2(&mut memory, device), "cuDeviceTotalMem")?;
            [name.as_ptr(), pci.as_ptr()].map(|text| CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        let attribute = |attribute| {
            let mut value = 0;
            // SAFETY: the driver writes one integer.
            unsafe { check(sys::cuDeviceGetAttribute(&mut value, attribute, device), "cuDeviceGetAttribute")? };
            Ok(value)
        };
        Ok(DeviceInfo {
            index,
            name,
            capability: (
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            memory: memory as u64,
            l2_cache: attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?,
            pci,
        })
    }
}

fn device(index: usize, count: usize) -> Result<sys::CUdevice> {
    if count == 0 {
        return Err(no_device());
    }
    if index >= count {
        let there = if count == 1 { "only cuda:0".to_string() } else { format!("cuda:0 to cuda:{}", count - 1) };
        return Err(Error::new(ErrorKind::NoSuchDevice, format!("there is no device cuda:{index}, {there}")));
    }
    let mut device = 0;
    // SAFETY: the driver is started, for it counted the devices; it writes one integer.
    unsafe { check(sys::cuDeviceGet(&mut device, index as i32), "cuDeviceGet")? };
    Ok(device)
}

/// A device in use: its primary context, which other CUDA libraries of the process share.
#[derive(Debug)]
pub(crate) struct Context {
    pub info: DeviceInfo,
    device: sys::CUdevice,
    context: sys::CUcontext,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// The device of this index.
    pub fn new(index: usize) -> Result<Arc<Context>> {
        let info = DeviceInfo::new(index)?;
        if info.capability < OLDEST_DEVICE {
            let ((major, minor), (needed, _)) = (info.capability, OLDEST_DEVICE);
            let message = format!(
                "cuda:{index} ({}) has compute capability {major}.{minor}, at least {needed}.0 is needed",
                info.name
            );
            return Err(Error::new(ErrorKind::DeviceTooOld, message));
        }
        let device = device(index, index + 1)?;
        let mut context = ptr::null_mut();
        // SAFETY: the driver writes one handle.
        unsafe { check(sys::cuDevicePrimaryCtxRetain(&mut context, device), "cuDevicePrimaryCtxRetain")? };
        Ok(Arc::new(Context { info, device, context }))
    }

    /// Makes the device the current one of this thread.
    pub fn enter(&self) -> Result<()> {
        // SAFETY: the context lives as long as `self`.
        unsafe { check(sys::cuCtxSetCurrent(self.context), "cuCtxSetCurrent") }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once. Errors have nowhere to go: at exit the driver may be gone already.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// A queue of work on a device.
#[derive(Debug)]
pub(crate) struct Stream {
    pub raw: sys::CUstream,
    pub context: Arc<Context>,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub fn new(context: &Arc<Context>) -> Result<Arc<Stream>> {
        context.enter()?;
        let mut raw = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the driver writes one handle.
        unsafe { check(sys::cuStreamCreate(&mut raw, flags), "cuStreamCreate")? };
        Ok(Arc::new(Stream { raw, context: Arc::clone(context) }))
    }

    /// Waits for all work in it.
    pub fn synchronize(&self) -> Result<()> {
        self.context.enter()?;
        // SAFETY: the stream lives as long as `self`.
        unsafe { check(sys::cuStreamSynchronize(self.raw), "waiting for the device") }
    }

    /// Queues zeros for `len` bytes.
    ///
    /// # Safety
    /// `place` has room for `len` bytes, and no work outside this stream uses them.
    pub unsafe fn clear(&self, place: u64, len: usize) -> Result<()> {
        // SAFETY: the caller vouches for the place.
        unsafe { check(sys::cuMemsetD8Async(place, 0, len, self.raw), "cuMemsetD8Async") }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: nobody else has the handle. Work that is still in the stream runs on.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}

/// A place in a stream that can be waited for.
#[derive(Debug)]
pub(crate) struct Event {
    raw: sys::CUevent,
    context: Arc<Context>,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    pub fn new(context: &Arc<Context>) -> Result<Event> {
        context.enter()?;
        let mut raw = ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the driver writes one handle.
        unsafe { check(sys::cuEventCreate(&mut raw, flags), "cuEventCreate")? };
        Ok(Event { raw, context: Arc::clone(context) })
    }

    pub fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both live.
        unsafe { check(sys::cuEventRecord(self.raw, stream.raw), "cuEventRecord") }
    }

    /// Waits on the host; an event that was never recorded has passed.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the event lives as long as `self`.
        unsafe { check(sys::cuEventSynchronize(self.raw), "waiting for the device") }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: nobody else has the handle.
            let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}

/// Host memory that the device reads and writes by itself.
#[derive(Debug)]
pub(crate) struct Pinned {
    start: NonNull<u8>,
    len: usize,
    context: Arc<Context>,
}

// SAFETY: the memory is owned.
unsafe impl Send for Pinned {}

impl Pinned {
    pub fn new(context: &Arc<Context>, len: usize) -> Result<Pinned> {
        context.enter()?;
        let mut start = ptr::null_mut::<c_void>();
        // SAFETY: the driver writes one pointer.
        unsafe { check(sys::cuMemHostAlloc(&mut start, len, 0), "cuMemHostAlloc")? };
        // SAFETY: the driver gave `len` bytes; zeros make them readable.
        unsafe { start.cast::<u8>().write_bytes(0, len) };
        let start = NonNull::new(start.cast()).expect("the driver reported success");
        Ok(Pinned { start, len, context: Arc::clone(context) })
    }

    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes are owned and were written; the caller waits for the device before it looks.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this is the only handle.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: the driver made it, nobody else has it.
            let _ = unsafe { sys::cuMemFreeHost(self.start.as_ptr().cast()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_driver_is_told_from_a_new_one() {
        assert_eq!(new_enough(13_000), Ok(()));
        assert_eq!(new_enough(12_000), Ok(()));
        let error = new_enough(11_080).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DriverTooOld);
        assert_eq!(
            error.to_string(),
            "the CUDA driver serves CUDA 11.8, at least 12.0 is needed; install a newer driver"
        );
    }

    #[test]
    fn a_wrong_index_is_told_before_the_driver_is_asked() {
        assert_eq!(device(0, 0).unwrap_err().kind(), ErrorKind::NoDevice);
        let error = device(3, 2).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSuchDevice);
        assert_eq!(error.to_string(), "there is no device cuda:3, cuda:0 to cuda:1");
        assert_eq!(device(1, 1).unwrap_err().to_string(), "there is no device cuda:1, only cuda:0");
    }
}
