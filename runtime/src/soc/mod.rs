//! Which chip this is: one [`Profile`] a part, found by its exact device-tree entry.

mod rk3588;

pub use rk3588::RK3588;

use crate::{Error, Result};
use std::path::Path;

/// What the planner and the encoder need to know of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Part name as users know it.
    pub name: &'static str,
    /// Device-tree `compatible` entries that name this part, exactly.
    pub compatible: &'static [&'static str],
    /// NPU cores.
    pub cores: usize,
    /// CBUF banks a core (npu-rk3588 4.1).
    pub cbuf_banks: usize,
    /// Bytes of a CBUF bank.
    pub bank_bytes: usize,
    /// How long its programs take, modelled.
    pub timing: Timing,
    /// The lowest clock the part is run at, in Hz: the boot default (npu-rk3588 8.1).
    pub slowest_hz: u64,
    /// The validated operating point, in Hz.
    pub nominal_hz: u64,
}

/// The constants of the cost model: what a core is charged for a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// Multiply-accumulates a core and cycle, by the bits of an operand.
    pub macs_per_cycle: [(usize, u64); 4],
    /// Bytes a microsecond that one core moves, whatever the NPU's clock.
    pub bytes_per_us: u64,
    /// A start of the program controller: interrupt, and registers written anew.
    pub kick_ns: u64,
    /// A job beside its kicks.
    pub job_ns: u64,
    /// A task that follows another in the same kick. Planner only.
    pub link_ns: u64,
    /// Bytes a microsecond that the host synchronises, reads and adds up of results. Planner
    /// only.
    pub host_bytes_per_us: u64,
}

impl Timing {
    /// Multiply-accumulates a core and cycle of operands of `bits`: the rate of the next wider
    /// ones where a width has none of its own.
    pub fn macs_per_cycle(&self, bits: usize) -> u64 {
        let known = self.macs_per_cycle.iter().find(|(wide, _)| bits <= *wide);
        known.map_or(self.macs_per_cycle[3].1, |(_, rate)| *rate)
    }
}

/// Every part this version drives.
pub const PROFILES: &[&Profile] = &[&RK3588];

/// Finds the profile of the board whose device tree lies below `root` (`/` on a live machine).
///
/// # Errors
/// [`Error::UnknownSoc`] when no entry of `proc/device-tree/compatible` equals one of a profile;
/// a part is never guessed from a similar name.
pub fn detect(root: &Path) -> Result<&'static Profile> {
    let raw = std::fs::read(root.join("proc/device-tree/compatible")).unwrap_or_default();
    let found: Vec<String> = raw
        .split(|&b| b == 0)
        .filter(|s| !s.is_empty())
        .map(|s| String::from_utf8_lossy(s).into_owned())
        .collect();
    PROFILES
        .iter()
        .find(|p| found.iter().any(|f| p.compatible.contains(&f.as_str())))
        .copied()
        .ok_or_else(|| Error::UnknownSoc {
            found,
            known: PROFILES
                .iter()
                .flat_map(|p| p.compatible)
                .copied()
                .collect::<Vec<_>>()
                .join(", "),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(compatible: &[u8]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc/device-tree")).unwrap();
        std::fs::write(dir.path().join("proc/device-tree/compatible"), compatible).unwrap();
        dir
    }

    #[test]
    fn exact_entries_only() {
        for (tree, part) in [
            (&b"radxa,rock-5b\0rockchip,rk3588\0"[..], Some("RK3588")),
            (b"xunlong,orangepi-5\0rockchip,rk3588s\0", Some("RK3588")),
            (b"rockchip,rk3588j\0", None),
            (b"rockchip,rk3576\0", None),
            (b"rockchip,rk35\0", None),
            (b"", None),
        ] {
            let dir = board(tree);
            assert_eq!(detect(dir.path()).ok().map(|p| p.name), part, "{tree:?}");
        }
    }

    #[test]
    fn refusal_names_what_was_found_and_what_is_known() {
        let dir = board(b"acme,board\0rockchip,rk3576\0");
        let words = detect(dir.path()).unwrap_err().to_string();
        assert!(words.contains("rockchip,rk3576") && words.contains("rockchip,rk3588"), "{words}");
    }
}
