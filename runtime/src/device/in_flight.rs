//! Jobs in flight in this process, and what happens to them when it is told to end.
//!
//! A process that dies by a signal closes its files at once, and closing with a job in flight is
//! a use after free in unpatched kernels (kernel-and-uapi B.6 U1). [`drain_on_signals`] makes
//! the ordinary ending signals wait for the jobs first. SIGKILL cannot be made to.

#![allow(unsafe_code)] // signal handlers; nothing else can act before a host's own handler exits

use crate::{Error, Result};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);
/// Handlers at work.
static ENDING: AtomicUsize = AtomicUsize::new(0);
/// The process that installed the handlers; a forked child has no jobs to wait for.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Signals that end a process in the ordinary way.
const ENDING_SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
/// Longest that jobs in flight may take, in ms: the wait limit of the longest submit so far. The
/// driver ends a job by itself, so a signal is held back for as long only when all is lost.
static LONGEST_MS: AtomicU64 = AtomicU64::new(0);
const STEP_MS: u64 = 2;

/// What each signal did before, written once before its handler is installed.
struct Previous(UnsafeCell<[MaybeUninit<libc::sigaction>; ENDING_SIGNALS.len()]>);
// SAFETY: written inside the Once of `drain_on_signals` before the handler that reads it exists.
unsafe impl Sync for Previous {}
static PREVIOUS: Previous = Previous(UnsafeCell::new([MaybeUninit::zeroed(); 3]));

/// Counts one submit in, whose jobs may take up to `limit_ms`.
pub(super) fn enter(limit_ms: u64) -> Result<()> {
    LONGEST_MS.fetch_max(limit_ms, Ordering::SeqCst);
    IN_FLIGHT.fetch_add(1, Ordering::SeqCst);
    if ENDING.load(Ordering::SeqCst) > 0 {
        leave();
        return Err(Error::Ending);
    }
    Ok(())
}

/// Counts one submit out: its jobs were waited for.
pub(super) fn leave() {
    IN_FLIGHT.fetch_sub(1, Ordering::SeqCst);
}

/// How many submits a signal would wait for.
#[cfg(test)]
pub(super) fn waited_for() -> usize {
    IN_FLIGHT.load(Ordering::SeqCst)
}

/// Makes SIGINT, SIGTERM and SIGHUP wait for the jobs in flight, then do what they would have
/// done: the program's own handler if it has one by now, else the default. Ignored signals stay
/// ignored. Repeated calls do nothing. A handler that the program installs later replaces ours.
pub fn drain_on_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        OWNER.store(std::process::id() as i32, Ordering::SeqCst);
        for (i, signal) in ENDING_SIGNALS.into_iter().enumerate() {
            // SAFETY: sigaction with valid pointers; `PREVIOUS` is written before the handler
            // can run, and the handler does only what is async-signal-safe.
            unsafe {
                let slot = (*PREVIOUS.0.get())[i].as_mut_ptr();
                if libc::sigaction(signal as i32, std::ptr::null(), slot) != 0
                    || (*slot).sa_sigaction == libc::SIG_IGN
                {
                    continue;
                }
                let mut ours = *slot;
                ours.sa_sigaction = on_signal as *const () as usize;
                ours.sa_flags = (ours.sa_flags | libc::SA_SIGINFO) & !libc::SA_RESETHAND;
                libc::sigaction(signal as i32, &ours, std::ptr::null_mut());
            }
        }
    });
}

/// Keeps the ending signals away from this thread: a worker that slept in a handler could not
/// wait for its jobs.
pub fn leave_signals_to_others() {
    let set: SigSet = ENDING_SIGNALS.into_iter().collect();
    // It cannot fail with a valid set; if it did, the handler's patience bounds the harm.
    let _ = pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&set), None);
}

extern "C" fn on_signal(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: getpid, nanosleep, sigaction and raise are async-signal-safe; atomics are lock-free;
    // `PREVIOUS` is no longer written; the previous handler is called as its flags say.
    unsafe {
        let errno = *libc::__errno_location();
        ENDING.fetch_add(1, Ordering::SeqCst);
        if libc::getpid() == OWNER.load(Ordering::SeqCst) {
            let step = libc::timespec { tv_sec: 0, tv_nsec: STEP_MS as i64 * 1_000_000 };
            for _ in 0..LONGEST_MS.load(Ordering::SeqCst) / STEP_MS {
                if IN_FLIGHT.load(Ordering::SeqCst) == 0 {
                    break;
                }
                libc::nanosleep(&step, std::ptr::null_mut());
            }
        }
        let i = ENDING_SIGNALS.iter().position(|s| *s as i32 == signal).unwrap_or(0);
        let previous = (*PREVIOUS.0.get())[i].assume_init_ref();
        match previous.sa_sigaction {
            libc::SIG_DFL => {
                // Ends the process as soon as this handler returns.
                libc::sigaction(signal, previous, std::ptr::null_mut());
                libc::raise(signal);
                *libc::__errno_location() = errno;
                return;
            }
            handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
                std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
            }
            handler => {
                std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler)(signal);
            }
        }
        // The program goes on.
        ENDING.fetch_sub(1, Ordering::SeqCst);
        *libc::__errno_location() = errno;
    }
}
