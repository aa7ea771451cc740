//! Fences: what PREP_BO waits for.

use nix::errno::Errno;
use rocket_runtime::device::Deadline;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Locks whatever happened to other holders: the data behind these locks is valid at every step.
pub fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Signals once, when its job has ended in whatever way (kernel-and-uapi A.4: a failed job's
/// fence signals too, and PREP_BO does not tell).
#[derive(Debug, Default)]
pub struct Fence {
    signalled: Mutex<bool>,
    changed: Condvar,
}

impl Fence {
    /// Signals.
    pub fn signal(&self) {
        *lock(&self.signalled) = true;
        self.changed.notify_all();
    }

    /// Waits until an absolute deadline. Zero or past: EBUSY at once; a real deadline that
    /// expires: ETIMEDOUT (kernel-and-uapi A.4).
    pub fn wait(&self, deadline: Deadline) -> Result<(), Errno> {
        let mut signalled = lock(&self.signalled);
        if *signalled {
            return Ok(());
        }
        if deadline.0 <= Deadline::now().0 {
            return Err(Errno::EBUSY);
        }
        while !*signalled {
            let left = deadline.0.saturating_sub(Deadline::now().0);
            let Ok(left @ 1..) = u64::try_from(left) else { return Err(Errno::ETIMEDOUT) };
            let wait = self.changed.wait_timeout(signalled, Duration::from_nanos(left));
            signalled = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}
