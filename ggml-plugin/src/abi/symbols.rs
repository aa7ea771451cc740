//! Finding the libggml that loaded us (ggml-abi 5.1). Two copies of ggml can live in one process,
//! and a host may load its own with RTLD_LOCAL, so the search starts at the caller's object.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::NonNull;

/// Something that resolves the host's symbols. A trait, so that tests can be the host.
pub trait Resolve {
    /// Address of an exported function.
    fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>>;
}

/// Handles onto the host's ggml objects, never closed.
#[derive(Debug)]
pub struct HostLibrary {
    handles: Vec<usize>,
    /// Which of the three ways found it.
    pub found_by: &'static str,
}

/// An accessor every generation exports, from libggml-base: the test of a handle.
const WITNESS: &CStr = c"ggml_backend_dev_get_props";

impl HostLibrary {
    /// Looks for the ggml around `return_address`, an address inside the loader's code.
    pub fn find(return_address: usize) -> Option<HostLibrary> {
        let usable = |handles: Vec<usize>, found_by| {
            let lib = HostLibrary { handles, found_by };
            lib.symbol(WITNESS).is_some().then_some(lib)
        };
        object_of(return_address)
            .and_then(|name| reopen(&name))
            .and_then(|h| usable(vec![h], "the caller's object"))
            .or_else(|| usable(vec![libc::RTLD_DEFAULT as usize], "the global scope"))
            .or_else(|| usable(loaded_ggml(), "the list of loaded objects"))
    }
}

impl Resolve for HostLibrary {
    fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        self.handles.iter().find_map(|&handle| {
            // SAFETY: handles come from dlopen and stay open; the name is terminated.
            NonNull::new(unsafe { libc::dlsym(handle as *mut c_void, name.as_ptr()) })
        })
    }
}

/// File name of the object that holds `address`.
fn object_of(address: usize) -> Option<CString> {
    // SAFETY: all-zero is a valid Dl_info.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: dladdr accepts any address and fills the struct on success.
    if unsafe { libc::dladdr(address as *const c_void, &mut info) } == 0 || info.dli_fname.is_null()
    {
        return None;
    }
    // SAFETY: dladdr gives a terminated string that lives as long as the object is loaded.
    Some(unsafe { CStr::from_ptr(info.dli_fname) }.to_owned())
}

/// One more handle onto an object that is already loaded.
fn reopen(name: &CStr) -> Option<usize> {
    // SAFETY: the name is terminated; NOLOAD runs no code.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    (!handle.is_null()).then_some(handle as usize)
}

/// Handles onto every loaded `libggml-base*` and `libggml.so*`.
fn loaded_ggml() -> Vec<usize> {
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: `data` is the vector below and `info` what dl_iterate_phdr promises.
        let (names, info) = unsafe { (&mut *data.cast::<Vec<CString>>(), &*info) };
        if !info.dlpi_name.is_null() {
            // SAFETY: a terminated string owned by the dynamic linker.
            let name = unsafe { CStr::from_ptr(info.dlpi_name) };
            let bytes = name.to_bytes();
            let file = bytes.rsplit(|&b| b == b'/').next().unwrap_or(bytes);
            if file.starts_with(b"libggml-base") || file.starts_with(b"libggml.so") {
                names.push(name.to_owned());
            }
        }
        0
    }
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: the callback matches the prototype, and the vector outlives the call. The names
    // are re-opened after the walk, because dlopen inside it would deadlock.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut names).cast()) };
    names.iter().filter_map(|n| reopen(n)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_ggml_in_this_process_is_none() {
        let here = no_ggml_in_this_process_is_none as fn() as usize;
        assert!(HostLibrary::find(here).is_none());
        assert!(HostLibrary::find(0).is_none());
    }

    #[test]
    fn an_object_is_found_by_an_address_inside_it() {
        // libc is a shared object of every test binary.
        let name = object_of(libc::getpid as *const () as usize);
        assert!(name.is_some());
        if let Some(handle) = name.as_deref().and_then(reopen) {
            let lib = HostLibrary { handles: vec![handle], found_by: "test" };
            assert!(lib.symbol(c"getpid").is_some());
            assert!(lib.symbol(c"ggml_no_such_function").is_none());
        }
    }
}
