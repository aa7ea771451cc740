use super::super::finding::Finding;
use super::super::model::Model;
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
    let Some((model, header)) = case.named.headed() else {
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
    let unfit_is_empty = unfit.is_empty();
    let set = model.settings.knobs.wanted.int8.is_some();
    let wants = match (unfit_is_empty, set) {
        (false, _) => {
            let names: Vec<String> = unfit.into_iter().collect();
            format!(
                "An RK3576 takes F16 files alone, with ROCKET_INT8=1; this one has {}. $URL is the address of such a file.",
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
    let words = "on an RK3576 it all stays on the CPU";
    // Nothing is left to do where all is as that part needs it.
    let ready = unfit_is_empty && set;
    let finding = if ready { Finding::note(ID, words) } else { Finding::warn(ID, words) };
    let finding = finding
        .cause(format!("{wants} This version has no route on that part yet."))
        .seen("ROCKET_INT8", if set { "1" } else { "unset" });
    let verify = |file: &str| Model::ask(file, ID);
    let switch = "export ROCKET_INT8=1";
    match (ready, unfit_is_empty) {
        (true, _) => finding,
        (_, true) => finding.fix(switch, verify(&model.word()), "unset ROCKET_INT8"),
        (_, false) => {
            let file = model.beside("-f16.gguf");
            finding.fix(
                format!("curl -fL -o {file} \"$URL\" && {switch}"),
                verify(&file),
                format!("rm {file}; unset ROCKET_INT8"),
            )
        }
    }
}
