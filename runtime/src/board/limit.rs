//! A reading that does not come back must not take the tool with it.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What a root waits for files that do not answer, all of them together.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// What one gets when others have used that up.
const LEAST: Duration = Duration::from_millis(50);

type Job = Box<dyn FnOnce() + Send>;

/// A thread that reads, and how long it is still waited for. One that hangs is left to itself and another takes its
/// place: a read that the kernel does not return from cannot be called back.
#[derive(Debug)]
pub(super) struct Patience {
    worker: Mutex<Option<Sender<Job>>>,
    left: Mutex<Duration>,
}

impl Patience {
    pub(super) fn new(all: Duration) -> Patience {
        Patience { worker: Mutex::default(), left: Mutex::new(all) }
    }

    /// What `reading` gives; `None` where it takes longer than is left.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        reading: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let (answer, answered) = channel();
        let job: Job = Box::new(move || drop(answer.send(reading())));
        let sender = worker.get_or_insert_with(start);
        if sender.send(job).is_err() {
            *worker = None;
            return None;
        }
        let began = Instant::now();
        let value = answered.recv_timeout((*left).max(LEAST)).ok();
        if value.is_none() {
            *left = left.saturating_sub(began.elapsed());
            *worker = None;
        }
        value
    }
}

/// Ends when its sender does. Where no thread can be had nothing receives, which reads as no answer.
fn start() -> Sender<Job> {
    let (sender, jobs) = channel::<Job>();
    let reader = thread::Builder::new().name("reader".into());
    let _ = reader.spawn(move || jobs.into_iter().for_each(|job| job()));
    sender
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn what_hangs_is_left_behind() {
        let release = Arc::new(AtomicBool::new(false));
        let stuck = || {
            let release = release.clone();
            move || {
                while !release.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        };
        let patience = Patience::new(Duration::from_millis(200));
        assert_eq!(patience.wait(|| 1), Some(1));
        let began = Instant::now();
        assert_eq!(patience.wait(stuck()), None);
        assert!(began.elapsed() >= Duration::from_millis(200));
        assert_eq!(patience.wait(|| 2), Some(2), "another reader takes over");
        let began = Instant::now();
        for _ in 0..4 {
            assert_eq!(patience.wait(stuck()), None);
        }
        // Each of them 50 ms, not 200.
        assert!(began.elapsed() < Duration::from_millis(700), "{:?}", began.elapsed());
        release.store(true, Ordering::Relaxed);
    }

    #[test]
    fn one_that_panics_is_no_answer() {
        let patience = Patience::new(Duration::from_secs(3));
        assert_eq!(patience.wait(|| -> u8 { panic!("on purpose") }), None);
        assert_eq!(patience.wait(|| 3), Some(3));
    }
}
