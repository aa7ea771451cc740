//! The one border to a real ggml: its libraries by dlopen, its functions by dlsym, and around
//! them objects whose use is checked, so that the rest of this program is safe code.
#![allow(unsafe_code)]

mod graph;
mod memory;
mod types;

pub use graph::{Context, FlashAttn, Graph, Node};
pub use memory::{Backend, Buffer, Region};
pub use types::Type;

use anyhow::{Context as _, Result, bail};
use ggml_rocket::abi::host::{InitParams, Object, TypeTraits};
use ggml_rocket::abi::tensor::Tensor;
use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Name of our device.
pub const OURS: &CStr = c"ROCKET";
const TYPE_CPU: i32 = 0;

macro_rules! functions {
    ($($name:ident = $symbol:literal: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// What is called of the host, with the signatures of its public headers.
        #[derive(Debug, Clone, Copy)]
        struct Functions { $($name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)* }

        impl Functions {
            fn resolve(libraries: &[usize]) -> Result<Functions> {
                $(
                    let f = find(libraries, $symbol)?;
                    // SAFETY: the exported function of this name has this signature in every
                    // generation that the plugin supports (public headers).
                    let $name = unsafe {
                        std::mem::transmute::<usize, unsafe extern "C" fn($($arg),*) $(-> $ret)?>(f)
                    };
                )*
                Ok(Functions { $($name),* })
            }
        }
    };
}

functions! {
    version = c"ggml_version": fn() -> *const c_char;
    init = c"ggml_init": fn(InitParams) -> Object;
    free = c"ggml_free": fn(Object);
    tensor_overhead = c"ggml_tensor_overhead": fn() -> usize;
    graph_overhead = c"ggml_graph_overhead_custom": fn(usize, bool) -> usize;
    new_tensor = c"ggml_new_tensor": fn(Object, i32, i32, *const i64) -> *mut Tensor;
    set_name = c"ggml_set_name": fn(*mut Tensor, *const c_char) -> *mut Tensor;
    op_name = c"ggml_op_name": fn(i32) -> *const c_char;
    nbytes = c"ggml_nbytes": fn(*const Tensor) -> usize;
    mul_mat = c"ggml_mul_mat": fn(Object, *mut Tensor, *mut Tensor) -> *mut Tensor;
    mul_mat_id = c"ggml_mul_mat_id": fn(Object, *mut Tensor, *mut Tensor, *mut Tensor) -> *mut Tensor;
    add = c"ggml_add": fn(Object, *mut Tensor, *mut Tensor) -> *mut Tensor;
    rms_norm = c"ggml_rms_norm": fn(Object, *mut Tensor, f32) -> *mut Tensor;
    view_4d = c"ggml_view_4d": fn(Object, *mut Tensor, i64, i64, i64, i64, usize, usize, usize, usize) -> *mut Tensor;
    permute = c"ggml_permute": fn(Object, *mut Tensor, i32, i32, i32, i32) -> *mut Tensor;
    flash_attn = c"ggml_flash_attn_ext": fn(Object, *mut Tensor, *mut Tensor, *mut Tensor, *mut Tensor, f32, f32, f32) -> *mut Tensor;
    flash_prec = c"ggml_flash_attn_ext_set_prec": fn(*mut Tensor, i32);
    new_graph = c"ggml_new_graph_custom": fn(Object, usize, bool) -> Object;
    build_forward = c"ggml_build_forward_expand": fn(Object, *mut Tensor);
    graph_n_nodes = c"ggml_graph_n_nodes": fn(Object) -> i32;
    graph_node = c"ggml_graph_node": fn(Object, i32) -> *mut Tensor;
    type_traits = c"ggml_get_type_traits": fn(i32) -> *const TypeTraits;
    quantize = c"ggml_quantize_chunk": fn(i32, *const f32, Object, i64, i64, i64, *const f32) -> usize;
    cpu_buffer_type = c"ggml_backend_cpu_buffer_type": fn() -> Object;
    cpu_buffer_from_ptr = c"ggml_backend_cpu_buffer_from_ptr": fn(Object, usize) -> Object;
    alloc_tensors = c"ggml_backend_alloc_ctx_tensors_from_buft": fn(Object, Object) -> Object;
    tensor_alloc = c"ggml_backend_tensor_alloc": fn(Object, *mut Tensor, Object) -> i32;
    buffer_free = c"ggml_backend_buffer_free": fn(Object);
    buffer_base = c"ggml_backend_buffer_get_base": fn(Object) -> Object;
    buffer_size = c"ggml_backend_buffer_get_size": fn(Object) -> usize;
    buffer_set_usage = c"ggml_backend_buffer_set_usage": fn(Object, i32);
    load = c"ggml_backend_load": fn(*const c_char) -> Object;
    load_all = c"ggml_backend_load_all_from_path": fn(*const c_char);
    dev_by_name = c"ggml_backend_dev_by_name": fn(*const c_char) -> Object;
    dev_by_type = c"ggml_backend_dev_by_type": fn(i32) -> Object;
    dev_init = c"ggml_backend_dev_init": fn(Object, *const c_char) -> Object;
    dev_reg = c"ggml_backend_dev_backend_reg": fn(Object) -> Object;
    dev_memory = c"ggml_backend_dev_memory": fn(Object, *mut usize, *mut usize);
    dev_supports_op = c"ggml_backend_dev_supports_op": fn(Object, *const Tensor) -> bool;
    reg_proc = c"ggml_backend_reg_get_proc_address": fn(Object, *const c_char) -> Object;
    backend_free = c"ggml_backend_free": fn(Object);
    graph_compute = c"ggml_backend_graph_compute": fn(Object, Object) -> i32;
}

fn find(libraries: &[usize], symbol: &CStr) -> Result<usize> {
    libraries
        .iter()
        // SAFETY: handles of dlopen that stay open; the name is terminated.
        .map(|&handle| unsafe { libc::dlsym(handle as Object, symbol.as_ptr()) } as usize)
        .find(|&address| address != 0)
        .with_context(|| format!("this ggml does not export {}", symbol.to_string_lossy()))
}

/// A device of the host's registry; it lives as long as the process.
#[derive(Debug, Clone, Copy)]
pub struct Device(usize);

/// A loaded ggml with its CPU backend.
#[derive(Debug)]
pub struct Host {
    f: Functions,
    /// Newer than the oldest hosts.
    add_sinks: Option<AddSinks>,
    cpu: Device,
}

type AddSinks = unsafe extern "C" fn(*mut Tensor, *mut Tensor);

/// Sets or removes variables of this process.
///
/// # Panics
/// A second thread runs already.
pub fn set_environment(variables: &[(&str, Option<&str>)]) {
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    assert_eq!(threads, 1, "the environment is set before anything else");
    for (name, value) in variables {
        // SAFETY: nobody else reads or writes the environment: there is no other thread.
        unsafe {
            match value {
                Some(value) => std::env::set_var(name, value),
                None => std::env::remove_var(name),
            }
        }
    }
}

/// Keeps the C allocator from holding freed memory in arenas of ended threads, which would look
/// like a leak: what is freed goes back to the system.
pub fn steady_allocator() {
    #[cfg(target_env = "gnu")]
    for (option, value) in [
        (libc::M_ARENA_MAX, 1),
        (libc::M_MMAP_THRESHOLD, 64 << 10),
        (libc::M_TRIM_THRESHOLD, 64 << 10),
    ] {
        // SAFETY: two numbers; glibc changes its settings under a lock of its own.
        let taken = unsafe { libc::mallopt(option, value) };
        assert_eq!(taken, 1, "mallopt({option})");
    }
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).context("a path with a zero byte")
}

