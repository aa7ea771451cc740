use super::super::finding::Finding;
use super::super::{About, Case, Check};
use super::{INSTALL_PATCHES, REMOVE_PATCHES};

const ID: &str = "speed.clock";

pub const CHECK: Check = Check {
    id: ID,
    explain: "The NPU boots at 200 MHz and mainline leaves it there. 600 MHz at the stock voltage is the validated \
              operating point; prefill gets about 1.4 times as fast (reported). The one safe way is the driver's \
              parameter rocket_npu_clk_hz, which the series adds: a rate that is set while the power domain is \
              off hangs the firmware. Above 900 MHz boards have locked up.",
    after: &["kernel.probe"],
    about: About::Machine,
    required: false,
    run,
};

const PARAMETER: &str = "/sys/module/rocket/parameters/rocket_npu_clk_hz";
const WANTED: u64 = 600_000_000;

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    let now = facts.clock_hz.as_ref().map(|hz| format!("{} MHz", hz / 1_000_000));
    match (&facts.wanted_hz, &facts.clock_hz) {
        (Ok(hz), _) if *hz >= WANTED => Finding::ok(ID, format!("{} MHz while it works", hz / 1_000_000)),
        (Ok(_), _) => Finding::warn(ID, "the clock stays at the boot's 200 MHz")
            .cause("The driver can raise it and was not told to: about 1.4 times the speed (reported).")
            .seen(PARAMETER, facts.wanted_hz.clone().unwrap_or_default().to_string())
            .fix(
                "sudo rocketctl clock set 600MHz --keep",
                "rocketctl doctor --only speed.clock",
                "sudo rocketctl clock undo",
            ),
        (Err(_), Ok(hz)) if *hz >= WANTED => Finding::ok(ID, format!("{} MHz", hz / 1_000_000)),
        (Err(_), Err(absent)) if facts.interface() != Some((0, 0)) => {
            Finding::unread(ID, "the clock", absent)
        }
        (Err(_), _) => Finding::warn(ID, "the clock is the boot's, and this driver cannot raise it")
            .cause(
                "Patched drivers have a parameter for it, the only safe way: about 1.4 times the \
                 speed at 600 MHz (reported).",
            )
            .seen(
                "/sys/kernel/debug/clk/scmi_clk_npu/clk_rate",
                now.unwrap_or_else(|e| e.to_string()),
            )
            .seen(PARAMETER, "not there")
            .fix(INSTALL_PATCHES, "rocketctl doctor --only speed.clock", REMOVE_PATCHES),
    }
}
