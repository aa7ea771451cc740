use super::super::finding::Finding;
use super::super::{About, Case, Check};
use crate::elf::{Elf, Text};

const ID: &str = "host.mmproj-device";

pub const CHECK: Check = Check {
    id: ID,
    explain: "The image encoder of llama.cpp looks for GPUs alone: an accelerator such as the NPU must be named, by \
              --mmproj-device ROCKET or MTMD_BACKEND_DEVICE=ROCKET, since b10541 (August 2026). Otherwise images \
              are encoded on the CPU. Text is not concerned.",
    after: &["host.dynamic"],
    about: About::Host,
    required: false,
    run,
};

/// The plugin's device.
const DEVICE: &str = "ROCKET";
const VARIABLE: &str = "MTMD_BACKEND_DEVICE";

fn run(case: &Case) -> Finding {
    let Some(host) = &case.named.host else {
        return Finding::unknown(ID, "where images are encoded", "no host was named");
    };
    let programs = host.all_programs();
    let files = programs.iter().flat_map(|(p, c)| std::iter::once(*p).chain(&c.objects));
    let files: Vec<_> = files.chain(&host.libraries.objects).collect();
    let encodes = |e: &Elf| e.exports("mtmd_init_from_file") || e.imports("mtmd_init_from_file");
    if !files.iter().any(|o| encodes(&o.elf)) {
        return Finding::ok(ID, "it encodes no images");
    }
    if !files.iter().any(|o| o.elf.has(Text::MmprojVariable)) {
        return Finding::note(ID, "its image encoder takes GPUs alone")
            .cause("It is older than August 2026 and cannot be told of another device: images are encoded on the CPU.");
    }
    match case.environment.as_ref().ok().and_then(|e| e.get(VARIABLE)) {
        Some(device) if device == DEVICE => Finding::ok(ID, format!("{VARIABLE}={DEVICE}")),
        other => Finding::note(ID, "images are encoded on the CPU unless the NPU is named")
            .cause(match other {
                Some(device) => format!("{VARIABLE} is {device}; the NPU's name is {DEVICE}."),
                None => format!("Give --mmproj-device {DEVICE}, or export {VARIABLE}={DEVICE}."),
            })
            .fix(
                format!("export {VARIABLE}={DEVICE}"),
                host.verify(ID),
                format!("unset {VARIABLE}"),
            ),
    }
}
