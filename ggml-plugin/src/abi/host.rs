//! The host's functions this plugin calls, as typed pointers found at load time (ggml-abi 5.5).
#![allow(unsafe_code)]

use super::ops::Ops;
use super::symbols::Resolve;
use super::tensor::Tensor;
use super::{Generation, probe, selfcheck, verdict};
use crate::route::{Block, Dtype};
use std::ffi::{CStr, CString, c_char, c_void};

/// An object of the host that is only passed around.
pub type Object = *mut c_void;

/// `struct ggml_init_params`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct InitParams {
    /// Bytes of the arena.
    pub mem_size: usize,
    /// Caller's memory, or null.
    pub mem_buffer: Object,
    /// Tensors get no data.
    pub no_alloc: bool,
}

/// Decodes `count` elements of a row to F32.
pub type ToFloat = unsafe extern "C" fn(*const c_void, *mut f32, i64);

/// `struct ggml_type_traits` (ggml-abi 2.8).
#[repr(C)]
#[derive(Debug)]
pub struct TypeTraits {
    /// Name.
    pub type_name: *const c_char,
    /// Elements of a block.
    pub blck_size: i64,
    /// Of interleaved blocks, unused.
    pub blck_size_interleave: i64,
    /// Bytes of a block.
    pub type_size: usize,
    /// Not a plain float or integer.
    pub is_quantized: bool,
    /// The values the CPU backend decodes.
    pub to_float: Option<ToFloat>,
    /// Its inverse, not used here.
    pub from_float_ref: usize,
}

const _: () = assert!(size_of::<TypeTraits>() == 56);
const _: () = assert!(std::mem::offset_of!(TypeTraits, to_float) == 40);

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// Functions without which the plugin cannot work.
        #[derive(Debug, Clone, Copy)]
        pub struct Functions { $($(#[$doc])* pub $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)* }

        impl Functions {
            /// Their names.
            pub const SYMBOLS: &[&CStr] = &[$($symbol),*];

            fn resolve(host: &dyn Resolve) -> Result<Functions, String> {
                $(
                    let f = host.symbol($symbol).ok_or_else(|| missing($symbol))?;
                    // SAFETY: the exported function of this name has this signature in every
                    // supported generation (ggml-abi 3, public headers).
                    let $name = unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) $(-> $ret)?>(f.as_ptr())
                    };
                )*
                Ok(Functions { $($name),* })
            }
        }
    };
}

fn missing(symbol: &CStr) -> String {
    format!("the host does not export {}", symbol.to_string_lossy())
}

functions! {
    /// Whether the CPU can read memory of this buffer type.
    buft_is_host = c"ggml_backend_buft_is_host": fn(Object) -> bool;
    /// Type of a buffer.
    buffer_get_type = c"ggml_backend_buffer_get_type": fn(Object) -> Object;
    /// Usage of a buffer.
    buffer_get_usage = c"ggml_backend_buffer_get_usage": fn(Object) -> i32;
    /// First byte of a buffer.
    buffer_get_base = c"ggml_backend_buffer_get_base": fn(Object) -> Object;
    /// The plain CPU type.
    cpu_buffer_type = c"ggml_backend_cpu_buffer_type": fn() -> Object;
    /// A buffer of that type around memory of the caller.
    cpu_buffer_from_ptr = c"ggml_backend_cpu_buffer_from_ptr": fn(Object, usize) -> Object;
    /// Nodes of a graph.
    graph_n_nodes = c"ggml_graph_n_nodes": fn(Object) -> i32;
    /// One node.
    graph_node = c"ggml_graph_node": fn(Object, i32) -> *mut Tensor;
    /// Appends a node as it is.
    graph_add_node = c"ggml_graph_add_node": fn(Object, *const Tensor);
    /// Bytes a graph of so many nodes takes in a context.
    graph_overhead = c"ggml_graph_overhead_custom": fn(usize, bool) -> usize;
    /// A graph with room for so many nodes.
    new_graph = c"ggml_new_graph_custom": fn(Object, usize, bool) -> Object;
    /// A context.
    init = c"ggml_init": fn(InitParams) -> Object;
    /// Ends a context.
    free = c"ggml_free": fn(Object);
    /// First device of a type.
    dev_by_type = c"ggml_backend_dev_by_type": fn(i32) -> Object;
    /// Opens a device.
    dev_init = c"ggml_backend_dev_init": fn(Object, *const c_char) -> Object;
    /// Registration record of a device.
    dev_reg = c"ggml_backend_dev_backend_reg": fn(Object) -> Object;
    /// An extension of a backend.
    reg_proc = c"ggml_backend_reg_get_proc_address": fn(Object, *const c_char) -> Object;
    /// Runs a graph to its end.
    graph_compute = c"ggml_backend_graph_compute": fn(Object, Object) -> i32;
    /// Closes a backend.
    backend_free = c"ggml_backend_free": fn(Object);
    /// Bytes a tensor takes in a context.
    tensor_overhead = c"ggml_tensor_overhead": fn() -> usize;
    /// Bytes of a block of a type.
    type_size = c"ggml_type_size": fn(i32) -> usize;
    /// Elements of a block of a type.
    blck_size = c"ggml_blck_size": fn(i32) -> i64;
    /// How a type is stored and decoded.
    type_traits = c"ggml_get_type_traits": fn(i32) -> *const TypeTraits;
    /// Name of a buffer type.
    buft_name = c"ggml_backend_buft_name": fn(Object) -> *const c_char;
}

