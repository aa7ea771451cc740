//! No memory of our own: the host's CPU buffers, by its own functions (ggml-abi 2.4).
#![allow(unsafe_code)]

use super::plugin::Plugin;
use std::ffi::c_void;

pub(super) fn cpu_type(plugin: &Plugin) -> *const c_void {
    // SAFETY: takes nothing, returns a static object of the host.
    unsafe { (plugin.host.f.cpu_buffer_type)() }
}

pub(super) fn wrap(plugin: &Plugin, ptr: *mut c_void, size: usize) -> *const c_void {
    // SAFETY: the host promises `size` bytes at `ptr` for the life of the buffer.
    unsafe { (plugin.host.f.cpu_buffer_from_ptr)(ptr, size) }
}

pub(super) fn is_host(plugin: &Plugin, buft: *mut c_void) -> bool {
    // SAFETY: a live buffer type of the host.
    !buft.is_null() && unsafe { (plugin.host.f.buft_is_host)(buft) }
}
