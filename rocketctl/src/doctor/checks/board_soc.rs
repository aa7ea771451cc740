use super::super::finding::Finding;
use super::super::{About, Case, Check};
use rocket_runtime::board::silicon::CoreVersion;

const ID: &str = "board.soc";

pub const CHECK: Check = Check {
    id: ID,
    explain: "The part is found by an exact entry of the device tree's compatible list. RK3588 and RK3588S \
              are driven; mainline has no nodes for the RK3576's NPU.",
    after: &["board.family"],
    about: About::Machine,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    let compatible = match &facts.compatible {
        Ok(compatible) => compatible,
        Err(absent) => return Finding::unread(ID, "the part is not known", absent),
    };
    let is = |part: &str| compatible.iter().any(|c| c == part);
    let board = facts.model.clone().unwrap_or_else(|_| "unnamed board".into());
    // A tree for another part boots, and its NPU then computes nonsense (cases A1).
    let other = facts.core_versions().into_iter().find(|v| v.value == CoreVersion::RK3576);
    let rk3588 = is("rockchip,rk3588") || is("rockchip,rk3588s");
    if let Some(version) = other.filter(|_| rk3588) {
        return Finding::fail(ID, "the device tree is of an RK3588, the silicon of an RK3576")
            .cause("The boot loader gives the kernel another board's device tree.")
            .seen("/proc/device-tree/compatible", compatible.join(", "))
            .seen("kernel log", format!("core {} version {version}", version.core))
            .fix(
                "rocketctl explain board.soc",
                "rocketctl doctor --only board.soc",
                "none needed",
            );
    }
    match () {
        () if is("rockchip,rk3588") => Finding::ok(ID, format!("RK3588, {board}")),
        () if is("rockchip,rk3588s") => Finding::ok(ID, format!("RK3588S, {board}")),
        () if is("rockchip,rk3576") => Finding::fail(ID, "RK3576, which mainline does not drive yet")
            .cause(match facts.rocket_nodes().next() {
                Some(_) => {
                    "Its driver runs, from patches of others; this suite's programs are an RK3588's, and two \
                     cores of this part at once compute wrong results. The simulator is of an RK3588."
                }
                None => {
                    "No mainline device tree has the NPU of this part, and this suite's series does not add \
                     it. The simulator is of an RK3588."
                }
            })
            .seen("/proc/device-tree/compatible", compatible.join(", "))
            .fix("rocketctl sim run -- COMMAND", "rocketctl sim board", "none needed: it ends with its program"),
        () => Finding::fail(ID, "a part that is not known")
            .cause("Known are rockchip,rk3588 and rockchip,rk3588s; a similar name is not taken for one.")
            .seen("/proc/device-tree/compatible", compatible.join(", "))
            .fix("rocketctl sim run -- COMMAND", "rocketctl sim board", "none needed: it ends with its program"),
    }
}
