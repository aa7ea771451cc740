use super::super::finding::{Finding, word};
use super::super::{About, Case, Check};
use rocket_runtime::board::cpu;
use std::collections::BTreeSet;

const ID: &str = "speed.governor";

pub const CHECK: Check = Check {
    id: ID,
    explain: "The processor packs what the NPU computes and runs what it cannot. How fast it is, the governor of its \
              clock decides: with performance on the big cores one encoder took 3.06 s in place of 7.2 (reported). \
              It costs power and heat, so nothing is changed unasked.",
    after: &["kernel.probe"],
    about: About::Machine,
    required: false,
    run,
};

/// Those that keep the clock down.
const SLOW: [&str; 2] = ["powersave", "conservative"];

fn run(case: &Case) -> Finding {
    let cpus = match &case.facts.cpus {
        Ok(cpus) => cpu::big(cpus),
        Err(absent) => return Finding::unread(ID, "the processor's governor", absent),
    };
    let Some(first) = cpus.first() else {
        return Finding::unknown(ID, "the processor's governor", "sysfs names no processor");
    };
    let names: BTreeSet<&str> = cpus.iter().filter_map(|c| c.governor.as_deref().ok()).collect();
    let list: Vec<&str> = names.iter().copied().collect();
    let title = format!("{} on the fast cores", list.join(", "));
    let finding = match (list.as_slice(), &first.governor) {
        ([], Err(absent)) => return Finding::unread(ID, "the processor's governor", absent),
        (["performance"], _) => return Finding::ok(ID, title),
        _ if list.iter().any(|g| SLOW.contains(g)) => Finding::warn(ID, title)
            .cause("It keeps the clock of those cores down that pack for the NPU."),
        _ => Finding::note(ID, title)
            .cause("It follows the load; performance has been reported as faster where programs wait for the NPU."),
    };
    let file = format!("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", first.number);
    let numbers: Vec<String> = cpus.iter().map(|c| c.number.to_string()).collect();
    let files = match numbers.as_slice() {
        [one] => format!("/sys/devices/system/cpu/cpu{one}/cpufreq/scaling_governor"),
        all => format!("/sys/devices/system/cpu/cpu[{}]/cpufreq/scaling_governor", ranges(all)),
    };
    let slower = list.iter().find(|g| **g != "performance").copied().unwrap_or("schedutil");
    let former = word(slower);
    finding.seen(file, first.governor.clone().unwrap_or_default()).fix(
        format!("echo performance | sudo tee {files}"),
        "rocketctl doctor --only speed.governor",
        format!("echo {former} | sudo tee {files}"),
    )
}

/// The digits of a shell's pattern; boards have fewer than ten processors, and of more the first ten are enough.
fn ranges(numbers: &[String]) -> String {
    numbers.iter().filter(|n| n.len() == 1).map(String::as_str).collect()
}
