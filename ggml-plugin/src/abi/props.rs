//! `struct ggml_backend_dev_props` (ggml-abi 2.5). The caller's struct has exactly the measured
//! size: a byte more would be somebody else's.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_void};
use std::mem::offset_of;

/// Generations A1 to A3: 40 bytes, four capabilities.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PropsA {
    /// Name of the device.
    pub name: *const c_char,
    /// What it is, in words.
    pub description: *const c_char,
    /// Bytes.
    pub memory_free: usize,
    /// Bytes.
    pub memory_total: usize,
    /// Device type.
    pub kind: i32,
    /// What it can do.
    pub caps: CapsA,
}

/// Since B1: 56 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PropsB {
    /// Name of the device.
    pub name: *const c_char,
    /// What it is, in words.
    pub description: *const c_char,
    /// Bytes.
    pub memory_free: usize,
    /// Bytes.
    pub memory_total: usize,
    /// Device type.
    pub kind: i32,
    /// Bus address, or null.
    pub device_id: *const c_char,
    /// What it can do.
    pub caps: CapsB,
}

/// Capabilities.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapsA {
    /// Computes while the caller goes on.
    pub is_async: bool,
    /// Has a buffer type of pinned host memory.
    pub host_buffer: bool,
    /// Makes buffers of the caller's memory.
    pub buffer_from_host_ptr: bool,
    /// Has events.
    pub events: bool,
}

/// The same, and one that is padding before ggml 0.20.0.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapsB {
    /// Those of old.
    pub base: CapsA,
    /// Weights may stay in the mapped file.
    pub mmap_support: bool,
}

const _: () = assert!(size_of::<PropsA>() == 40 && offset_of!(PropsA, caps) == 36);
const _: () = assert!(size_of::<PropsB>() == 56 && offset_of!(PropsB, caps) == 48);
const _: () = assert!(offset_of!(PropsB, device_id) == 40);
const _: () = assert!(offset_of!(CapsB, mmap_support) == 4);

/// Writes the properties in the layout that has `bytes` bytes; nothing for any other number.
///
/// # Safety
/// `to` is null, or a struct of `bytes` bytes that may be written.
pub unsafe fn write(to: *mut c_void, bytes: usize, props: PropsB) {
    if to.is_null() {
        return;
    }
    let PropsB { name, description, memory_free, memory_total, kind, caps, .. } = props;
    match bytes {
        // SAFETY: the caller's struct has this size; hosts align it for its pointers.
        56 => unsafe { to.cast::<PropsB>().write_unaligned(props) },
        40 => {
            let old =
                PropsA { name, description, memory_free, memory_total, kind, caps: caps.base };
            // SAFETY: as above.
            unsafe { to.cast::<PropsA>().write_unaligned(old) }
        }
        _ => {}
    }
}
