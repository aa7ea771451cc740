//! One backend instance (ggml-abi 2.3).
#![allow(unsafe_code)]

use super::plugin::Plugin;
use super::{compute, guard, record, reg};
use crate::abi::{BackendTable, status};
use crate::exec::activation::Prepared;
use crate::exec::cpu::CpuBackend;
use crate::log::{Level, line, stderr};
use std::ffi::{c_char, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

/// What belongs to one instance.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) plugin: &'static Plugin,
    /// Tells this context from others.
    pub(super) id: u64,
    /// CPU threads of the last `ggml_backend_set_n_threads`; 0 before one.
    pub(super) threads: AtomicI32,
    /// Opened at the first op that needs it.
    pub(super) cpu: Mutex<Option<CpuBackend>>,
    /// Converted activations, kept between ops: fresh pages cost more than the conversion.
    pub(super) scratch: Mutex<Prepared>,
    /// For results whose place is not free yet, likewise.
    pub(super) spare: Mutex<Vec<Vec<f32>>>,
}

/// Identifies this backend among others; any constant that nobody else uses.
static GUID: [u8; 16] = *b"ggml-rocket npu\0";

/// The record: guid, the table, device, context. Freed by [`free`].
pub(super) fn create(plugin: &'static Plugin) -> *const c_void {
    let instance = Instance {
        plugin,
        id: plugin.enter(),
        threads: AtomicI32::new(0),
        cpu: Mutex::new(None),
        scratch: Mutex::default(),
        spare: Mutex::default(),
    };
    let instance = Box::into_raw(Box::new(instance));
    let words = words(&plugin.host.generation.backend, plugin.records().device, instance as usize);
    record::create(instance, &words) as *const c_void
}

fn words(table: &BackendTable, device: usize, context: usize) -> Vec<usize> {
    let mut words = vec![0; table.words()];
    words[0] = GUID.as_ptr() as usize;
    words[1 + table.get_name] = get_name as *const () as usize;
    words[1 + table.free] = free as *const () as usize;
    words[1 + table.graph_compute] = graph_compute as *const () as usize;
    words[table.device()] = device;
    words[table.context()] = context;
    words
}

/// The instance behind a record.
///
/// # Safety
/// `record` is null or one that [`create`] made and [`free`] has not seen.
unsafe fn instance<'a>(record: *const usize) -> Option<&'a Instance> {
    // SAFETY: the owner of these records is their instance.
    unsafe { record::owner(record) }
}

extern "C" fn get_name(_backend: *const usize) -> *const c_char {
    reg::NAME.as_ptr()
}

extern "C" fn free(backend: *mut usize) {
    guard("free", (), || {
        // SAFETY: the host frees a backend once.
        let instance = unsafe { record::destroy::<Instance>(backend) };
        if instance.is_null() {
            return;
        }
        // SAFETY: made by `create`, and nobody else's any more.
        let instance = unsafe { Box::from_raw(instance) };
        // A forked child ends on its own: the counters, the report and the locks are its parent's.
        if instance.plugin.is_own_process() {
            finish(instance.plugin);
            instance.plugin.leave(instance.id);
            instance.plugin.publish(true);
        }
    });
}

/// The end of a context is the last moment at which the host's logger surely works.
fn finish(plugin: &Plugin) {
    let engine = plugin.unit.as_ref().and_then(|u| u.runner.engine());
    for text in engine.map(|e| e.outcome()).unwrap_or_default() {
        // Everything resident is as expected; the rest the user can do something about.
        let level = if text.contains(';') { Level::Notice } else { Level::Info };
        line(level, &text);
    }
    if let Some(text) = plugin.watch.end() {
        line(Level::Notice, &text);
    }
    if plugin.knobs.stats {
        for text in plugin.stats.summary() {
            // The user asked for it: hosts drop INFO, and some drop everything by now.
            stderr(&text);
        }
    }
    if let Some(path) = &plugin.knobs.report
        && let Err(e) = plugin.stats.write_report(path, &plugin.subject())
    {
        line(Level::Warn, &format!("ROCKET_REPORT={}: {e}", path.display()));
    }
}

extern "C" fn graph_compute(backend: *const usize, graph: *mut c_void) -> i32 {
    guard("graph_compute", status::FAILED, || {
        // SAFETY: the host passes a live instance of ours.
        match unsafe { instance(backend) } {
            Some(instance) => compute::graph(instance, graph),
            None => status::FAILED,
        }
    })
}

/// The number is for redone ops only; the NPU's workers have their own (`ROCKET_N_THREADS`).
pub(super) extern "C" fn set_n_threads(backend: *const usize, threads: i32) {
    // SAFETY: the host passes a live instance of ours.
    if let Some(instance) = unsafe { instance(backend) } {
        instance.threads.store(threads.max(0), Ordering::Relaxed);
    }
}
