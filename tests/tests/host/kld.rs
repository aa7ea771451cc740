//! How far two runs of a text lie apart, by the host's own `llama-perplexity`.

use crate::{Setup, gguf, macs, run};
use serde_json::Value;
use std::path::Path;
use std::time::Instant;

/// 512 tokens a batch, so that every batch is one chunk whose second half is scored.
const OPTIONS: [&str; 10] =
    ["-c", "512", "-b", "512", "--chunks", "2", "--no-warmup", "-nr", "-t", "2"];

/// The mean KL divergence of one run from another, and how often the most likely token is the
/// same (%).
#[derive(Debug, Clone, Copy)]
pub struct Divergence {
    pub mean: f64,
    pub same_top: f64,
}

/// One model on the CPU, on the board, and a coarser one on the CPU.
#[derive(Debug)]
pub struct Measured {
    pub ours: Divergence,
    pub control: Divergence,
    /// The board's share of the multiply-accumulates of 128 rows or more.
    pub share: f64,
    pub report: Value,
}

fn number_after(text: &str, label: &str) -> f64 {
    let rest = text.lines().find_map(|l| {
        let words: Vec<&str> = l.split_whitespace().collect();
        let (name, rest) = l.split_once(':')?;
        (words.len() > 2 && name.split_whitespace().collect::<Vec<_>>().join(" ") == label)
            .then(|| rest.split_whitespace().next().map(str::to_owned))?
    });
    let rest = rest.unwrap_or_else(|| panic!("no '{label}' in\n{text}"));
    rest.parse().unwrap_or_else(|e| panic!("{label} is '{rest}': {e}"))
}

/// Runs `model` and `control` against the CPU's own logits of `model`.
pub fn measure(s: &Setup, model: &Path, control: &Path) -> Measured {
    let text = s.scratch.path().join("text.txt");
    std::fs::write(&text, include_str!("../../data/text.txt")).expect("writes");
    let base = s.scratch.path().join("base.kld");
    let begun = Instant::now();

    let finish = |mut c: std::process::Command, model: &Path, compare: bool| {
        c.arg("-m").arg(model).arg("-f").arg(&text).args(OPTIONS);
        c.arg("--kl-divergence-base").arg(&base);
        if compare {
            c.arg("--kl-divergence");
        }
        let out = run(&mut c);
        [out.stdout, out.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat()
    };
    let divergence = |said: &str| Divergence {
        mean: number_after(said, "Mean KLD"),
        same_top: number_after(said, "Same top p"),
    };
    finish(s.command("llama-perplexity"), model, false);
    let on_cpu = begun.elapsed();
    let control = divergence(&finish(s.command("llama-perplexity"), control, true));
    let (c, report) = s.on_npu("llama-perplexity");
    let at = begun.elapsed();
    let ours = divergence(&finish(c, model, true));
    let on_npu = begun.elapsed() - at;
    std::fs::remove_file(&base).expect("the base goes");

    let header = gguf::read(model);
    let batch = macs::expected(&header, 512, 256);
    let report = macs::read(&report);
    let share = macs::share(&report, &[batch.clone(), batch].concat());
    println!(
        "{} ({:?}): mean KLD {:.6}, same top {:.2} %, {:.3} % of MACs on the NPU; \
         control: {:.6}, {:.2} %; {:.1} s on the CPU, {:.1} s simulated",
        model.file_name().expect("a file").to_string_lossy(),
        header.kinds(),
        ours.mean,
        ours.same_top,
        share * 100.0,
        control.mean,
        control.same_top,
        on_cpu.as_secs_f64(),
        on_npu.as_secs_f64(),
    );
    Measured { ours, control, share, report }
}
