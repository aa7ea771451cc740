//! The device record (ggml-abi 2.2 and 2.5).
#![allow(unsafe_code)]

use super::plugin::Plugin;
use super::{backend, buffer, experts, facts, guard, record, reg};
use crate::abi::generation::ACCEL_B;
use crate::abi::props::{self, CapsA, CapsB, PropsB};
use crate::abi::slot::device as slot;
use crate::abi::tensor::Tensor;
use crate::live::Seen;
use crate::log::{self, Level};
use crate::route::{self, OpFacts, Reason, Route};
use crate::watch::LARGE_ROWS;
use std::ffi::{c_char, c_void};
use std::path::Path;
use std::ptr;

/// The record: the table, registration record, context.
pub(super) fn record(plugin: &'static Plugin, reg: usize) -> usize {
    let slots = plugin.host.generation.device_slots;
    let mut words = vec![0; slots + 2];
    words[slot::GET_NAME] = get_name as *const () as usize;
    words[slot::GET_DESCRIPTION] = get_description as *const () as usize;
    words[slot::GET_MEMORY] = get_memory as *const () as usize;
    words[slot::GET_TYPE] = get_type as *const () as usize;
    words[slot::GET_PROPS] = get_props as *const () as usize;
    words[slot::INIT_BACKEND] = init_backend as *const () as usize;
    words[slot::GET_BUFFER_TYPE] = get_buffer_type as *const () as usize;
    words[slot::BUFFER_FROM_HOST_PTR] = buffer_from_host_ptr as *const () as usize;
    words[slot::SUPPORTS_OP] = supports_op as *const () as usize;
    words[slot::SUPPORTS_BUFT] = supports_buft as *const () as usize;
    words[slot::OFFLOAD_OP] = offload_op as *const () as usize;
    // The host buffer type and the event slots stay null.
    words[slots] = reg;
    words[slots + 1] = ptr::from_ref(plugin) as usize;
    record::create(plugin, &words)
}

fn plugin(device: *const usize) -> Option<&'static Plugin> {
    // SAFETY: the host calls the slots of our record with our record.
    unsafe { record::owner(device) }
}

extern "C" fn get_name(_device: *const usize) -> *const c_char {
    reg::NAME.as_ptr()
}

extern "C" fn get_description(device: *const usize) -> *const c_char {
    let unit = plugin(device).and_then(|p| p.unit.as_ref());
    unit.map_or(reg::NAME.as_ptr(), |u| u.description.as_ptr())
}

/// The NPU works in the host's memory. The figures are the host's own rather than 0/0: newer hosts
/// replace 0/0 by exactly them, and older ones report it as an error (ggml-abi 2.2).
fn memory() -> (usize, usize) {
    rocket_runtime::board::memory(Path::new("/"))
        .map_or((0, 0), |m| (m.available as usize, m.total as usize))
}

extern "C" fn get_memory(_device: *const usize, free: *mut usize, total: *mut usize) {
    guard("get_memory", (), || {
        let (f, t) = memory();
        // SAFETY: the host passes two numbers to be written.
        unsafe {
            if let Some(free) = free.as_mut() {
                *free = f;
            }
            if let Some(total) = total.as_mut() {
                *total = t;
            }
        }
    });
}

extern "C" fn get_type(device: *const usize) -> i32 {
    plugin(device).map_or(ACCEL_B, |p| p.host.generation.accel)
}

const CAPS: CapsB = CapsB {
    base: CapsA { is_async: false, host_buffer: false, buffer_from_host_ptr: true, events: false },
    mmap_support: true,
};

extern "C" fn get_props(device: *const usize, to: *mut c_void) {
    guard("get_props", (), || {
        let Some(bytes) = plugin(device).map(|p| p.host.generation.props_bytes) else { return };
        let (memory_free, memory_total) = memory();
        let new = PropsB {
            name: get_name(device),
            description: get_description(device),
            memory_free,
            memory_total,
            kind: get_type(device),
            device_id: ptr::null(),
            caps: CAPS,
        };
        // SAFETY: the host passes its struct, whose size was measured (P6).
        unsafe { props::write(to, bytes, new) };
    });
}

extern "C" fn init_backend(device: *const usize, _params: *const c_char) -> *const c_void {
    guard("init_backend", ptr::null(), || plugin(device).map_or(ptr::null(), backend::create))
}

extern "C" fn get_buffer_type(device: *const usize) -> *const c_void {
    plugin(device).map_or(ptr::null(), buffer::cpu_type)
}

extern "C" fn buffer_from_host_ptr(
    device: *const usize,
    ptr: *mut c_void,
    size: usize,
    _max_tensor_size: usize,
) -> *const c_void {
    plugin(device).map_or(ptr::null(), |p| buffer::wrap(p, ptr, size))
}

extern "C" fn supports_op(device: *const usize, op: *const Tensor) -> bool {
    route_of(device, op, "supports_op").is_some()
}

extern "C" fn offload_op(device: *const usize, op: *const Tensor) -> bool {
    // Products alone: attention has no weights that would have to come along (ggml-abi 6).
    let route = route_of(device, op, "offload_op");
    matches!(route, Some(Route::Product { .. } | Route::Experts { .. }))
}

fn route_of(device: *const usize, op: *const Tensor, what: &str) -> Option<Route> {
    guard(what, None, || {
        let plugin = plugin(device)?;
        // SAFETY: the host passes a tensor it is building a graph with.
        let tensor = unsafe { Tensor::from_ptr(op) }?;
        let facts = facts::of(&plugin.host, tensor)?;
        // Attention is no product: where weights are out of reach it would hide that.
        let large = matches!(facts, OpFacts::MulMat(_)) && facts.rows() >= LARGE_ROWS;
        let decided = route::decide(&facts, &plugin.policy()).and_then(|route| {
            if let Route::Experts { numerics, shape } = &route {
                experts::admit(plugin, tensor, shape, *numerics)?;
            }
            Ok(route)
        });
        plugin.stats.asked(&Seen::of(&facts), decided.err());
        match decided {
            Ok(route) => {
                if large {
                    plugin.watch.accept();
                }
                if let (OpFacts::MulMat(p), Some([_, k, n, slices])) = (facts, route.products()) {
                    let address = tensor.source(0).map_or(0, |w| w.data as usize);
                    plugin.image.offer(address, p.weight.dtype, (k * n * slices) as u64);
                }
                Some(route)
            }
            Err(reason) => {
                if let OpFacts::MulMat(product) = facts
                    && large
                    && product.weight_is_leaf
                {
                    let foreign = reason == Reason::WeightNotInHostMemory;
                    let weight = tensor.source(0).filter(|_| foreign);
                    let buffer = weight.and_then(|w| plugin.host.buffer_name(w));
                    if let Some(text) = plugin.watch.decline(reason, buffer) {
                        log::line(Level::Notice, &text);
                    }
                }
                None
            }
        }
    })
}

extern "C" fn supports_buft(device: *const usize, buft: *mut c_void) -> bool {
    plugin(device).is_some_and(|p| buffer::is_host(p, buft))
}
