//! The cores: the counters of our kernel series, runtime power management, interrupts (kernel-and-uapi C.4 P2, D.3,
//! D.6).

use super::Source;
use crate::sample::{Core, Raw, Sample, TimeSource};
use rocket_runtime::board::{Root, irq};

const DRIVER: &str = "sys/bus/platform/drivers/rocket";

/// See the module.
#[derive(Debug)]
pub struct Cores;

impl Source for Cores {
    fn fill(&mut self, root: &Root, sample: &mut Sample) {
        let names = root.names(DRIVER).unwrap_or_default();
        let text = root.text("proc/interrupts").map_err(|e| e.to_string());
        let interrupts = text.and_then(|text| irq::parse(&text));
        sample.cores = names
            .into_iter()
            .filter(|name| root.exists(&format!("{DRIVER}/{name}/power")) == Ok(true))
            .map(|name| core(root, name, &interrupts))
            .collect();
    }
}

fn core(root: &Root, name: String, interrupts: &Result<Vec<irq::Line>, String>) -> Core {
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
            Ok(lines) => of_core(lines, &name),
            Err(why) => Raw::Why(why.clone()),
        },
        status: Raw::from(root.text(&format!("{device}/power/runtime_status"))),
        name,
    }
}

/// Counts for each CPU of the core's line, which it shares with its IOMMU.
fn of_core(lines: &[irq::Line], core: &str) -> Raw<Vec<u64>> {
    match lines.iter().find(|l| l.names.iter().any(|n| n == core)) {
        Some(line) => Raw::Value(line.counts.clone()),
        None => Raw::Why(format!("no line of /proc/interrupts has {core}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_interrupts() {
        let text = "           CPU0       CPU1\n 35:        7          0    GICv3 142 Level     fdab9000.iommu, fdab0000.npu\n\
                     36:  4294967295  3  GICv3 143 Level     fdaca000.iommu, fdac0000.npu\nERR:  0\n";
        let lines = irq::parse(text).unwrap();
        assert_eq!(of_core(&lines, "fdab0000.npu"), Raw::Value(vec![7, 0]));
        assert_eq!(of_core(&lines, "fdac0000.npu"), Raw::Value(vec![u64::from(u32::MAX), 3]));
        assert!(of_core(&lines, "fdad0000.npu").why().is_some());
        assert!(of_core(&lines, "npu").why().is_some(), "a name and no part of one");
    }
}
