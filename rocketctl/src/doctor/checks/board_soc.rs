use super::super::finding::Finding;
use super::super::{About, Case, Check};

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
    match () {
        () if is("rockchip,rk3588") => Finding::ok(ID, format!("RK3588, {board}")),
        () if is("rockchip,rk3588s") => Finding::ok(ID, format!("RK3588S, {board}")),
        () if is("rockchip,rk3576") => Finding::fail(ID, "RK3576, which mainline does not drive yet")
            .cause(
                "No mainline device tree has the NPU of this part, and this suite's series does not add \
                 it. The simulator is of an RK3588.",
            )
            .seen("/proc/device-tree/compatible", compatible.join(", ")),
        () => Finding::fail(ID, "a part that is not known")
            .cause("Known are rockchip,rk3588 and rockchip,rk3588s; a similar name is not taken for one.")
            .seen("/proc/device-tree/compatible", compatible.join(", ")),
    }
}
