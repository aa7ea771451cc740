//! How far two runs of a text lie apart, by the host's own `llama-perplexity`.

use crate::{Setup, gguf, macs, run};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// 512 tokens a batch, so that every batch is one chunk whose second half is scored.
pub const OPTIONS: [&str; 10] =
    ["-c", "512", "-b", "512", "--chunks", "1", "--no-warmup", "-nr", "-t", "2"];

/// The mean KL divergence of one run from another, and how often the most likely token is the
/// same (%).
#[derive(Debug, Clone, Copy)]
pub struct Divergence {
    pub mean: f64,
    pub same_top: f64,
}

/// What was measured of one file. "Exact" is the CPU on the same weights decoded to F32: beside
/// quantized weights the CPU's own kernels round activations to eight bits, which moves the logits
/// of a small model by 3e-3 and depends on the instruction set (two of Debian's variants of one CPU
/// backend lie as far apart), so nothing can be nearer to them than that.
#[derive(Debug)]
pub struct Measured {
    /// The board from exact.
    pub ours: Divergence,
    /// The CPU on the file itself from exact.
    pub cpu: Divergence,
    /// The board from the CPU on the file itself.
    pub between: Divergence,
    /// A coarser file on the CPU from exact.
    pub control: Option<Divergence>,
    /// The board's share of the multiply-accumulates of 32 rows or more.
    pub share: f64,
    pub report: Value,
}

fn number_after(text: &str, label: &str) -> Option<f64> {
    let rest = text.lines().find_map(|l| {
        let words: Vec<&str> = l.split_whitespace().collect();
        let (name, rest) = l.split_once(':')?;
        (words.len() > 2 && name.split_whitespace().collect::<Vec<_>>().join(" ") == label)
            .then(|| rest.split_whitespace().next().map(str::to_owned))?
    });
    rest.map(|rest| rest.parse().unwrap_or_else(|e| panic!("{label} is '{rest}': {e}")))
}

/// The CPU backend's build for one instruction set from its build for another, on one file.
pub fn between_cpus(s: &Setup, model: &Path, [one, other]: [&str; 2]) -> Divergence {
    let text = s.scratch.path().join("text.txt");
    let base = s.scratch.path().join("base.kld");
    std::fs::write(&text, include_str!("../../data/text.txt")).expect("writes");
    let perplexity = |variant: &str| {
        let mut c = s.command_with("llama-perplexity", |c| {
            c.arg("--cpu").arg(variant);
        });
        c.arg("-m").arg(model).arg("-f").arg(&text).args(OPTIONS);
        c.arg("--kl-divergence-base").arg(&base);
        c
    };
    run(&mut perplexity(one));
    divergence(perplexity(other))
}

/// What `llama-perplexity` says of a run against the base that its arguments name.
pub fn divergence(mut c: Command) -> Divergence {
    c.arg("--kl-divergence");
    let mut said = String::new();
    // The host prints through its logger's thread and, on a busy machine, may end before the thread
    // does: then the figures are missing, and only then is it asked again.
    for _ in 0..5 {
        let out = run(&mut c);
        said = [out.stdout, out.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
        let figures = ["Mean KLD", "Same top p"].map(|label| number_after(&said, label));
        if let [Some(mean), Some(same_top)] = figures {
            return Divergence { mean, same_top };
        }
    }
    panic!("the host never printed its figures:\n{said}");
}

/// Runs `model` on the board and on the CPU, and `control` on the CPU.
pub fn measure(s: &Setup, model: &Path, control: Option<&Path>) -> Measured {
    let file = |name: &str| s.scratch.path().join(name);
    let text = file("text.txt");
    let (exact, own) = (file("exact.kld"), file("own.kld"));
    std::fs::write(&text, include_str!("../../data/text.txt")).expect("writes");
    let begun = Instant::now();
    let decoded = s.decoded(model);

    let perplexity = |mut c: Command, model: &Path, base: &Path| {
        c.arg("-m").arg(model).arg("-f").arg(&text).args(OPTIONS);
        c.arg("--kl-divergence-base").arg(base);
        c
    };
    let cpu = || s.command("llama-perplexity");
    run(&mut perplexity(cpu(), &decoded, &exact));
    std::fs::remove_file(&decoded).expect("the copy goes");
    run(&mut perplexity(cpu(), model, &own));
    let on_cpu = divergence(perplexity(cpu(), model, &exact));
    let control = control.map(|c| divergence(perplexity(cpu(), c, &exact)));
    let (c, report) = s.on_npu("llama-perplexity");
    let between = divergence(perplexity(c, model, &own));
    let at = begun.elapsed();
    let (c, _) = s.on_npu("llama-perplexity");
    let ours = divergence(perplexity(c, model, &exact));
    let on_npu = begun.elapsed() - at;

    let header = gguf::read(model);
    let batch = macs::expected(&header, 512, 256);
    let report = macs::read(&report);
    let share = macs::share(&report, &batch);
    println!(
        "{} ({:?}): mean KLD from exact {:.6}, same top {:.2} %, {:.3} % of MACs on the NPU; \
         the CPU's kernels {:.6}, {:.2} %; between the two {:.6}; coarser control {}; \
         {:.1} s in all, {:.1} s simulated",
        model.file_name().expect("a file").to_string_lossy(),
        header.kinds(),
        ours.mean,
        ours.same_top,
        share * 100.0,
        on_cpu.mean,
        on_cpu.same_top,
        between.mean,
        control.map_or("none".to_owned(), |c| format!("{:.6}, {:.2} %", c.mean, c.same_top)),
        begun.elapsed().as_secs_f64(),
        on_npu.as_secs_f64(),
    );
    Measured { ours, cpu: on_cpu, between, control, share, report }
}
