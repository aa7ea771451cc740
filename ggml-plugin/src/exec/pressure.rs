//! Whether the system is short of memory: MemAvailable's floor, and the kernel's pressure-stall
//! figures where it has them.

use rocket_runtime::board::{self, Memory};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Share of the last ten seconds, in per cent, in which some task waited for memory: from here on
/// resident weights go. A machine that swaps shows tens; one that is merely busy, less than one.
const STALLED: f64 = 10.0;
/// Share of resident weights that goes at once, and how long the average takes to show what it
/// did: without the pause one stall would drive out everything.
const STALL_PAUSE: Duration = Duration::from_secs(10);
/// How often the figures are read at most.
pub(super) const EVERY: Duration = Duration::from_millis(250);

/// Figures of one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// `None` where unreadable: then it says nothing.
    pub memory: Option<Memory>,
    /// PSI `some avg10`, per cent.
    pub stalled: Option<f64>,
}

/// Reads them below a root path.
pub fn sample(root: &Path) -> Sample {
    let psi = std::fs::read_to_string(root.join("proc/pressure/memory")).ok();
    let stalled = psi.as_deref().and_then(|text| {
        let some = text.lines().find(|l| l.starts_with("some "))?;
        let avg10 = some.split_whitespace().find_map(|w| w.strip_prefix("avg10="))?;
        avg10.parse().ok()
    });
    Sample { memory: board::memory(root), stalled }
}

/// Bytes to give back now, of `resident` ones. Under the floor: what is missing to stand a
/// quarter above it, so that the next sample does not come back for more. Stalled: a quarter.
pub fn shortage(s: &Sample, reserve: Option<u64>, resident: u64) -> u64 {
    let missing = s.memory.map_or(0, |m| {
        let floor = floor(&m, reserve);
        if m.available < floor { floor + floor / 4 - m.available } else { 0 }
    });
    let stalled = if s.stalled.is_some_and(|p| p >= STALLED) { resident.div_ceil(4) } else { 0 };
    missing.max(stalled).min(resident)
}

/// Least that stays available: what the user reserved, else half a GiB or a tenth of the machine.
fn floor(m: &Memory, reserve: Option<u64>) -> u64 {
    reserve.unwrap_or_else(|| (512 << 20).max(m.total / 10))
}

/// Whether `bytes` more may become resident: not while stalled, nor when they would leave less than
/// a quarter above the floor.
pub fn admits(s: &Sample, reserve: Option<u64>, bytes: u64) -> bool {
    let room = s.memory.is_none_or(|m| {
        m.available.saturating_sub(bytes)
            >= floor(&m, reserve).saturating_add(floor(&m, reserve) / 4)
    });
    room && s.stalled.is_none_or(|p| p < STALLED / 2.0)
}

/// Bytes that could become resident of a machine's memory.
pub fn room(m: &Memory, reserve: Option<u64>) -> u64 {
    let floor = floor(m, reserve);
    m.available.saturating_sub(floor.saturating_add(floor / 4))
}

/// The same over time, for one root.
#[derive(Debug)]
pub struct Pressure {
    root: PathBuf,
    reserve: Option<u64>,
    times: Mutex<Times>,
}

#[derive(Debug, Default)]
struct Times {
    read: Option<Instant>,
    /// When memory was last given back because of a stall.
    stalled: Option<Instant>,
}

impl Pressure {
    /// Of the system below `root`.
    pub fn new(root: &Path, reserve: Option<u64>) -> Pressure {
        Pressure { root: root.to_owned(), reserve, times: Mutex::default() }
    }

    /// The root it looks below.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Bytes that could become resident now; `None` where the system does not say.
    pub fn room(&self) -> Option<u64> {
        Some(room(&sample(&self.root).memory?, self.reserve))
    }

