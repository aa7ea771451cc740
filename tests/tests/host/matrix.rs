//! Every type of weight that users have: the board's logits are those of exact products of the
//! file's weights, and no farther from the CPU's own than the CPU's roundings; and the board did
//! the work.

use crate::kld::{between_cpus, measure};
use crate::{Setup, gguf, lines_of_ours, macs, run};
use std::collections::BTreeMap;

/// Mean KL divergence from the CPU on the decoded weights.
pub const GATE: f64 = 5e-4;
/// How far the control must lie above what is measured.
pub const CONTROL: f64 = 10.0;
/// Of the multiply-accumulates of 32 rows or more.
const SHARE: f64 = 0.99;

/// `holds` says of which types the file is there, and how many of the blocks' 210 matrices must
/// really be of them; what else a mixture holds is up to the host's llama-quantize.
fn check(file: &str, holds: &[(&str, usize)], control: Option<&str>) {
    let s = Setup::named();
    let named = |f: &str| s.model_named(&format!("smollm2-{f}.gguf"));
    let (model, control) = (named(file), control.map(named));
    let kinds = gguf::read(&model).kinds();
    for (kind, count) in holds {
        let there = kinds.get(kind).copied().unwrap_or_default();
        assert!(there >= *count, "{file} has {kinds:?}, which tests {kind} no more");
    }
    let m = measure(&s, &model, control.as_deref());
    assert!(m.share >= SHARE, "{} of the work on the board: {}", m.share, m.report["reasons"]);
    assert!(m.ours.mean <= GATE, "{:?} is beyond {GATE}", m.ours);
    // The board is as good as exact, so what lies between it and the CPU is the CPU's own rounding;
    // two measurements of it differ by a quarter at most.
    let rounding = 1.25 * m.cpu.mean + GATE;
    assert!(m.between.mean <= rounding, "{:?} is beyond {rounding}", m.between);
    let control = m.control.unwrap_or(m.cpu);
    assert!(control.mean >= CONTROL * m.ours.mean, "{control:?} {:?}", m.ours);
}

macro_rules! matrix {
    ($($name:ident: $file:literal, [$($kind:literal $count:literal),+] $(, control $control:literal)?;)+) => {
        $(#[test]
        fn $name() {
            check($file, &[$(($kind, $count)),+], None$(.or(Some($control)))?);
        })+
    };
}

// The control of a quantized file is the CPU's own kernels, which round activations; beside plain
// weights they hardly do, so that a coarser file has to serve.
matrix! {
    host_matrix_f16: "f16", ["F16" 210], control "q8_0";
    host_matrix_bf16: "bf16", ["BF16" 210], control "q4_0";
    host_matrix_q8_0: "q8_0", ["Q8_0" 210];
    host_matrix_q6_k: "q6_k", ["Q6_K" 30];
    host_matrix_q4_1: "q4_1", ["Q4_1" 210];
    host_matrix_q4_k_m: "q4_k_m", ["Q4_K" 16, "Q5_0" 100];
    host_matrix_iq4_xs: "iq4_xs", ["IQ4_NL" 100, "IQ4_XS" 20];
    host_matrix_q4_0: "q4_0", ["Q4_0" 210];
    host_matrix_mxfp4: "mxfp4", ["MXFP4" 210];
}

/// A prompt of three micro-batches decodes and packs each weight once.
#[test]
fn host_later_micro_batches_pack_nothing() {
    let s = Setup::named();
    let model = s.model_named("smollm2-q8_0.gguf");
    let (mut c, report) = s.on_npu("llama-completion");
    c.arg("-m")
        .arg(&model)
        .arg("-f")
        .arg(s.prompt_of(512))
        .args(["-nr", "-b", "512", "-ub", "192"]);
    run(c.args(["-n", "1", "--temp", "0", "-no-cnv", "--no-warmup", "-t", "2"]));
    let report = macs::read(&report);
    let mut packed: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for op in report["ops"].as_array().expect("ops") {
        let name = op["name"].as_str().expect("a name");
        let bytes = op["engine"]["packed_bytes"].as_u64().expect("a count");
        packed.entry(name).or_default().push(bytes);
    }
    // 192, 192 and a tail of 128: all of them enough rows.
    let blocks = gguf::read(&model).blocks;
    assert!(packed.len() >= 7 * (blocks - 1), "{} products", packed.len());
    let mut total = 0;
    for (name, bytes) in &packed {
        assert!(bytes[0] > 0 && bytes[1..].iter().all(|&b| b == 0), "{name}: {bytes:?}");
        total += bytes[0];
    }
    let batches = packed.values().map(Vec::len).max().unwrap_or_default();
    println!(
        "{} weights, {} MB packed once for {batches} micro-batches",
        packed.len(),
        total >> 20
    );
    assert_eq!(batches, 3);
}

/// Why the reference of quantized files is not the CPU on the same file: its own builds for two
/// instruction sets lie further apart than the gate.
#[cfg(target_arch = "x86_64")]
#[test]
fn host_builds_of_the_cpu_backend_differ_by_more_than_the_gate() {
    let s = Setup::named();
    let model = s.model_named("smollm2-q4_1.gguf");
    let apart = between_cpus(&s, &model, ["haswell", "sandybridge"]);
    println!(
        "haswell and sandybridge: mean KLD {:.6}, same top {:.2} %",
        apart.mean, apart.same_top
    );
    assert!(apart.mean > GATE);
    let same = between_cpus(&s, &model, ["haswell", "haswell"]);
    assert!(same.mean < 1e-5, "{same:?}: the file of logits holds 16 bits");
}

/// What the host packs for its CPU alone is out of reach, and the user is told the way out.
#[test]
fn host_packed_weights_stay_on_the_cpu_and_the_way_out_is_named() {
    let s = Setup::named();
    let (mut c, report) = s.on_npu("llama-completion");
    c.arg("-m").arg(s.model_named("smollm2-q4_0.gguf")).arg("-f").arg(s.prompt_of(256));
    let out = run(c.args(["-n", "1", "--temp", "0", "-no-cnv", "--no-warmup", "-t", "2"]));
    let lines = lines_of_ours(&out);
    println!("{lines:#?}");
    assert!(
        lines.iter().any(|l| l.contains("CPU_REPACK") && l.contains("-nr")),
        "nothing names CPU_REPACK and -nr in {lines:?}"
    );
    // The output matrix is Q8_0, which amd64 leaves alone, but sees one row only.
    let ops = std::fs::read(&report).map(|b| serde_json::from_slice::<serde_json::Value>(&b));
    if let Ok(report) = ops {
        let report = report.expect("JSON");
        let routes = report["routes"].as_object().expect("routes");
        assert!(routes.values().all(|n| n.as_u64() == Some(0)), "{routes:?}");
    }
}