type LogFn = unsafe extern "C" fn(i32, *const c_char, ...);

/// The host's logger.
#[derive(Debug, Clone, Copy)]
pub struct Logger(LogFn);

impl Logger {
    /// The exported logger, if there is one.
    pub fn resolve(host: &dyn Resolve) -> Option<Logger> {
        let f = host.symbol(c"ggml_log_internal")?;
        // SAFETY: (level, format, ...) in every generation.
        Some(Logger(unsafe { std::mem::transmute::<*mut c_void, LogFn>(f.as_ptr()) }))
    }

    /// One line, newline included, in one call: hosts drop continuations (ggml-abi 4).
    pub fn line(&self, level: i32, text: &str) {
        // A zero byte cannot come from us; without it this cannot fail.
        let Ok(text) = CString::new(format!("{text}\n").replace('\0', " ")) else { return };
        // SAFETY: the message is an argument, never the format.
        unsafe { (self.0)(level, c"%s".as_ptr(), text.as_ptr()) }
    }
}

/// How the host stores a type.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// Its blocks.
    pub block: Block,
    /// Its decoder; F32 needs none.
    pub to_float: Option<ToFloat>,
}

/// A host whose layout is known: what the rest of the plugin works with.
#[derive(Debug, Clone)]
pub struct Host {
    /// Its functions.
    pub f: Functions,
    /// Its op numbers.
    pub ops: Ops,
    /// Its layout.
    pub generation: Generation,
    /// Version and commit.
    pub version: String,
    /// It marks the nodes to compute (ggml-abi 2.6); without that every node is.
    pub marks_compute: bool,
}

impl Host {
    /// Probes the host, decides, resolves and checks itself.
    ///
    /// `own` is as in [`probe::measure`]; with `adapt` an unknown layout is taken as measured.
    ///
    /// # Errors
    /// One sentence with the host's version, the numbers found, what is supported, and the action.
    pub fn recognise(host: &dyn Resolve, own: usize, adapt: bool) -> Result<Host, String> {
        let version = probe::version(host);
        let refuse = |why: String| format!("{version}: {why}");
        let probes = probe::measure(host, own, |p| verdict::worth_probing(p, adapt));
        let generation = verdict::decide(&probes, adapt).map_err(refuse)?;
        let missing = |why| {
            refuse(format!("{why}; this plugin needs a complete shared ggml; reinstall the host"))
        };
        let f = Functions::resolve(host).map_err(missing)?;
        let ops = Ops::resolve(host).map_err(missing)?;
        selfcheck::check(&f).map_err(|why| {
            refuse(format!("{why}; use a host built with ggml's default limits and formats"))
        })?;
        let marks_compute = host.symbol(c"ggml_build_forward_select").is_some();
        Ok(Host { f, ops, generation, version, marks_compute })
    }

    /// A host of generation C that has only functions.
    #[cfg(test)]
    pub(crate) fn for_tests(host: &dyn Resolve, ops: Ops) -> Host {
        Host {
            f: Functions::resolve(host).unwrap(),
            ops,
            generation: **super::SUPPORTED.last().unwrap(),
            version: "ggml of a test".to_owned(),
            marks_compute: true,
        }
    }

    /// How the host stores a type, and its decoder. `None` for types this version does not know
    /// (their number may be beyond the host's table), that the host cannot decode, or whose blocks
    /// are not those of the file format.
    pub fn format(&self, dtype: Dtype) -> Option<Format> {
        if !dtype.is_known() {
            return None;
        }
        // SAFETY: the number came with a tensor of this host, so it is in its table, which is
        // static.
        let t = unsafe { (self.f.type_traits)(dtype.0).as_ref() }?;
        let elements = usize::try_from(t.blck_size).ok().filter(|&n| n > 0)?;
        let block = Block { elements, bytes: t.type_size };
        let agrees = dtype.block().is_none_or(|ours| ours == block) && block.bytes > 0;
        let decodes = dtype == Dtype::F32 || t.to_float.is_some();
        (agrees && decodes).then_some(Format { block, to_float: t.to_float })
    }

    /// Name of the type of a tensor's buffer, as in `CPU_REPACK`.
    pub fn buffer_name(&self, tensor: &Tensor) -> Option<String> {
        if tensor.buffer.is_null() {
            return None;
        }
        // SAFETY: a live buffer of the host, whose type outlives it and has a static name.
        unsafe {
            let name = (self.f.buft_name)((self.f.buffer_get_type)(tensor.buffer));
            (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
        }
    }

    /// Whether the CPU can read the memory of a tensor; `None` when it has no buffer yet.
    pub fn in_host_memory(&self, tensor: &Tensor) -> Option<bool> {
        let buffer = tensor.buffer;
        if buffer.is_null() {
            return None;
        }
        // SAFETY: a live buffer of the host, whose type outlives it.
        Some(unsafe { (self.f.buft_is_host)((self.f.buffer_get_type)(buffer)) })
    }
}
