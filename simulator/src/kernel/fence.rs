//! Fences: what PREP_BO waits for.

use nix::errno::Errno;
use rocket_runtime::device::Deadline;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Locks whatever happened to other holders: the data behind these locks is valid at every step.
pub fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is called when a fence signals.
type Callback = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    signalled: bool,
    callbacks: Vec<Callback>,
}

/// Signals once, when its job has ended in whatever way (kernel-and-uapi A.4: a failed job's
/// fence signals too, and PREP_BO does not tell).
#[derive(Default)]
pub struct Fence {
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fence {{ signalled: {} }}", self.signalled())
    }
}

impl Fence {
    /// Signals.
    pub fn signal(&self) {
        let callbacks = {
            let mut state = lock(&self.state);
            state.signalled = true;
            std::mem::take(&mut state.callbacks)
        };
        self.changed.notify_all();
        for call in callbacks {
            call();
        }
    }

    /// Whether it has signalled.
    pub fn signalled(&self) -> bool {
        lock(&self.state).signalled
    }

    /// Has `call` called when it signals, at once when it already has.
    pub fn on_signal(&self, call: impl FnOnce() + Send + 'static) {
        let mut state = lock(&self.state);
        if state.signalled {
            drop(state);
            call();
        } else {
            state.callbacks.push(Box::new(call));
        }
    }

    /// Without waiting: `Some` when a wait until `deadline` would end at once, with success or,
    /// for a zero or past deadline, EBUSY (kernel-and-uapi A.4).
    pub fn poll(&self, deadline: Deadline) -> Option<Result<(), Errno>> {
        if self.signalled() {
            return Some(Ok(()));
        }
        (deadline.0 <= Deadline::now().0).then_some(Err(Errno::EBUSY))
    }

    /// Waits until an absolute deadline; ETIMEDOUT when a real one expires (kernel-and-uapi A.4).
    pub fn wait(&self, deadline: Deadline) -> Result<(), Errno> {
        if let Some(done) = self.poll(deadline) {
            return done;
        }
        let mut state = lock(&self.state);
        while !state.signalled {
            let left = deadline.0.saturating_sub(Deadline::now().0);
            let Ok(left @ 1..) = u64::try_from(left) else { return Err(Errno::ETIMEDOUT) };
            let wait = self.changed.wait_timeout(state, Duration::from_nanos(left));
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}