    /// Bytes to give back now; 0 between two readings.
    pub fn shortage(&self, resident: u64) -> u64 {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        if times.read.is_some_and(|t| t.elapsed() < EVERY) {
            return 0;
        }
        times.read = Some(Instant::now());
        let mut s = sample(&self.root);
        if times.stalled.is_some_and(|t| t.elapsed() < STALL_PAUSE) {
            s.stalled = None;
        }
        if s.stalled.is_some_and(|p| p >= STALLED) {
            times.stalled = Some(Instant::now());
        }
        shortage(&s, self.reserve, resident)
    }

    /// Whether so many bytes more may become resident, as of now.
    ///
    /// # Errors
    /// Why not.
    pub fn admits(&self, bytes: u64) -> Result<(), &'static str> {
        let s = sample(&self.root);
        match (admits(&s, self.reserve, bytes), s.stalled.is_some_and(|p| p >= STALLED / 2.0)) {
            (true, _) => Ok(()),
            (_, true) => Err("tasks of this system wait for memory"),
            _ => Err("available memory is at its reserve"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn at(available: u64, stalled: Option<f64>) -> Sample {
        Sample { memory: Some(Memory { available, total: 8 * GIB }), stalled }
    }

    #[test]
    fn what_is_given_back() {
        let floor = 8 * GIB / 10;
        for (s, resident, gives, admitted) in [
            (at(4 * GIB, None), GIB, 0, true),
            (at(4 * GIB, Some(0.3)), GIB, 0, true),
            (at(4 * GIB, Some(10.0)), GIB, GIB / 4, false),
            (at(4 * GIB, Some(7.0)), GIB, 0, false),
            (at(floor, None), GIB, 0, false),
            (at(floor - 1, None), GIB, floor / 4 + 1, false),
            (at(floor - 1, None), 5, 5, false),
            (at(0, Some(99.0)), 3 * GIB, floor + floor / 4, false),
            (Sample { memory: None, stalled: None }, GIB, 0, true),
        ] {
            assert_eq!(shortage(&s, None, resident), gives, "{s:?} {resident}");
            assert_eq!(admits(&s, None, 1 << 20), admitted, "{s:?}");
        }
        assert_eq!(shortage(&at(GIB, None), Some(2 * GIB), 9 * GIB), 3 * GIB / 2);
        // The weight itself must fit above the floor too.
        let margin = floor + floor / 4;
        assert!(admits(&at(margin + GIB, None), None, GIB));
        assert!(!admits(&at(margin + GIB - 1, None), None, GIB));
    }

    #[test]
    fn figures_are_read_below_a_root_and_not_too_often() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(sample(dir.path()), Sample { memory: None, stalled: None });
        std::fs::create_dir_all(dir.path().join("proc/pressure")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 1024 kB\n");
        write(
            "proc/pressure/memory",
            "some avg10=12.50 avg60=1.00 avg300=0.10 total=5\nfull avg10=3.00 avg60=0 avg300=0 total=1\n",
        );
        let s = sample(dir.path());
        assert_eq!((s.memory.map(|m| m.available), s.stalled), (Some(1 << 20), Some(12.5)));
        let p = Pressure::new(dir.path(), None);
        assert!(p.shortage(GIB) > 0);
        assert_eq!(p.admits(1), Err("tasks of this system wait for memory"));
        assert_eq!(p.shortage(GIB), 0, "read a moment ago");
        write("proc/pressure/memory", "some avg10=0.00 avg60=0 avg300=0 total=5\n");
        write("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n");
        assert_eq!(p.admits(GIB), Ok(()));
        assert_eq!(p.admits(4 * GIB), Err("available memory is at its reserve"));
    }

    /// The average of ten seconds still shows a stall that is over: it counts once.
    #[test]
    fn one_stall_does_not_drive_out_everything() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc/pressure")).unwrap();
        let psi = dir.path().join("proc/pressure/memory");
        std::fs::write(psi, "some avg10=40.00 avg60=1.00 avg300=0.10 total=5\n").unwrap();
        let p = Pressure::new(dir.path(), None);
        assert_eq!(p.shortage(GIB), GIB / 4);
        std::thread::sleep(EVERY);
        assert_eq!(p.shortage(GIB), 0);
    }
}
