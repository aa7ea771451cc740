//! The cores: the counters of our kernel series, runtime power management, interrupts (kernel-and-uapi C.4 P2, D.3,
//! D.6).

use super::Source;
use crate::sample::{Core, Raw, Sample, TimeSource};
use rocket_runtime::board::Root;

const DRIVER: &str = "sys/bus/platform/drivers/rocket";

/// See the module.
#[derive(Debug)]
pub struct Cores;

impl Source for Cores {
    fn fill(&mut self, root: &Root, sample: &mut Sample) {
        let names = root.names(DRIVER).unwrap_or_default();
        let interrupts = root.text("proc/interrupts").map_err(|e| e.to_string());
        sample.cores = names
            .into_iter()
            .filter(|name| root.exists(&format!("{DRIVER}/{name}/power")) == Ok(true))
            .map(|name| core(root, name, &interrupts))
            .collect();
    }
}

fn core(root: &Root, name: String, interrupts: &Result<String, String>) -> Core {
    let device = format!("sys/bus/platform/devices/{name}");
    let number = |file: &str| Raw::<u64>::from(root.number(&format!("{device}/{file}")));
    let active = number("power/runtime_active_time").map(|ms| ms.saturating_mul(1_000_000));
    let time = [(TimeSource::Sysfs, number("npu_busy_ns")), (TimeSource::Power, active)];
    Core {
        time: time.into_iter().collect(),
        jobs: number("npu_jobs"),
        timeouts: number("npu_timeouts"),
        faults: number("npu_faults"),
        interrupts: match interrupts {
            Ok(text) => of_core(text, &name),
            Err(why) => Raw::Why(why.clone()),
        },
        status: Raw::from(root.text(&format!("{device}/power/runtime_status"))),
        name,
    }
}

/// Counts for each CPU of the line whose action names have the core's: it shares the line with its IOMMU.
pub fn of_core(text: &str, core: &str) -> Raw<Vec<u64>> {
    let cpus = text.lines().next().map_or(0, |head| head.split_whitespace().count());
    let line = text.lines().skip(1).find(|l| {
        let actions = l.split([' ', '\t', ',']).filter(|w| !w.is_empty());
        actions.rev().any(|w| w == core)
    });
    let Some(line) = line else {
        return Raw::Why(format!("no line of /proc/interrupts has {core}"));
    };
    let counts: Option<Vec<u64>> =
        line.split_whitespace().skip(1).take(cpus).map(|n| n.parse().ok()).collect();
    match counts {
        Some(counts) if cpus > 0 && counts.len() == cpus => Raw::Value(counts),
        _ => Raw::Why("its line of /proc/interrupts is none".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_interrupts() {
        let text = "           CPU0       CPU1\n 35:        7          0    GICv3 142 Level     fdab9000.iommu, fdab0000.npu\n\
                     36:  4294967295  3  GICv3 143 Level     fdaca000.iommu, fdac0000.npu\nERR:  0\n";
        assert_eq!(of_core(text, "fdab0000.npu"), Raw::Value(vec![7, 0]));
        assert_eq!(of_core(text, "fdac0000.npu"), Raw::Value(vec![u64::from(u32::MAX), 3]));
        assert!(of_core(text, "fdad0000.npu").why().is_some());
        assert!(of_core(text, "npu").why().is_some(), "a name and no part of one");
        assert!(of_core("", "x").why().is_some());
        assert!(of_core("CPU0 CPU1\n1: 5 x y fdab0000.npu", "fdab0000.npu").why().is_some());
    }
}
