use super::super::finding::Finding;
use super::super::{About, Case, Check};
use crate::forecast::ALIKE;

const ID: &str = "model.ubatch";

pub const CHECK: Check = Check {
    id: ID,
    explain: "A product runs on the NPU from so many rows on, which are the tokens of a micro-batch: 32 for F16, 128 \
              for quantized weights, 64 for each expert on average. Hosts cut prompts into micro-batches of 512 \
              (-ub); what does not stay packed is packed for each of them, and experts share them. Larger ones help \
              both: -b 2048 -ub 2048.",
    after: &["model.format"],
    about: About::Model,
    required: false,
    run,
};

const LARGE: u64 = 2048;

fn run(case: &Case) -> Finding {
    let Some((model, header)) = case.named.headed() else {
        return Finding::unknown(ID, "the micro-batch", "the model's header is not known");
    };
    let usual = model.plain(header);
    if usual.unit != "tokens" {
        return Finding::ok(
            ID,
            format!("{} {} at once, whatever the micro-batch", usual.rows, usual.unit),
        );
    }
    let large = model.forecast(header, |s| {
        s.repack = false;
        s.cut.ubatch = LARGE;
    });
    let streams = usual.plan.weights > usual.plan.resident && model.settings.memory.is_some();
    let words = format!(
        "{:.1} % of a prompt of {} tokens on the NPU with -ub {}, {:.1} % with -ub {LARGE} (modelled)",
        usual.share(),
        model.settings.cut.prompt,
        model.settings.cut.ubatch,
        large.share()
    );
    match (large.share() > usual.share() + ALIKE, streams) {
        (false, false) => Finding::ok(ID, "the usual -ub 512 is enough"),
        (gains, _) => {
            let why = match gains {
                true => words,
                false => "Weights that do not stay are packed for each micro-batch: the fewer, the better".to_owned(),
            };
            Finding::warn(ID, "larger micro-batches would use the NPU better")
                .cause(format!("{why}."))
                .seen(model.path.display().to_string(), &header.architecture)
                .fix(
                    model.command(header),
                    model.verify(&format!(" --repack off --prompt {LARGE} --ubatch {LARGE}")),
                    "leave -ub out again",
                )
        }
    }
}
