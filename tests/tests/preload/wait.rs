//! Waiting for what another process does. The limits are far beyond what it takes.

use std::time::{Duration, Instant};

const LONGEST: Duration = Duration::from_secs(60);

/// Looks until `done` has something.
pub fn until<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(begun.elapsed() < LONGEST, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
