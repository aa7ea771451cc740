use super::super::finding::Finding;
use super::super::remedy::{BUILT, host_without};
use super::super::{About, Case, Check};
use super::host_repack::{self, OPTION};
use crate::model::Format;
use std::collections::BTreeSet;

const ID: &str = "model.types";

pub const CHECK: Check = Check {
    id: ID,
    explain: "A host with CPU_REPACK packs quantized weights for its own CPU when it loads them, into memory that \
              nobody else understands: their products then never reach the NPU, and nothing is logged. Which types it \
              packs depends on the CPU; on these boards Q4_0, Q8_0, IQ4_NL, MXFP4 and Q4_K to Q6_K. llama.cpp's \
              programs leave them plain with -nr (llama-bench: --repack 0); whisper.cpp has no such switch. F16, BF16 \
              and F32 are never packed.",
    after: &["model.format", "host.repack"],
    about: About::Model,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let Some((model, header)) = case.named.headed() else {
        return Finding::unknown(ID, "the model's types", "its header is not known");
    };
    let unknown: BTreeSet<String> =
        header.tensors.iter().filter(|t| !t.dtype.is_known()).map(|t| t.dtype.name()).collect();
    let (usual, plain) = (model.forecast(header, |_| {}), model.plain(header));
    let kept = usual.repacked > 0 && plain.share() > usual.share();
    if kept && host_repack::warns(case) {
        // The host is what does it.
        return Finding::skipped(ID, host_repack::CHECK.id);
    }
    if kept && !host_repack::leaves(case) {
        let (n, all) = model.packed(header);
        let found = Finding::warn(ID, "hosts keep these quantized weights from the NPU").seen(
            model.path.display().to_string(),
            format!("{n} of {all} quantized weights are of types that are packed"),
        );
        let cause = format!(
            "Unless it is told not to, a host packs them for its CPU alone: {:.1} % of the prefill would run on the NPU, \
             and {:.1} % where it packs nothing (modelled).",
            usual.share(),
            plain.share()
        );
        return match header.format {
            Format::Whisper => {
                let found = found.cause(format!(
                    "{cause} whisper.cpp has no switch against it: use the F16 file of this model, or Q5_0, or a \
                     host that is built without it."
                ));
                let verify =
                    format!("rocketctl doctor --host {BUILT} --model {} --only {ID}", model.word());
                host_without(found, OPTION, verify)
            }
            Format::Gguf(_) => found.cause(cause).fix(
                model.command(header),
                model.verify(" --repack off"),
                "leave -nr out again",
            ),
        };
    }
    match unknown.is_empty() {
        true => {
            Finding::ok(ID, format!("{:.1} % of the prefill on the NPU (modelled)", plain.share()))
        }
        false => {
            let names: Vec<String> = unknown.into_iter().collect();
            Finding::note(
                ID,
                format!("types newer than this version, left to the CPU: {}", names.join(", ")),
            )
        }
    }
}
