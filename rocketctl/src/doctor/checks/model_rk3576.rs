use super::super::finding::Finding;
use super::super::{About, Case, Check};
use crate::forecast::Soc;
use std::collections::BTreeSet;

const ID: &str = "model.rk3576";

pub const CHECK: Check = Check {
    id: ID,
    explain: "The NPU of an RK3576 multiplies in 8-bit numbers alone: a route there takes the unquantized weights of an \
              F16 (or F32) file, and only with ROCKET_INT8=1; quantized and BF16 weights, attention and experts stay \
              on the CPU. This version drives no RK3576 yet.",
    after: &["model.format"],
    about: About::Model,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let Some((model, header)) =
        case.named.model.as_ref().and_then(|m| Some((m, m.header.as_ref().ok()?)))
    else {
        return Finding::unknown(ID, "the RK3576", "the model's header is not known");
    };
    if model.settings.soc != Soc::Rk3576 {
        return Finding::ok(ID, "does not apply to this part");
    }
    let unfit: BTreeSet<String> = header
        .tensors
        .iter()
        .filter(|t| t.dims >= 2 && !["f16", "f32"].contains(&t.dtype.name().as_str()))
        .map(|t| t.dtype.name())
        .collect();
    let set = model.settings.knobs.wanted.int8.is_some();
    let wants = match (unfit.is_empty(), set) {
        (false, _) => {
            let names: Vec<String> = unfit.into_iter().collect();
            format!(
                "An RK3576 takes F16 files alone, with ROCKET_INT8=1; this one has {}.",
                names.join(", ")
            )
        }
        (true, false) => {
            "The file is F16, as an RK3576 needs it; ROCKET_INT8=1 would have to be set.".to_owned()
        }
        (true, true) => {
            "The file is F16 and ROCKET_INT8=1 is set, as an RK3576 needs it.".to_owned()
        }
    };
    Finding::warn(ID, "on an RK3576 it all stays on the CPU")
        .cause(format!("{wants} This version has no route on that part yet."))
        .seen("ROCKET_INT8", if set { "1" } else { "unset" })
}
