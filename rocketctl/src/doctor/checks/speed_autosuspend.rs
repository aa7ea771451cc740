use super::super::finding::Finding;
use super::super::{About, Case, Check};
use super::kernel_module::pending;
use super::{INSTALL_RULES, REMOVE_RULES};

const ID: &str = "speed.autosuspend";

pub const CHECK: Check = Check {
    id: ID,
    explain: "A core is switched off when it had no job for so long: 50 ms on mainline's driver. That is shorter \
              than many gaps between submits, and each start costs time: whisper's encoder took 1.8 s at 50 ms and \
              1.27 s from 200 ms on (reported). Never set power/control to on instead: the cores then never rest.",
    after: &["speed.power-control", "kernel.probe"],
    about: About::Machine,
    required: false,
    run,
};

/// From here on it makes no difference (kernel-and-uapi C.2, 081).
const ENOUGH_MS: i64 = 200;

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    if let Some(waits) = pending(facts, ID) {
        return waits;
    }
    let Some(core) = facts.power.first() else {
        return Finding::unknown(ID, "when cores are switched off", "the driver has no core");
    };
    let ms = match &core.autosuspend_ms {
        Ok(ms) => *ms,
        Err(absent) => return Finding::unread(ID, "when cores are switched off", absent),
    };
    if !(0..ENOUGH_MS).contains(&ms) {
        return Finding::ok(ID, format!("cores are switched off after {ms} ms"));
    }
    Finding::warn(ID, format!("cores are switched off after {ms} ms"))
        .cause("That is shorter than the gaps between submits: each gap costs the start of a core.")
        .seen(format!("{}/autosuspend_delay_ms", core.path), ms.to_string())
        .fix(INSTALL_RULES, "rocketctl doctor --only speed.autosuspend", REMOVE_RULES)
}
