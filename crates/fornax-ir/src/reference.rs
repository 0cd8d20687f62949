//! stub
use crate::*;
use alloc::string::String;
use alloc::vec::Vec;
#[derive(Debug)]
pub struct ReferenceBackend;
impl ReferenceBackend {
    pub fn new() -> Self {
        ReferenceBackend
    }
}
impl Backend for ReferenceBackend {
    fn name(&self) -> String {
        String::from("reference")
    }
    fn upload(&self, _: DType, _: &[u8]) -> Result<Buffer, DeviceError> {
        panic!()
    }
    fn download<'a>(&'a self, _: &'a Buffer, _: usize) -> BoxFuture<'a, Result<Vec<u8>, DeviceError>> {
        panic!()
    }
    fn execute(&self, _: &Graph, _: Vec<Buffer>) -> Result<Outcome, DeviceError> {
        panic!()
    }
    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }
    fn memory(&self) -> Memory {
        Memory::default()
    }
}
