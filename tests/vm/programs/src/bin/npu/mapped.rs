//! Physical addresses as 32-bit registers.

#![allow(unsafe_code)] // a border: mapped device memory

use memmap2::{MmapOptions, MmapRaw};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;

/// A piece of the physical address space.
#[derive(Debug)]
pub struct Registers(MmapRaw);

impl Registers {
    /// Maps `len` bytes from `address` on; the kernel must allow it (`iomem=relaxed`).
    pub fn map(address: u64, len: usize) -> io::Result<Registers> {
        let flags = nix::fcntl::OFlag::O_SYNC.bits();
        let mem = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/mem")?;
        MmapOptions::new().offset(address).len(len).map_raw(&mem).map(Registers)
    }

    fn at(&self, offset: usize) -> *mut u32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.0.len(), "no register at {offset}");
        self.0.as_mut_ptr().wrapping_add(offset).cast()
    }

    pub fn get(&self, offset: usize) -> u32 {
        // SAFETY: aligned and inside the mapping, which lives as long as `self`; others write it at any
        // time, which a volatile read of a word allows.
        unsafe { self.at(offset).read_volatile() }
    }

    pub fn set(&self, offset: usize, value: u32) {
        // SAFETY: as in `get`; it is no memory of Rust's.
        unsafe { self.at(offset).write_volatile(value) }
    }
}