/// `libNAME.so`, or else the first file whose name begins so (hosts without the link).
fn library(dir: &Path, name: &str) -> Result<PathBuf> {
    let plain = dir.join(format!("{name}.so"));
    if plain.exists() {
        return Ok(plain);
    }
    let prefix = format!("{name}.so.");
    let entries = dir.read_dir().with_context(|| format!("cannot read {}", dir.display()))?;
    let mut files: Vec<_> = entries
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&prefix)))
        .collect();
    files.sort();
    files.into_iter().next().with_context(|| {
        format!(
            "no {name}.so in {}; name the folder of a ggml with shared libraries",
            dir.display()
        )
    })
}

fn open(path: &Path) -> Result<usize> {
    let name = c_path(path)?;
    // SAFETY: a terminated name; what runs is the constructors of a library the user named.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        // SAFETY: after a failure dlerror gives a terminated text or null.
        let why = unsafe { libc::dlerror().as_ref().map(|e| CStr::from_ptr(e).to_string_lossy()) };
        bail!("cannot load {}: {}", path.display(), why.unwrap_or_default());
    }
    Ok(handle as usize)
}

impl Host {
    /// The ggml of a folder. It stays for the rest of the process.
    ///
    /// # Errors
    /// What is missing.
    pub fn load(dir: &Path) -> Result<&'static Host> {
        let libraries = [open(&library(dir, "libggml-base")?)?, open(&library(dir, "libggml")?)?];
        let f = Functions::resolve(&libraries)?;
        let path = c_path(dir)?;
        // SAFETY: the host's loader on a folder of the host. The process has one thread.
        let cpu = unsafe {
            (f.load_all)(path.as_ptr());
            (f.dev_by_type)(TYPE_CPU)
        };
        if cpu.is_null() {
            bail!("no CPU backend of ggml could be loaded from {}", dir.display());
        }
        static HOST: OnceLock<Host> = OnceLock::new();
        let add_sinks = find(&libraries, c"ggml_flash_attn_ext_add_sinks").ok();
        // SAFETY: the exported function of this name has this signature (public headers).
        let add_sinks = add_sinks.map(|f| unsafe { std::mem::transmute::<usize, AddSinks>(f) });
        let host = HOST.get_or_init(|| Host { f, add_sinks, cpu: Device(cpu as usize) });
        anyhow::ensure!(host.cpu.0 == cpu as usize, "one ggml a process");
        Ok(host)
    }

    /// Loads a plugin through the host's own loader; its device, unless it offers none.
    ///
    /// # Errors
    /// The loader refused it.
    pub fn plugin(&self, path: &Path) -> Result<Option<Device>> {
        let name = c_path(path)?;
        // SAFETY: the host's loader on a file the user named.
        if unsafe { (self.f.load)(name.as_ptr()) }.is_null() {
            bail!("the host's loader refused {}", path.display());
        }
        // SAFETY: a terminated name.
        let device = unsafe { (self.f.dev_by_name)(OURS.as_ptr()) };
        Ok((!device.is_null()).then_some(Device(device as usize)))
    }

    /// Whether attention can have sinks (ggml-abi 2.6).
    pub fn has_sinks(&self) -> bool {
        self.add_sinks.is_some()
    }

    /// The CPU's device.
    pub fn cpu(&self) -> Device {
        self.cpu
    }

    /// As in `0.25.3`.
    pub fn version(&self) -> String {
        // SAFETY: a static string of the host.
        unsafe { CStr::from_ptr((self.f.version)()) }.to_string_lossy().into_owned()
    }

    /// Whether a device takes an op whose sources lie in these buffers or have no memory yet.
    ///
    /// # Errors
    /// A source lies elsewhere.
    pub fn supports(&self, device: Device, op: Node<'_>, buffers: &[&Buffer<'_>]) -> Result<bool> {
        memory::check(&[op], buffers, false)?;
        // SAFETY: a device of the registry, a live tensor with live sources.
        Ok(unsafe { (self.f.dev_supports_op)(device.0 as Object, op.as_ptr()) })
    }

    /// Asks a device about every node, `passes` times over: nanoseconds for one answer in the
    /// quickest pass, and how many nodes it takes.
    ///
    /// # Errors
    /// A source lies elsewhere.
    pub fn time_supports(
        &self,
        device: Device,
        nodes: &[Node<'_>],
        buffers: &[&Buffer<'_>],
        passes: usize,
    ) -> Result<(f64, usize)> {
        memory::check(nodes, buffers, false)?;
        let (mut least, mut taken) = (f64::INFINITY, 0);
        for _ in 0..passes {
            let begun = std::time::Instant::now();
            // SAFETY: as above.
            let yes =
                |n: &&Node<'_>| unsafe { (self.f.dev_supports_op)(device.0 as Object, n.as_ptr()) };
            taken = nodes.iter().filter(yes).count();
            least = least.min(begun.elapsed().as_nanos() as f64 / nodes.len().max(1) as f64);
        }
        Ok((least, taken))
    }

    /// Free and total bytes of a device, as it reports them.
    pub fn memory(&self, device: Device) -> (usize, usize) {
        let (mut free, mut total) = (0, 0);
        // SAFETY: a device of the registry, and two numbers to be written.
        unsafe { (self.f.dev_memory)(device.0 as Object, &raw mut free, &raw mut total) };
        (free, total)
    }
}

/// What sanitizers must find, or they are not looking: a byte read after it was freed, and a
/// number that two threads write without a lock.
pub fn do_wrong() -> u8 {
    struct Shared(*mut u64);
    // SAFETY: it is not: that is the point.
    unsafe impl Send for Shared {}
    impl Shared {
        fn count(self, started: &AtomicUsize) {
            // Both run before either writes; relaxed, so that nothing orders their writes.
            started.fetch_add(1, Ordering::Relaxed);
            while started.load(Ordering::Relaxed) < 2 {
                std::thread::yield_now();
            }
            for _ in 0..1000 {
                // SAFETY: the number lives until both threads are joined; the race is on purpose.
                unsafe { self.0.write_volatile(self.0.read_volatile() + 1) };
            }
        }
    }
    let started = AtomicUsize::new(0);
    let mut number = 0u64;
    let ptr = &raw mut number;
    std::thread::scope(|scope| {
        for shared in [Shared(ptr), Shared(ptr)] {
            scope.spawn(|| shared.count(&started));
        }
    });
    let memory = vec![7u8; 100];
    let ptr = memory.as_ptr();
    drop(std::hint::black_box(memory));
    // SAFETY: none; only run under a tool that stops here or reports it.
    unsafe { ptr.read_volatile() }
}
