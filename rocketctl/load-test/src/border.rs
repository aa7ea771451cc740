//! The one border to the dynamic linker and to a host's C functions. Whatever lies behind it may crash this process,
//! which is what the process is for.
#![allow(unsafe_code)]

use ggml_rocket::abi::symbols::Resolve;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, Ordering};

type Object = *mut c_void;

/// Where the lines of JSON go.
static OUTPUT: AtomicI32 = AtomicI32::new(1);

/// Keeps standard output for the lines of this program: what others print on it goes to standard error from now on.
pub fn keep_output() -> io::Result<()> {
    // SAFETY: two calls on descriptors of this process, whose results are looked at.
    let kept = unsafe { libc::fcntl(1, libc::F_DUPFD_CLOEXEC, 3) };
    // SAFETY: as above.
    if kept < 0 || unsafe { libc::dup2(2, 1) } < 0 {
        return Err(io::Error::last_os_error());
    }
    OUTPUT.store(kept, Ordering::Relaxed);
    Ok(())
}

/// One line, at once: nothing of it may be lost when the process ends in the next step.
pub fn say(line: &serde_json::Value) {
    let text = format!("{line}\n");
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let to = OUTPUT.load(Ordering::Relaxed);
        // SAFETY: a descriptor and a slice of this process.
        let n = unsafe { libc::write(to, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(n) {
            // Nobody reads: nothing is left to be done.
            Err(_) | Ok(0) => return,
            Ok(n) => rest = rest.get(n..).unwrap_or_default(),
        }
    }
}

/// An open library, never closed.
#[derive(Debug, Clone, Copy)]
pub struct Library(Object);

impl Library {
    /// Opens it at once with all that it needs (RTLD_NOW), for everybody or for itself alone.
    pub fn open(path: &Path, global: bool) -> Result<Library, String> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        let scope = if global { libc::RTLD_GLOBAL } else { libc::RTLD_LOCAL };
        // SAFETY: a terminated name. Constructors of the library run, which is what is to be seen.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | scope) };
        if !handle.is_null() {
            return Ok(Library(handle));
        }
        // SAFETY: after a failure dlerror gives a terminated text or null.
        let why = unsafe { text(libc::dlerror()) };
        Err(why.unwrap_or_else(|| "the loader gives no reason".to_owned()))
    }

    /// An exported function.
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: an open handle and a terminated name.
        NonNull::new(unsafe { libc::dlsym(self.0, name.as_ptr()) })
    }

    /// What `ggml_backend_score` says, where there is one.
    pub fn score(&self) -> Option<c_int> {
        let f = self.symbol(c"ggml_backend_score")?;
        // SAFETY: the function takes nothing and returns a number (ggml-abi 4).
        unsafe {
            let f: unsafe extern "C" fn() -> c_int = std::mem::transmute(f.as_ptr());
            Some(f())
        }
    }

    /// The API version that `ggml_backend_init` announces; none where it returns null.
    pub fn init(&self) -> Option<i32> {
        let f = self.symbol(c"ggml_backend_init")?;
        // SAFETY: the function takes nothing and returns a registration record or null (ggml-abi 4).
        let reg = unsafe {
            let f: unsafe extern "C" fn() -> Object = std::mem::transmute(f.as_ptr());
            f()
        };
        NonNull::new(reg).map(|r| Reg(r).api())
    }
}

/// # Safety
/// Null, or a terminated string.
unsafe fn text(s: *const c_char) -> Option<String> {
    // SAFETY: by the caller.
    (!s.is_null()).then(|| unsafe { CStr::from_ptr(s) }.to_string_lossy().into_owned())
}

/// A registration record of a host (ggml-abi 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reg(NonNull<c_void>);

impl Reg {
    /// Its first number.
    pub fn api(&self) -> i32 {
        // SAFETY: a record begins with its version in every generation.
        unsafe { *self.0.as_ptr().cast::<i32>() }
    }
}

/// A device of a host.
#[derive(Debug, Clone)]
pub struct Device {
    pub name: String,
    pub description: String,
    /// A number whose meaning depends on the generation (ggml-abi 2.5).
    pub kind: i32,
}

