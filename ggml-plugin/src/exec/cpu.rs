//! The fallback: one node of the host's graph, computed by the host's own CPU backend
//! (ggml-abi 6.5). The result is what the CPU would have computed in the first place.
#![allow(unsafe_code)]

use crate::abi::host::{Functions, InitParams, Object};
use crate::abi::status;
use crate::abi::tensor::Tensor;
use std::ptr;

/// An instance of the host's CPU backend.
#[derive(Debug)]
pub struct CpuBackend {
    f: Functions,
    backend: Object,
    set_threads: Option<unsafe extern "C" fn(Object, i32)>,
}

// SAFETY: a backend may be used from any thread, one at a time (ggml-abi 6.4); `&mut` sees to it.
unsafe impl Send for CpuBackend {}

/// Value of the CPU device type.
const CPU: i32 = 0;

impl CpuBackend {
    /// Opens the host's CPU device.
    ///
    /// # Errors
    /// In words: the host has none, or it does not open.
    pub fn open(f: &Functions) -> Result<CpuBackend, String> {
        // SAFETY: functions of the registry with these signatures; a device is never freed.
        let (device, backend) = unsafe {
            let device = (f.dev_by_type)(CPU);
            if device.is_null() {
                return Err("the host has no CPU backend".to_owned());
            }
            (device, (f.dev_init)(device, ptr::null()))
        };
        if backend.is_null() {
            return Err("the host's CPU backend does not open".to_owned());
        }
        // SAFETY: the name is terminated; the extension has this signature in every generation.
        let set_threads = unsafe {
            let reg = (f.dev_reg)(device);
            let p = (f.reg_proc)(reg, c"ggml_backend_set_n_threads".as_ptr());
            std::mem::transmute::<Object, Option<unsafe extern "C" fn(Object, i32)>>(p)
        };
        Ok(CpuBackend { f: *f, backend, set_threads })
    }

    /// Computes one node. Its sources must be computed already, as they are when the host hands
    /// out the graph.
    ///
    /// # Errors
    /// The host's status, in words.
    pub fn compute(&mut self, node: &Tensor, threads: Option<i32>) -> Result<(), String> {
        if let (Some(set), Some(n)) = (self.set_threads, threads) {
            // SAFETY: our own instance of the CPU backend.
            unsafe { set(self.backend, n) };
        }
        let f = &self.f;
        // SAFETY: the context is large enough for one graph of one node (with a kilobyte for
        // alignment) and ends after the computation; the node and its sources belong to the host
        // and outlive it.
        let result = unsafe {
            let mem_size = (f.graph_overhead)(1, false) + (f.tensor_overhead)() + 1024;
            let params = InitParams { mem_size, mem_buffer: ptr::null_mut(), no_alloc: true };
            let context = (f.init)(params);
            if context.is_null() {
                return Err("no memory for a graph".to_owned());
            }
            let graph = (f.new_graph)(context, 1, false);
            (f.graph_add_node)(graph, node);
            let result = (f.graph_compute)(self.backend, graph);
            (f.free)(context);
            result
        };
        match result {
            status::SUCCESS => Ok(()),
            other => Err(format!("the host's CPU backend returned status {other}")),
        }
    }
}

impl Drop for CpuBackend {
    fn drop(&mut self) {
        // SAFETY: our own instance, freed once.
        unsafe { (self.f.backend_free)(self.backend) }
    }
}
