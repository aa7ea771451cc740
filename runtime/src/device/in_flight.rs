//! Jobs in flight in this process, and what happens to them when it is told to end.
//!
//! A process that dies by a signal closes its files at once, and closing with a job in flight is
//! a use after free in unpatched kernels (kernel-and-uapi B.6 U1). [`drain_on_signals`] makes
//! the ordinary ending signals wait for the jobs first. SIGKILL cannot be made to.

use crate::{Error, Result};
use nix::sys::signal::Signal;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);
static ENDING: AtomicBool = AtomicBool::new(false);

/// Longest a signal is held back: a few jobs at the driver's limit.
const PATIENCE: Duration = Duration::from_secs(5);

/// Counts one submit in.
pub(super) fn enter() -> Result<()> {
    IN_FLIGHT.fetch_add(1, Ordering::SeqCst);
    if ENDING.load(Ordering::SeqCst) {
        leave();
        return Err(Error::Unusable { why: "the process was told to end".into() });
    }
    Ok(())
}

/// Counts one submit out: its jobs were waited for.
pub(super) fn leave() {
    IN_FLIGHT.fetch_sub(1, Ordering::SeqCst);
}

/// Makes SIGINT, SIGTERM and SIGHUP wait for the jobs in flight, then do what they would have
/// done. Signals that the program handles itself are left alone. Call it once the device is in
/// use; repeated calls do nothing.
pub fn drain_on_signals() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let ours: Vec<i32> = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
            .into_iter()
            .filter(|s| handler_is_default(*s))
            .map(|s| s as i32)
            .collect();
        let signals = match signal_hook::iterator::Signals::new(&ours) {
            Ok(signals) if !ours.is_empty() => signals,
            _ => return,
        };
        let watch = std::thread::Builder::new().name("rocket-signals".into());
        // Without the thread the signals would be swallowed: it must not fail silently.
        if let Err(e) = watch.spawn(move || end_on(signals)) {
            tracing::warn!("no signal thread ({e}); an interrupt may end with NPU jobs in flight");
        }
    });
}

fn end_on(mut signals: signal_hook::iterator::Signals) {
    for signal in signals.forever() {
        ENDING.store(true, Ordering::SeqCst);
        let start = Instant::now();
        while IN_FLIGHT.load(Ordering::SeqCst) > 0 && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
}

/// Whether the process has no handler of its own for `signal`.
#[allow(unsafe_code)] // libc's sigaction has no safe query form
fn handler_is_default(signal: Signal) -> bool {
    let mut old = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null new action only reads the current one into `old`, which is read only after
    // the call succeeded and filled it.
    unsafe {
        libc::sigaction(signal as i32, std::ptr::null(), old.as_mut_ptr()) == 0
            && old.assume_init().sa_sigaction == libc::SIG_DFL
    }
}