/// The libraries of a host.
#[derive(Debug)]
pub struct Host {
    libraries: [Library; 2],
}

impl Resolve for Host {
    fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        self.libraries.iter().find_map(|l| l.symbol(name))
    }
}

extern "C" fn heard(level: c_int, words: *const c_char, _: Object) {
    // SAFETY: a host passes a terminated string (ggml-abi 2.11).
    let words = unsafe { text(words) }.unwrap_or_default();
    say(&serde_json::json!({"log": words.trim_end(), "level": level}));
}

/// Most records, devices and pairs that a host is asked for.
const MOST: usize = 64;

impl Host {
    pub fn new(libraries: [Library; 2]) -> Host {
        Host { libraries }
    }

    /// Hears what the host logs.
    pub fn listen(&self) {
        type Callback = extern "C" fn(c_int, *const c_char, Object);
        let Some(f) = self.symbol(c"ggml_log_set") else { return };
        // SAFETY: (callback, user pointer) in every generation; the callback lives as long as the process.
        unsafe {
            let f: unsafe extern "C" fn(Callback, Object) = std::mem::transmute(f.as_ptr());
            f(heard, std::ptr::null_mut());
        }
    }

    /// Lets the host load its own backends, from this folder or where it was built to look.
    pub fn load_all(&self, folder: Option<&Path>) {
        let folder = folder.and_then(|f| CString::new(f.as_os_str().as_bytes()).ok());
        match (
            self.symbol(c"ggml_backend_load_all_from_path"),
            self.symbol(c"ggml_backend_load_all"),
        ) {
            // SAFETY: takes a terminated path or null (public headers).
            (Some(f), _) => unsafe {
                let f: unsafe extern "C" fn(*const c_char) = std::mem::transmute(f.as_ptr());
                f(folder.as_ref().map_or(std::ptr::null(), |f| f.as_ptr()));
            },
            // SAFETY: takes nothing.
            (None, Some(f)) => unsafe {
                let f: unsafe extern "C" fn() = std::mem::transmute(f.as_ptr());
                f();
            },
            (None, None) => {}
        }
    }

    /// The host's loader on one file.
    pub fn load(&self, path: &Path) -> Option<Reg> {
        let f = self.symbol(c"ggml_backend_load")?;
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        // SAFETY: takes a terminated path and returns a record or null (public headers).
        let reg = unsafe {
            let f: unsafe extern "C" fn(*const c_char) -> Object = std::mem::transmute(f.as_ptr());
            f(path.as_ptr())
        };
        NonNull::new(reg).map(Reg)
    }

    fn regs(&self) -> Vec<Reg> {
        let found =
            self.symbol(c"ggml_backend_reg_count").zip(self.symbol(c"ggml_backend_reg_get"));
        let Some((count, get)) = found else { return Vec::new() };
        // SAFETY: (), (index) in every generation; indices are below the count.
        unsafe {
            let count: unsafe extern "C" fn() -> usize = std::mem::transmute(count.as_ptr());
            let get: unsafe extern "C" fn(usize) -> Object = std::mem::transmute(get.as_ptr());
            (0..count().min(MOST)).filter_map(|i| NonNull::new(get(i)).map(Reg)).collect()
        }
    }

    /// Names of what is registered.
    pub fn registered(&self) -> Vec<String> {
        self.regs().iter().map(|r| self.reg_name(r)).collect()
    }

    pub fn reg_name(&self, reg: &Reg) -> String {
        self.named(c"ggml_backend_reg_name", reg.0.as_ptr())
    }

    /// The CPU backend's record.
    pub fn cpu(&self) -> Option<Reg> {
        self.regs().into_iter().find(|r| self.reg_name(r) == "CPU")
    }

    /// What an accessor says of an object.
    fn named(&self, accessor: &CStr, object: Object) -> String {
        let Some(f) = self.symbol(accessor) else { return String::new() };
        // SAFETY: accessors take one object of the host's and return a string of its own.
        unsafe {
            let f: unsafe extern "C" fn(Object) -> *const c_char = std::mem::transmute(f.as_ptr());
            text(f(object)).unwrap_or_default()
        }
    }

