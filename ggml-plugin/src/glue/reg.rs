//! The registration record (ggml-abi 2.1).
#![allow(unsafe_code)]

use super::plugin::Plugin;
use super::{backend, exports, guard, record};
use crate::abi::slot::reg as slot;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;

/// Version, four slots, context, and room: a host that has more slots than are known finds them
/// null, which is why the context, which only a backend itself reads, is null too.
const WORDS: usize = 16;

/// Name of registry, device and backend.
pub(super) const NAME: &CStr = c"ROCKET";

pub(super) fn record(plugin: &'static Plugin) -> usize {
    let mut words = [0; WORDS];
    // A 32-bit number in the low half of a little-endian word, padding above.
    words[0] = plugin.host.generation.api as usize;
    words[1 + slot::GET_NAME] = get_name as *const () as usize;
    words[1 + slot::GET_DEVICE_COUNT] = get_device_count as *const () as usize;
    words[1 + slot::GET_DEVICE] = get_device as *const () as usize;
    words[1 + slot::GET_PROC_ADDRESS] = get_proc_address as *const () as usize;
    record::create(plugin, &words)
}

/// What tells our records from others.
pub(super) fn own() -> usize {
    get_name as *const () as usize
}

fn plugin(reg: *const usize) -> Option<&'static Plugin> {
    // SAFETY: the host calls the slots of our record with our record.
    unsafe { record::owner(reg) }
}

extern "C" fn get_name(_reg: *const usize) -> *const c_char {
    NAME.as_ptr()
}

extern "C" fn get_device_count(reg: *const usize) -> usize {
    usize::from(plugin(reg).is_some_and(|p| p.unit.is_some()))
}

extern "C" fn get_device(reg: *const usize, index: usize) -> *const c_void {
    match plugin(reg) {
        Some(p) if index == 0 && p.unit.is_some() => p.records().device as *const c_void,
        _ => ptr::null(),
    }
}

extern "C" fn get_proc_address(reg: *const usize, name: *const c_char) -> *const c_void {
    guard("get_proc_address", ptr::null(), || {
        let no_device = plugin(reg).is_none_or(|p| p.unit.is_none());
        if name.is_null() || no_device {
            return ptr::null();
        }
        // SAFETY: a terminated string, as every caller passes.
        match unsafe { CStr::from_ptr(name) }.to_bytes() {
            b"ggml_backend_set_n_threads" => backend::set_n_threads as *const c_void,
            b"ggml_backend_get_features" => get_features as *const c_void,
            name => plugin(reg).map_or(ptr::null(), |p| exports::find(p, name)),
        }
    })
}

/// Pairs of strings, ended by a pair of nulls.
extern "C" fn get_features(reg: *const usize) -> *const usize {
    plugin(reg).and_then(|p| p.unit.as_ref()).map_or(ptr::null(), |u| u.features.as_ptr())
}
