use super::super::finding::Finding;
use super::super::host::Host;
use super::super::{About, Case, Check};
use crate::elf::{Elf, Text, machine_name};

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

/// Whether a program of the host has the switch.
fn switch(host: &Host) -> bool {
    let has = |e: &Elf| e.has(Text::NoRepack) || e.has(Text::RepackVariable);
    host.all_programs().iter().any(|(p, c)| has(&p.elf) || c.objects.iter().any(|o| has(&o.elf)))
        || host.libraries.objects.iter().any(|o| has(&o.elf))
}

fn run(case: &Case) -> Finding {
    let Some(host) = &case.named.host else {
        return Finding::unknown(ID, "what it does with quantized weights", "no host was named");
    };
    let off = |v: &String| matches!(v.trim(), "0" | "off" | "false" | "disabled");
    let variable = case.environment.as_ref().ok().and_then(|e| e.get("LLAMA_ARG_REPACK"));
    let switch = switch(host);
    match (of(host), switch) {
        (Repack::No, _) => Finding::ok(ID, "its CPU backend leaves quantized weights as they are"),
        (_, true) if variable.is_some_and(off) => {
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
