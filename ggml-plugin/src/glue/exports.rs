//! Functions of this plugin's own that a program finds by `ggml_backend_reg_get_proc_address`
//! (ggml-plugin-behaviour 1): counters, for tests that must know where an op ran. `docs/using.md` has
//! the prototypes.
#![allow(unsafe_code)]

use super::guard;
use super::plugin::Plugin;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The plugin that was last asked for a function: they take no registration record.
static ASKED: AtomicPtr<Plugin> = AtomicPtr::new(ptr::null_mut());

/// The function of this name, or null.
pub(super) fn find(plugin: &'static Plugin, name: &[u8]) -> *const c_void {
    let found = match name {
        b"ggml_backend_rocket_route_ops" => route_ops as *const c_void,
        b"ggml_backend_rocket_cpu_fallbacks" => cpu_fallbacks as *const c_void,
        b"ggml_backend_rocket_moe_stats" => moe_stats as *const c_void,
        _ => return ptr::null(),
    };
    ASKED.store(ptr::from_ref(plugin).cast_mut(), Ordering::Release);
    found
}

fn asked() -> Option<&'static Plugin> {
    // SAFETY: null, or a plugin, which is never freed.
    unsafe { ASKED.load(Ordering::Acquire).as_ref() }
}

/// `uint64_t ggml_backend_rocket_route_ops(const char * route)`
extern "C" fn route_ops(route: *const c_char) -> u64 {
    guard("route_ops", 0, || {
        // SAFETY: null, or a terminated string of the caller's.
        let route = (!route.is_null()).then(|| unsafe { CStr::from_ptr(route) }.to_string_lossy());
        asked().map_or(0, |p| p.stats.on_npu(route.as_deref()))
    })
}

/// `uint64_t ggml_backend_rocket_cpu_fallbacks(void)`
extern "C" fn cpu_fallbacks() -> u64 {
    guard("cpu_fallbacks", 0, || asked().map_or(0, |p| p.stats.cpu_fallbacks()))
}

/// `void ggml_backend_rocket_moe_stats(uint64_t * resident, uint64_t * streamed)`
extern "C" fn moe_stats(resident: *mut u64, streamed: *mut u64) {
    guard("moe_stats", (), || {
        let holdings = asked().map(|p| p.holdings()).unwrap_or_default();
        // SAFETY: each is null, or a number of the caller's to be written.
        unsafe {
            if let Some(resident) = resident.as_mut() {
                *resident = holdings.experts.unwrap_or(0);
            }
            if let Some(streamed) = streamed.as_mut() {
                *streamed = holdings.experts_streamed.unwrap_or(0);
            }
        }
    });
}
