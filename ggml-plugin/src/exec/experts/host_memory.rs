//! The host's weights, read by a thread that the host does not know of.
//!
//! The host may free a model at any time after its contexts have ended. A plain read would then end the
//! process; reading this process's memory as a file fails with an error instead.

use crate::exec::identity;
use crate::exec::weight::Form;
use rocket_runtime::{Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Where a stack of experts lies, one after another.
#[derive(Debug, Clone, Copy)]
pub struct StackSource {
    /// First byte.
    pub address: usize,
    /// Experts.
    pub experts: usize,
    /// How each is stored.
    pub form: Form,
}

impl StackSource {
    /// Reads an expert into `to`, whose length becomes its bytes.
    ///
    /// # Errors
    /// [`Error::Unusable`] when the memory is gone.
    pub fn read(&self, memory: &Memory, expert: usize, to: &mut Vec<u8>) -> Result<()> {
        let bytes = self.form.bytes().unwrap_or(0);
        to.resize(bytes, 0);
        self.read_at(memory, expert * bytes, to)
    }

    /// Whether these still are the weights that a key stands for: they may have been replaced while
    /// they were read.
    ///
    /// # Errors
    /// [`Error::Unusable`] when the memory is gone.
    pub fn is_still(&self, memory: &Memory, hash: u64) -> Result<bool> {
        let len = self.form.bytes().unwrap_or(0) * self.experts;
        let read = |at: usize, to: &mut [u8]| self.read_at(memory, at, to);
        Ok(identity::hash_of(len, read)? == hash)
    }

    fn read_at(&self, memory: &Memory, offset: usize, to: &mut [u8]) -> Result<()> {
        let at = self.address + offset;
        memory.0.read_exact_at(to, at as u64).map_err(|e| Error::Unusable {
            why: format!("the weights of experts cannot be read any more ({e})"),
        })
    }
}

/// This process's memory.
#[derive(Debug)]
pub struct Memory(File);

impl Memory {
    /// Opens it.
    ///
    /// # Errors
    /// [`Error::Unusable`] where /proc is not there.
    pub fn open() -> Result<Memory> {
        let open = File::open("/proc/self/mem");
        open.map(Memory)
            .map_err(|e| Error::Unusable { why: format!("/proc/self/mem cannot be read: {e}") })
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use super::*;
    use crate::exec::weight::Decode;

    #[test]
    fn experts_are_read_and_memory_that_is_gone_is_an_error() {
        let data: Vec<u8> = (0..96).collect();
        let address = data.as_ptr() as usize;
        // SAFETY: no host decoder.
        let form = unsafe { Form::new([2, 4], 16, Decode::F32) };
        let source = |address| StackSource { address, experts: 3, form };
        let memory = Memory::open().unwrap();
        let mut to = Vec::new();
        source(address).read(&memory, 2, &mut to).unwrap();
        assert_eq!(to, &data[64..96]);
        let hash = identity::hash(&data);
        assert!(source(address).is_still(&memory, hash).unwrap());
        assert!(!source(address).is_still(&memory, !hash).unwrap());
        assert!(source(64).is_still(&memory, hash).is_err());
        // The first page is never mapped.
        assert!(source(64).read(&memory, 0, &mut to).is_err());
    }
}
