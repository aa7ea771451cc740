use super::super::finding::{Finding, word};
use super::super::host::Host;
use super::super::model::Model;
use super::super::remedy::{BUILT, host_without};
use super::super::{About, Case, Check};
use crate::elf::{Elf, Text, machine_name};
use crate::model::{Format, Header};

const ID: &str = "host.repack";

pub const CHECK: Check = Check {
    id: ID,
    explain: "ggml's CPU backend repacks quantized weights when it loads a model (CPU_REPACK, formerly CPU_AARCH64; \
              KleidiAI and AMX do the same) into a form that it alone can read: none of them reaches the NPU. On \
              the board's cores those are Q4_0, Q8_0, IQ4_NL, MXFP4, Q4_K, Q5_K and Q6_K; F16, BF16, Q4_1, Q5_0 \
              and Q5_1 stay as they are. llama.cpp's programs have --no-repack (LLAMA_ARG_REPACK=0), llama-bench \
              --repack 0; those of whisper.cpp have no switch.",
    after: &["host.dynamic"],
    about: About::Host,
    required: false,
    run,
};

/// What a host does with quantized weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repack {
    Yes,
    No,
    /// Its files do not tell.
    Unknown,
}

/// The extra buffer types of a host's CPU backend, by its files (ggml-abi 7.1, 5).
pub fn of(host: &Host) -> Repack {
    let mut cpus = host.cpu().peekable();
    if cpus.peek().is_none() {
        return Repack::Unknown;
    }
    let kleidi = |e: &Elf| e.exports.keys().any(|s| s.contains("kleidiai"));
    let mut verdict = Repack::No;
    for cpu in cpus {
        let elf = &cpu.elf;
        let could = elf.has(Text::CpuRepack) || elf.has(Text::CpuAarch64);
        if elf.has(Text::Repack) || kleidi(elf) {
            return Repack::Yes;
        }
        // The type's name is in every build, whether it is used or not; what would tell is merged into other texts
        // on x86.
        if could && machine_name(elf.machine) != "aarch64" {
            verdict = Repack::Unknown;
        }
    }
    verdict
}

/// Whether a program of the host has a text.
fn has(host: &Host, text: Text) -> bool {
    let has = |e: &Elf| e.has(text);
    host.all_programs().iter().any(|(p, c)| has(&p.elf) || c.objects.iter().any(|o| has(&o.elf)))
        || host.libraries.objects.iter().any(|o| has(&o.elf))
}

/// Whether it has the switch.
fn switch(host: &Host) -> bool {
    has(host, Text::NoRepack) || has(host, Text::RepackVariable)
}

/// The option of ggml's build.
pub const OPTION: &str = "GGML_CPU_REPACK";
const VARIABLE: &str = "LLAMA_ARG_REPACK";

/// Whether the host has a switch, and it is thrown.
fn is_off(case: &Case, host: &Host) -> bool {
    let off = |v: &String| matches!(v.trim(), "0" | "off" | "false" | "disabled");
    let variable = case.environment.as_ref().ok().and_then(|e| e.get(VARIABLE));
    switch(host) && variable.is_some_and(off)
}

/// Whether the host that was named leaves quantized weights as they are.
pub fn leaves(case: &Case) -> bool {
    case.named.host.as_ref().is_some_and(|h| of(h) == Repack::No || is_off(case, h))
}

/// Whether host and model that were named meet, so that this check warns of both.
pub fn warns(case: &Case) -> bool {
    let host = case.named.host.as_ref();
    host.is_some_and(|h| of(h) == Repack::Yes && !is_off(case, h)) && met(case).is_some()
}

/// The model that was named, and the NPU's part of its prefill with repacking and without, where that loses some.
fn met(case: &Case) -> Option<(&Model, &Header, [f64; 2])> {
    let model = case.named.model.as_ref()?;
    let header = model.header.as_ref().ok()?;
    let [usual, plain] = [true, false].map(|on| model.forecast(header, |s| s.repack = on));
    let loses = usual.repacked > 0 && plain.share() > usual.share();
    loses.then(|| (model, header, [usual.share(), plain.share()]))
}

