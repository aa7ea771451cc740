//! Processes of the tests' own.

#![allow(unsafe_code)] // fork: an emulated test cannot start its own program a second time

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f` in another process, which ends with it.
pub fn start(f: impl FnOnce()) -> Pid {
    // SAFETY: of what other threads hold at this moment the child needs only the allocator, which
    // the C library makes usable after a fork; and it returns to no code but this.
    match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let failed = catch_unwind(AssertUnwindSafe(f)).is_err();
            // SAFETY: nothing of the parent's is run at exit.
            unsafe { libc::_exit(failed.into()) }
        }
    }
}

/// How it ended.
pub fn end(child: Pid) -> WaitStatus {
    waitpid(child, None).unwrap()
}
