//! Sentences embedded on the board lie where the CPU puts them.

use crate::{Setup, first_words, gguf, macs, run};
use std::path::Path;
use std::process::Command;

const GATE: f64 = 0.9998;
/// Fewer rows than the plugin takes by default; all sentences are one batch.
const MIN_ROWS: usize = 32;

/// Two that say the same, one that does not, and one much longer than the others.
fn sentences() -> String {
    [
        "The quick brown fox jumps over the lazy dog.",
        "A fast, dark-coloured fox leaps across a sleepy hound.",
        "The central bank raised interest rates by a quarter of a percentage point.",
        &first_words(150),
    ]
    .join("\n")
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn embed(mut c: Command, model: &Path, text: &Path) -> Vec<Vec<f64>> {
    c.arg("-m").arg(model).arg("-f").arg(text);
    let out = run(c.args(["--embd-output-format", "array", "-nr", "-t", "2"]));
    let vectors: Vec<Vec<f64>> = serde_json::from_slice(&out.stdout).expect("an array");
    assert_eq!(vectors.len(), sentences().lines().count());
    vectors
}

fn check(file: &str) {
    let s = Setup::named();
    let model = s.model_named(file);
    let text = s.scratch.path().join("sentences.txt");
    std::fs::write(&text, sentences()).expect("writes");
    let cpu = embed(s.command("llama-embedding"), &model, &text);
    let (mut c, report) = s.on_npu("llama-embedding");
    c.env("ROCKET_MIN_M", MIN_ROWS.to_string());
    let npu = embed(c, &model, &text);

    let worst = cpu.iter().zip(&npu).map(|(a, b)| cosine(a, b)).fold(1.0, f64::min);
    let (alike, unlike) = (cosine(&cpu[0], &npu[1]), cosine(&cpu[0], &npu[2]));
    let report = macs::read(&report);
    let rows = report["ops"][0]["m"].as_u64().expect("a count") as usize;
    println!(
        "{file}, {rows} rows: cosine with the CPU's at least {worst:.7}; \
         control: {alike:.4} for a sentence alike, {unlike:.4} for another one"
    );
    assert!(rows >= MIN_ROWS);
    assert!(worst >= GATE, "{worst} is below {GATE}");
    assert!(alike < 0.9 && unlike < alike, "the control does not tell sentences apart");

    // Every matrix of every block, over all rows.
    let header = gguf::read(&model);
    let matrices = header.tensors.iter().filter(|t| t.name.starts_with("blk."));
    let mut expected: Vec<macs::Product> =
        matrices.filter(|t| t.shape.len() == 2).map(|t| (t.shape[0], t.shape[1], rows)).collect();
    assert_eq!(macs::share(&report, &expected), 1.0);
    let ran = report["ops"].as_array().expect("ops").iter();
    let mut ran: Vec<macs::Product> = ran
        .map(|op| ["k", "n", "m"].map(|d| op[d].as_u64().expect("a count") as usize).into())
        .collect();
    ran.sort_unstable();
    expected.sort_unstable();
    assert_eq!(ran, expected);
}

#[test]
fn host_embeddings_are_the_cpus() {
    check("minilm-f16.gguf");
}

#[test]
fn host_embeddings_from_eight_bit_weights_are_the_cpus() {
    check("minilm-q8_0.gguf");
}