    fn handles(&self, reg: &Reg) -> Vec<Object> {
        let found = self
            .symbol(c"ggml_backend_reg_dev_count")
            .zip(self.symbol(c"ggml_backend_reg_dev_get"));
        let Some((count, get)) = found else { return Vec::new() };
        // SAFETY: (record), (record, index) in every generation; indices are below the count.
        unsafe {
            let count: unsafe extern "C" fn(Object) -> usize = std::mem::transmute(count.as_ptr());
            let get: unsafe extern "C" fn(Object, usize) -> Object =
                std::mem::transmute(get.as_ptr());
            let all = (0..count(reg.0.as_ptr()).min(MOST)).map(|i| get(reg.0.as_ptr(), i));
            all.filter(|d| !d.is_null()).collect()
        }
    }

    /// The devices of a record.
    pub fn devices(&self, reg: &Reg) -> Vec<Device> {
        let kind = |device: Object| {
            let f = self.symbol(c"ggml_backend_dev_type")?;
            // SAFETY: (device) -> number in every generation.
            unsafe {
                let f: unsafe extern "C" fn(Object) -> c_int = std::mem::transmute(f.as_ptr());
                Some(f(device))
            }
        };
        let device = |d: Object| Device {
            name: self.named(c"ggml_backend_dev_name", d),
            description: self.named(c"ggml_backend_dev_description", d),
            kind: kind(d).unwrap_or(-1),
        };
        self.handles(reg).into_iter().map(device).collect()
    }

    /// A function that a backend offers by name.
    fn offered(&self, reg: &Reg, name: &CStr) -> Option<NonNull<c_void>> {
        let f = self.symbol(c"ggml_backend_reg_get_proc_address")?;
        // SAFETY: (record, name) -> function or null in every generation.
        NonNull::new(unsafe {
            let f: unsafe extern "C" fn(Object, *const c_char) -> Object =
                std::mem::transmute(f.as_ptr());
            f(reg.0.as_ptr(), name.as_ptr())
        })
    }

    /// Names of the CPU backend's buffer types beside the plain one: repacking, if any (ggml-abi 7.1, 5).
    pub fn extra_buffers(&self, cpu: &Reg) -> Option<Vec<String>> {
        let f = self.offered(cpu, c"ggml_backend_dev_get_extra_bufts")?;
        let device = *self.handles(cpu).first()?;
        // SAFETY: (device) -> buffer types, ended by null, or null.
        let types = unsafe {
            let f: unsafe extern "C" fn(Object) -> *const Object = std::mem::transmute(f.as_ptr());
            list(f(device), 1)
        };
        Some(types.iter().map(|t| self.named(c"ggml_backend_buft_name", *t)).collect())
    }

    /// Features of the CPU backend that are on.
    pub fn features(&self, cpu: &Reg) -> Option<Vec<String>> {
        let f = self.offered(cpu, c"ggml_backend_get_features")?;
        // SAFETY: (record) -> pairs of strings, ended by a pair of nulls.
        let words = unsafe {
            let f: unsafe extern "C" fn(Object) -> *const Object = std::mem::transmute(f.as_ptr());
            list(f(cpu.0.as_ptr()), 2)
        };
        // SAFETY: terminated strings of the backend.
        let name = |o: &Object| unsafe { text(o.cast()) }.unwrap_or_default();
        Some(words.chunks_exact(2).map(|p| format!("{}={}", name(&p[0]), name(&p[1]))).collect())
    }
}

/// The entries of a list that ends with a null, `width` words each.
///
/// # Safety
/// Null, or such a list.
unsafe fn list(first: *const Object, width: usize) -> Vec<Object> {
    let mut all = Vec::new();
    if first.is_null() {
        return all;
    }
    for i in 0..MOST {
        for word in 0..width {
            // SAFETY: by the caller the list goes on until its null was seen.
            let entry = unsafe { *first.add(i * width + word) };
            if word == 0 && entry.is_null() {
                return all;
            }
            all.push(entry);
        }
    }
    all
}
