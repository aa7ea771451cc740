use super::super::finding::Finding;
use super::super::{About, Case, Check};
use rocket_runtime::board::cpu;

const ID: &str = "speed.irq";

pub const CHECK: Check = Check {
    id: ID,
    explain: "The end of a job is an interrupt, which one processor takes: CPU 0, a slow one, unless somebody chose. \
              On a fast one a submit took 33 us in place of 51 (reported). irqbalance may move it back; patched \
              drivers have rocket_irq_cpu for it.",
    after: &["kernel.probe"],
    about: About::Machine,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let what = "which processor takes the NPU's interrupts";
    let (interrupts, cpus) = match (&case.facts.interrupts, &case.facts.cpus) {
        (Ok(interrupts), Ok(cpus)) => (interrupts, cpus),
        (Err(absent), _) | (_, Err(absent)) => return Finding::unread(ID, what, absent),
    };
    let Some(first) = interrupts.first() else {
        return Finding::unknown(ID, what, "/proc/interrupts has none of a core");
    };
    let big: Vec<usize> = cpu::big(cpus).iter().map(|c| c.number).collect();
    if big.len() == cpus.len() {
        return Finding::ok(ID, "all processors are alike");
    }
    let taken = match &first.effective {
        Ok(taken) => taken,
        Err(absent) => return Finding::unread(ID, what, absent),
    };
    let slow = interrupts.iter().find(|i| {
        i.effective.as_ref().is_ok_and(|on| !on.is_empty() && on.iter().all(|c| !big.contains(c)))
    });
    let Some(slow) = slow else {
        return Finding::ok(ID, format!("CPU {} takes the NPU's interrupts", list(taken)));
    };
    let numbers: Vec<String> = interrupts.iter().map(|i| i.line.number.to_string()).collect();
    let files: Vec<String> =
        numbers.iter().map(|n| format!("/proc/irq/{n}/smp_affinity_list")).collect();
    let path = format!("/proc/irq/{}", slow.line.number);
    let (fast, former) =
        (big.first().copied().unwrap_or(0), slow.allowed.clone().unwrap_or_default());
    let on = slow.effective.clone().unwrap_or_default();
    Finding::note(ID, format!("CPU {}, a slow one, takes the NPU's interrupts", list(&on)))
        .cause(
            "On a fast one a submit takes a third less time (reported); it matters for small jobs.",
        )
        .seen(format!("{path}/effective_affinity_list"), list(&on))
        .fix(
            format!("echo {fast} | sudo tee {}", files.join(" ")),
            "rocketctl doctor --only speed.irq",
            format!("echo {} | sudo tee {}", list(&former), files.join(" ")),
        )
}

fn list(cpus: &[usize]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
