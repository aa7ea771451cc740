//! How much of the weights may stay resident.

use crate::board::memory;
use crate::{Error, Result};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// A limit on resident bytes, and a floor under the system's MemAvailable.
///
/// Buffer objects are pinned: nothing can take them back under pressure (kernel-and-uapi A.3),
/// so admission stops before the system is short.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    used: AtomicU64,
}

/// Least memory left available: half a GiB, or a tenth of the machine's if that is more.
const FLOOR_BYTES: u64 = 512 << 20;
const FLOOR_SHARE: u64 = 10;

impl Budget {
    /// A budget of `limit` bytes, or none.
    pub fn new(limit: Option<u64>) -> Budget {
        Budget { limit: limit.unwrap_or(u64::MAX), used: AtomicU64::new(0) }
    }

    /// Bytes charged now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The limit in bytes, `None` when unlimited.
    pub fn limit(&self) -> Option<u64> {
        (self.limit != u64::MAX).then_some(self.limit)
    }

    /// Charges `bytes`.
    pub(super) fn charge(&self, bytes: u64) -> Result<()> {
        let refuse =
            |why: String| Err(Error::Memory { asked: bytes, what: "resident weights", why });
        if let Some(m) = memory(Path::new("/")) {
            let floor = FLOOR_BYTES.max(m.total / FLOOR_SHARE);
            if m.available < floor.saturating_add(bytes) {
                return refuse(format!(
                    "{} MiB are available and {} MiB must stay so",
                    m.available >> 20,
                    floor >> 20
                ));
            }
        }
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= self.limit)
        });
        match taken {
            Ok(_) => Ok(()),
            Err(used) => refuse(format!("{used} of the budget's {} bytes are used", self.limit)),
        }
    }

    pub(super) fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_up_to_the_limit_and_says_why_not() {
        let b = Budget::new(Some(100));
        b.charge(60).unwrap();
        let words = b.charge(41).unwrap_err().to_string();
        assert!(words.contains("60 of the budget's 100"), "{words}");
        b.release(60);
        b.charge(100).unwrap();
        assert_eq!(b.used(), 100);
    }

    #[test]
    fn leaves_the_system_its_floor() {
        let words = Budget::new(None).charge(1 << 60).unwrap_err().to_string();
        assert!(words.contains("must stay so"), "{words}");
    }
}
