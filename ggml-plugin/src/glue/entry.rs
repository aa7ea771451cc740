//! The two functions the host looks up. Nothing else is exported.
#![allow(unsafe_code)]

use super::guard;
use super::plugin::Plugin;
use crate::abi::host::{Host, Logger};
use crate::abi::symbols::HostLibrary;
use crate::knobs::Knobs;
use crate::log::{self, Level};
use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

/// The verdict is made once: hosts call init again for every search (ggml-abi 4), and by then our
/// own record is among those a probe would read.
static PLUGIN: OnceLock<Option<&'static Plugin>> = OnceLock::new();

/// Score among variants of one backend; loading by path takes anything but zero.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_backend_score() -> i32 {
    1
}

/// Returns the registration record, or null after saying why not.
///
/// Naked, because the caller's address is what identifies the ggml that loaded us (ggml-abi 5.1).
///
/// # Safety
/// Called by a ggml loader.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn ggml_backend_init() -> *const c_void {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("endbr64", "mov rdi, [rsp]", "jmp {0}", sym init_from);
    // hint 34 is `bti c`: a landing pad where branch targets are enforced, a no-op elsewhere.
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("hint #34", "mov x0, x30", "b {0}", sym init_from);
}

extern "C" fn init_from(return_address: usize) -> *const c_void {
    guard("ggml_backend_init", ptr::null(), || match PLUGIN.get_or_init(|| start(return_address)) {
        Some(plugin) => plugin.records().reg as *const c_void,
        None => ptr::null(),
    })
}

fn start(return_address: usize) -> Option<&'static Plugin> {
    let Some(library) = HostLibrary::find(return_address) else {
        log::stderr(
            "the host has no shared libggml-base (a static build?), so no plugin can work in it; \
             use a llama.cpp or whisper.cpp built with shared libraries",
        );
        return None;
    };
    log::use_host(Logger::resolve(&library));
    match Host::recognise(&library) {
        Ok(host) => Some(Plugin::start(host, Knobs::from_env())),
        Err(refusal) => {
            // On both: tools mute the one, daemons lose the other (ggml-abi 5.3).
            log::line(Level::Error, &refusal);
            log::stderr(&refusal);
            None
        }
    }
}