/// Host and model meet: how much of it is lost, and the switch as this host has it.
fn meeting(host: &Host, model: &Model, header: &Header, [usual, plain]: [f64; 2]) -> Finding {
    let (n, all) = model.packed(header);
    let share = 100.0 * n as f64 / all.max(1) as f64;
    let finding =
        Finding::warn(ID, format!("{share:.0} % of quantized weights never reach the NPU"))
            .cause(format!(
                "This host's CPU backend takes them for itself when it loads the model: {usual:.1} % of the prefill \
                 would run on the NPU, and {plain:.1} % where it packs nothing (modelled)."
            ))
            .seen(
                model.path.display().to_string(),
                format!("{n} of {all} quantized weights are of types that are packed"),
            );
    let cpu = host.cpu().next().map(|o| o.path.clone()).unwrap_or_default();
    let finding = finding.seen(cpu, "repacks");
    let forecast = model.verify(" --repack off");
    let joined = |host: &str| {
        format!("rocketctl doctor --host {} --model {} --only {ID}", word(host), model.word())
    };
    // Other hosts do not take that format.
    let gguf = header.format != Format::Whisper;
    let flag = gguf && has(host, Text::NoRepack);
    let variable = gguf && has(host, Text::RepackVariable);
    let program = host.program.as_ref().and_then(|p| p.as_ref().ok());
    let finding = match variable {
        true => finding.fix(
            format!("export {VARIABLE}=0"),
            format!("{} && {forecast}", joined(&host.path)),
            format!("unset {VARIABLE}"),
        ),
        false => finding,
    };
    match (flag, program) {
        (true, Some(_)) => finding.fix(
            format!("{} -m {} -ngl 0 --no-repack", word(&host.path), model.word()),
            forecast,
            "leave --no-repack out again",
        ),
        (true, None) => finding.fix(model.command(header), forecast, "leave -nr out again"),
        (false, _) if variable => finding,
        (false, _) => host_without(finding, OPTION, joined(BUILT)),
    }
}

fn run(case: &Case) -> Finding {
    let Some(host) = &case.named.host else {
        return Finding::unknown(ID, "what it does with quantized weights", "no host was named");
    };
    let switch = switch(host);
    if let (true, Some((model, header, shares))) = (warns(case), met(case)) {
        return meeting(host, model, header, shares);
    }
    match (of(host), switch) {
        (Repack::No, _) => Finding::ok(ID, "its CPU backend leaves quantized weights as they are"),
        (_, true) if is_off(case, host) => {
            Finding::ok(ID, "repacking is off (LLAMA_ARG_REPACK=0); llama-bench needs --repack 0")
        }
        (Repack::Unknown, _) => Finding::unknown(
            ID,
            match switch {
                true => "whether it repacks quantized weights; --no-repack stops it",
                false => "whether it repacks quantized weights",
            },
            "its files do not tell; rocketctl load-test asks the CPU backend",
        ),
        (Repack::Yes, true) => Finding::note(ID, "0 % of repacked weights reach the NPU; use --no-repack")
            .cause(
                "Its CPU backend takes Q4_0, Q8_0, IQ4_NL, MXFP4, Q4_K, Q5_K and Q6_K for itself. With such a model \
                 give --no-repack, or export LLAMA_ARG_REPACK=0; F16 models need neither.",
            )
            .fix(
                "export LLAMA_ARG_REPACK=0",
                host.verify(ID),
                "unset LLAMA_ARG_REPACK",
            ),
        (Repack::Yes, false) => Finding::note(ID, "0 % of repacked weights reach the NPU, and there is no switch")
            .cause(
                "Its CPU backend takes Q4_0, Q8_0, IQ4_NL, MXFP4, Q4_K, Q5_K and Q6_K for itself, and its programs \
                 have no --no-repack. Use a model in F16, Q4_1, Q5_0 or Q5_1, or a host built with \
                 GGML_CPU_REPACK=OFF.",
            ),
    }
}
