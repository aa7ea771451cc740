//! The two functions the host looks up. Nothing else is exported.
#![allow(unsafe_code)]

use super::plugin::Plugin;
use super::{guard, reg};
use crate::abi::generation::ADAPTED;
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

/// Score among variants of one backend; loading by path takes anything but zero. Asked before
/// init, so that a CPU which lacks what this file is compiled for never runs more of it than this:
/// the host then says that the backend is not supported on this system.
#[unsafe(no_mangle)]
pub extern "C" fn ggml_backend_score() -> i32 {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: getauxval accepts any type and answers 0 to one it does not know.
    return score(unsafe { libc::getauxval(libc::AT_HWCAP) });
    #[cfg(not(target_arch = "aarch64"))]
    1
}

/// The score on an AArch64 CPU with this AT_HWCAP: this file uses floating point and Advanced SIMD
/// (bits 0 and 1).
#[cfg(any(test, target_arch = "aarch64"))]
fn score(hwcap: u64) -> i32 {
    const FP: u64 = 1 << 0;
    const ASIMD: u64 = 1 << 1;
    i32::from(hwcap & (FP | ASIMD) == FP | ASIMD)
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
    let knobs = Knobs::from_env();
    match Host::recognise(&library, reg::own(), knobs.abi_adapt) {
        Ok(host) => {
            if host.generation.name == ADAPTED {
                log::line(Level::Warn, &adapted(&host));
            }
            Some(Plugin::start(host, knobs))
        }
        Err(refusal) => {
            // On both: tools mute the one, daemons lose the other (ggml-abi 5.3).
            log::line(Level::Error, &refusal);
            log::stderr(&refusal);
            None
        }
    }
}

fn adapted(host: &Host) -> String {
    let g = &host.generation;
    format!(
        "ROCKET_ABI=adapt: {} has an interface that this plugin does not know (backend table {} \
         slots, device table {}, API version {}); it is used as measured, and a wrong guess can \
         crash the host or spoil results; update the plugin if you can",
        host.version, g.backend.slots, g.device_slots, g.api
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits 0 and 1 (FP, ASIMD) of AT_HWCAP decide, whatever the others say.
    #[test]
    fn a_cpu_without_the_vector_unit_scores_zero() {
        for (hwcap, expected) in [
            (0b11_u64, 1),
            (0b1111_1111, 1),
            (0b1111_1100, 0),
            (0b01, 0),
            (0b10, 0),
            (0, 0),
            (u64::MAX, 1),
            (!1, 0),
            (!2, 0),
        ] {
            assert_eq!(score(hwcap), expected, "{hwcap:#x}");
        }
        assert_eq!(ggml_backend_score(), 1, "the machine that runs this test has both");
    }
}
