//! Interrupts of the cores, and which processors take them (kernel-and-uapi D.6).

use super::{Reading, Root, cpu};

/// A line of `/proc/interrupts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The number below `/proc/irq`.
    pub number: u32,
    /// How many each processor took.
    pub counts: Vec<u64>,
    /// Who handles it: a core shares its line with its IOMMU.
    pub names: Vec<String>,
}

/// An interrupt of a core.
#[derive(Debug, Clone)]
pub struct Interrupt {
    /// As `/proc/interrupts` has it.
    pub line: Line,
    /// Processors that may take it.
    pub allowed: Reading<Vec<usize>>,
    /// The processor that does.
    pub effective: Reading<Vec<usize>>,
}

/// Those of the NPU's cores.
pub fn read(root: &Root) -> Reading<Vec<Interrupt>> {
    let lines = root.parsed("proc/interrupts", parse)?;
    let ours = lines.into_iter().filter(|l| l.names.iter().any(|n| n.ends_with(".npu")));
    let list = |line: &Line, file: &str| {
        root.parsed(&format!("proc/irq/{}/{file}", line.number), cpu::parse_list)
    };
    Ok(ours
        .map(|line| Interrupt {
            allowed: list(&line, "smp_affinity_list"),
            effective: list(&line, "effective_affinity_list"),
            line,
        })
        .collect())
}

/// The lines that have a number.
///
/// # Errors
/// In words: the first line does not name processors.
pub fn parse(text: &str) -> Result<Vec<Line>, String> {
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    if head.is_empty() || !head.iter().all(|w| w.starts_with("CPU")) {
        return Err("does not begin with the CPUs".into());
    }
    Ok(lines.filter_map(|l| line(l, head.len())).collect())
}

fn line(text: &str, cpus: usize) -> Option<Line> {
    let (number, rest) = text.split_once(':')?;
    let number = number.trim().parse().ok()?;
    let tokens: Vec<&str> = rest.split_whitespace().collect();
    let counts: Option<Vec<u64>> = tokens.get(..cpus)?.iter().map(|t| t.parse().ok()).collect();
    // The chip, its number for it, and how it is triggered lie before the names.
    let after = &tokens[cpus..];
    let trigger = after.iter().position(|t| matches!(*t, "Level" | "Edge"));
    let names = after.get(trigger.map_or(2, |t| t + 1)..).unwrap_or_default().join(" ");
    let names = names.split(',').map(|n| n.trim().to_owned()).filter(|n| !n.is_empty());
    Some(Line { number, counts: counts?, names: names.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "           CPU0       CPU1
 13:       4021       3999     GICv3  26 Level     arch_timer
 87:        512          1     GICv3 142 Level     fdab9000.iommu, fdab0000.npu
 88:          7          0  rockchip_gpio_irq   4 Edge  sd card detect
IPI0:      1000       1000       Rescheduling interrupts
Err:          0
";

    #[test]
    fn lines_with_a_number() {
        let lines = parse(TEXT).unwrap();
        assert_eq!(lines.iter().map(|l| l.number).collect::<Vec<_>>(), [13, 87, 88]);
        assert_eq!(lines[1].names, ["fdab9000.iommu", "fdab0000.npu"]);
        assert_eq!((&lines[1].counts[..], &*lines[2].names[0]), (&[512, 1][..], "sd card detect"));
        assert!(parse("").is_err() && parse(" 13: 5\n").is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_text(text in "CPU0 CPU1\\n[ :0-9a-zA-Z,.\\n]{0,200}") {
            let _ = parse(&text);
        }
    }
}
