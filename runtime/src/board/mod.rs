//! What can be read of the machine, always below a root path (`/` on a live one).
//!
//! [`Root`] is the layer that operator tools read through: every reading is a value or the reason why there is
//! none, and what was looked at is written down.

pub mod boot;
pub mod clocks;
pub mod cpu;
pub mod devfreq;
pub mod dtb;
mod facts;
pub mod fdinfo;
pub mod fdt;
pub mod irq;
pub mod kconfig;
mod limit;
mod reading;
mod root;
mod side;
pub mod silicon;
pub mod thermal;

pub use boot::NextKernel;
pub use dtb::PackagedTree;
pub use facts::{AccelNode, CorePower, DtNode, Facts, Module};
pub use kconfig::KernelConfig;
pub use reading::{Absent, Reading, Why};
pub use root::{Kept, Root};
pub use side::{Identity, LogLine, Stat, of_interest, parse_log};

use std::path::Path;

/// MemAvailable and MemTotal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Bytes that can be had without swapping.
    pub available: u64,
    /// Bytes in all.
    pub total: u64,
}

/// Reads `proc/meminfo` below `root`; `None` where it is missing or unreadable: unknown, not 0.
pub fn memory(root: &Path) -> Option<Memory> {
    meminfo(&std::fs::read_to_string(root.join("proc/meminfo")).ok()?)
}

/// The two of `proc/meminfo`'s text.
fn meminfo(text: &str) -> Option<Memory> {
    let field = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Memory { available: field("MemAvailable:")?, total: field("MemTotal:")? })
}

/// The big cores of a machine that has two kinds, by the capacity that the kernel derives from the
/// device tree: those of at least three quarters of the largest (the A76 pairs of one chip differ a
/// little). `None` where all are alike or the kernel does not say.
pub fn big_cores(root: &Path) -> Option<Vec<usize>> {
    let cpus = std::fs::read_dir(root.join("sys/devices/system/cpu")).ok()?;
    let mut capacities: Vec<(usize, u64)> = cpus
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let number = entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok()?;
            let text = std::fs::read_to_string(entry.path().join("cpu_capacity")).ok()?;
            Some((number, text.trim().parse().ok()?))
        })
        .collect();
    capacities.sort_unstable();
    let largest = capacities.iter().map(|(_, c)| *c).max()?;
    let is_big = |c: u64| c * 4 >= largest * 3;
    let big: Vec<usize> = capacities.iter().filter(|(_, c)| is_big(*c)).map(|(n, _)| *n).collect();
    (big.len() < capacities.len()).then_some(big)
}

/// CPUs that this thread may run on, as `taskset` and containers limit them; ascending.
pub fn allowed_cpus() -> Vec<usize> {
    let mine = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0));
    let is_set = |c: &usize| mine.as_ref().is_ok_and(|set| set.is_set(*c).unwrap_or(false));
    (0..nix::sched::CpuSet::count()).filter(is_set).collect()
}

/// Lets this thread run on these CPUs only. A CPU that is offline or forbidden (a container) is
/// the system's business: then the thread stays where it may run.
pub(crate) fn pin(cores: &[usize]) {
    let mut set = nix::sched::CpuSet::new();
    let known = cores.iter().filter(|&&c| set.set(c).is_ok()).count();
    if known > 0
        && let Err(e) = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)
    {
        tracing::debug!("cannot run on CPUs {cores:?} alone: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_big_cores_of_a_tree() {
        let tree = |capacities: &[Option<u64>]| {
            let dir = tempfile::tempdir().unwrap();
            let cpus = dir.path().join("sys/devices/system/cpu");
            std::fs::create_dir_all(cpus.join("cpufreq")).unwrap();
            for (i, capacity) in capacities.iter().enumerate() {
                let cpu = cpus.join(format!("cpu{i}"));
                std::fs::create_dir(&cpu).unwrap();
                if let Some(c) = capacity {
                    std::fs::write(cpu.join("cpu_capacity"), format!("{c}\n")).unwrap();
                }
            }
            big_cores(dir.path())
        };
        // Like an RK3588: four A55, two pairs of A76 that differ a little.
        let (a55, a76) = (Some(530), Some(1024));
        let rk3588 = [a55, a55, a55, a55, Some(1004), Some(1004), a76, a76];
        assert_eq!(tree(&rk3588), Some(vec![4, 5, 6, 7]));
        assert_eq!(tree(&[a76; 4]), None, "all alike");
        assert_eq!(tree(&[None; 4]), None, "x86 does not say");
        assert_eq!(tree(&[]), None);
    }

    #[test]
    fn a_thread_goes_where_it_is_told_or_stays() {
        std::thread::spawn(|| {
            let me = nix::unistd::Pid::from_raw(0);
            let before = nix::sched::sched_getaffinity(me).unwrap();
            let first = allowed_cpus()[0];
            pin(&[]);
            pin(&[100_000]);
            assert_eq!(nix::sched::sched_getaffinity(me).unwrap(), before);
            pin(&[first]);
            let after = nix::sched::sched_getaffinity(me).unwrap();
            assert_eq!((after.is_set(first), allowed_cpus()), (Ok(true), vec![first]));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn reads_a_tree_and_knows_what_it_does_not_know() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(memory(dir.path()), None);
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        let write = |text| std::fs::write(dir.path().join("proc/meminfo"), text).unwrap();
        write("MemTotal:       16 kB\nMemFree: 1 kB\nMemAvailable:    4 kB\n");
        assert_eq!(memory(dir.path()), Some(Memory { available: 4096, total: 16384 }));
        write("MemTotal: 16 kB\n");
        assert_eq!(memory(dir.path()), None);
    }
}
