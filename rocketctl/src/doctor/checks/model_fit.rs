use super::super::finding::Finding;
use super::super::model::Model;
use super::super::{About, Case, Check};
use crate::forecast::{bytes, percent, quoted};
use crate::model::{Format, Header, Tensor, first};

const ID: &str = "model.fit";

pub const CHECK: Check = Check {
    id: ID,
    explain: "A weight is packed for the NPU once and stays, beside the model's file, which decoding reads. What does \
              not fit the memory that is available less a reserve, or the address windows of the workers (3.5 GiB \
              each), is packed again for every micro-batch. Experts stay as a whole stack or are the CPU's.",
    after: &["model.format"],
    about: About::Model,
    required: false,
    run,
};

/// Resident part, in per cent, below which prefill loses much of its gain.
const ENOUGH: f64 = 80.0;

fn run(case: &Case) -> Finding {
    let Some((model, header)) = case.named.headed() else {
        return Finding::unknown(ID, "what fits", "the model's header is not known");
    };
    let Some(memory) = model.settings.memory else {
        return Finding::unknown(ID, "what fits", "no usable /proc/meminfo");
    };
    let file = bytes(header.bytes);
    let seen = |f: Finding| {
        f.seen(model.path.display().to_string(), &file).seen(
            "/proc/meminfo",
            format!("{} of {} available", bytes(memory.available), bytes(memory.total)),
        )
    };
    if header.bytes > memory.total {
        let finding = seen(Finding::fail(ID, "the model is larger than the memory")).cause(format!(
            "{file} do not fit {}: every token would read the file again. Use a smaller quantization.",
            bytes(memory.total)
        ));
        return smaller(finding, model, header);
    }
    let plan = model.plain(header).plan;
    let (resident, all) = (
        plan.resident_bytes + plan.stacks_resident_bytes,
        plan.bytes.saturating_add(plan.stacks_bytes),
    );
    let share = percent(resident, all);
    let words = format!("{share:.0} % of {} resident (modelled)", bytes(all));
    match () {
        () if header.bytes > memory.available => {
            let finding = seen(Finding::warn(ID, "the model leaves no memory")).cause(format!(
                "Its file is larger than what is available ({}), so that weights are read again while it runs; {words}.",
                bytes(memory.available)
            ));
            smaller(finding, model, header)
        }
        () if all == 0 => Finding::ok(ID, "no weight of it would be packed for the NPU"),
        () if share < ENOUGH => {
            let why = plan.why.unwrap_or_else(|| "whole stacks of experts find no room".to_owned());
            seen(Finding::warn(ID, "much of the model cannot stay packed for the NPU"))
                .cause(format!(
                    "{words}: {why}. The rest is packed for each micro-batch or left to the CPU."
                ))
                .fix(
                    model.command(header),
                    model.verify(" --repack off"),
                    "start the host as before",
                )
        }
        () => Finding::ok(ID, words),
    }
}

/// Bits of a weight from which Q4_K_M saves something.
const WIDE: u64 = 5;

/// The host's own program makes a smaller file of it, beside it.
fn smaller(finding: Finding, model: &Model, header: &Header) -> Finding {
    let count = |t: &Tensor| t.ne.iter().fold(1u64, |n, ne| n.saturating_mul(*ne));
    let weights = header.tensors.iter().map(count).fold(0, u64::saturating_add);
    let wide = header.bytes.saturating_mul(8) > weights.saturating_mul(WIDE);
    let (program, kind, end) = match (header.format, wide) {
        (Format::Whisper, _) => ("whisper-quantize", "q5_0", "bin"),
        (_, true) => ("llama-quantize --allow-requantize", "Q4_K_M", "gguf"),
        (_, false) => ("llama-quantize --allow-requantize", "Q2_K", "gguf"),
    };
    let from = quoted(&first(header, &model.path).to_string_lossy());
    let to = model.beside(&format!("-{}.{end}", kind.to_lowercase()));
    finding.fix(format!("{program} {from} {to} {kind}"), Model::ask(&to, ID), format!("rm {to}"))
}
