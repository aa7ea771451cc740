//! Models that were named: what the doctor says of each on a board, and nothing without one.

use super::{Board, well_formed};
use crate::doctor::finding::{Finding, Status};
use crate::doctor::{Options, look, opened};
use crate::model::write::{Gguf, llama, whisper};
use std::path::{Path, PathBuf};

const F16: u32 = 1;
const Q5_0: u32 = 6;
const Q8_0: u32 = 8;
const Q4_K: u32 = 12;
const Q6_K: u32 = 14;
const MXFP4: u32 = 39;

/// A board and a model, in a folder.
struct Case(Board, tempfile::TempDir);

impl Case {
    fn board(name: &str) -> Case {
        Case(Board::of(name), tempfile::tempdir().unwrap())
    }

    /// A healthy one with so many MiB of memory, of which a sixteenth is taken.
    fn with(mib: u64) -> Case {
        let (total, available) = (mib << 10, (mib << 10) / 16 * 15);
        let text = format!("MemTotal: {total} kB\nMemAvailable: {available} kB\n");
        let Case(board, dir) = Case::board("rk3588-stock");
        Case(board.set("proc/meminfo", text), dir)
    }

    fn path(&self) -> PathBuf {
        self.1.path().join("model.gguf")
    }

    fn all(&self) -> Vec<Finding> {
        let report = of_model(self.0.0.path(), &self.path()).unwrap();
        well_formed(&report);
        report.findings.into_iter().filter(|f| f.id.starts_with("model.")).collect()
    }

    fn of(&self, model: &Gguf) -> Vec<Finding> {
        model.write(&self.path());
        self.all()
    }

    fn bytes(&self, model: &[u8]) -> Vec<Finding> {
        std::fs::write(self.path(), model).unwrap();
        self.all()
    }
}

fn of_model(root: &Path, model: &Path) -> anyhow::Result<crate::doctor::Report> {
    look(&opened(root)?, &Options { model: Some(model.into()), ..Options::default() })
}

fn one(of: &[Finding], id: &str) -> Finding {
    of.iter().find(|f| f.id == id).unwrap_or_else(|| panic!("no {id}")).clone()
}

fn statuses(of: &[Finding]) -> Vec<(&str, Status)> {
    of.iter().map(|f| (f.id, f.status)).collect()
}

#[test]
fn nothing_is_said_of_a_model_that_nobody_named() {
    let report = Board::of("rk3588-stock").ask();
    assert!(report.findings.iter().all(|f| !f.id.starts_with("model.")));
}

#[test]
fn a_plain_model_is_well() {
    let all = Case::with(16384).of(&llama(4, &[F16]));
    let ids = [
        "model.format",
        "model.types",
        "model.shapes",
        "model.fit",
        "model.ubatch",
        "model.rk3576",
    ];
    assert_eq!(statuses(&all), ids.map(|id| (id, Status::Ok)));
    // On what kind of machine does not matter to that.
    let laptop = Case::board("laptop").of(&llama(2, &[F16]));
    assert_eq!(one(&laptop, "model.types").status, Status::Ok);
}

/// One root: what is no model has one finding.
#[test]
fn what_is_no_model_is_said_once() {
    let whole = llama(1, &[Q8_0]);
    let (head, bytes) = whole.head();
    let case = Case::with(8192);
    for (what, file, word) in [
        ("text", b"<html>404 Not Found</html>".to_vec(), "no model"),
        ("cut in its header", head[..head.len() / 2].to_vec(), "too early"),
        ("without its data", head.clone(), "fetch it again"),
        ("an old one", [&b"GGUF"[..], &1u32.to_le_bytes(), &[0; 16]].concat(), "GGUF 1"),
    ] {
        let all = case.bytes(&file);
        let first = one(&all, "model.format");
        assert!(first.status == Status::Fail && first.cause.contains(word), "{what}: {first:?}");
        let resumes = first.fix[0].run.starts_with("curl -fL -C - -o ");
        assert_eq!(resumes, word != "no model" && word != "GGUF 1", "{what}: {first:?}");
        let rest = all.iter().filter(|f| f.id != "model.format");
        assert!(
            rest.clone().count() == 5
                && rest.into_iter().all(|f| f.because == Some("model.format")),
            "{what}"
        );
    }
    assert!(bytes > head.len() as u64);
    // One that is not there is not known; nothing is made up of it.
    let missing = of_model(case.0.0.path(), Path::new("/nonexistent.gguf")).unwrap();
    let known: Vec<_> =
        missing.findings.iter().filter(|f| f.id.starts_with("model.")).map(|f| f.status).collect();
    assert_eq!(known, [Status::Unknown; 6]);
}

/// A16: the flag is named, with what it gains.
#[test]
fn quantized_weights_need_the_flag() {
    let case = Case::with(16384);
    for kinds in [&[Q4_K, Q6_K][..], &[Q8_0]] {
        let f = one(&case.of(&llama(4, kinds)), "model.types");
        assert_eq!(f.status, Status::Warn);
        assert!(
            f.fix[0].run.contains(" -nr ") && f.fix[0].run.contains("GGML_BACKEND_PATH="),
            "{f:?}"
        );
        // Attention is what is left of it.
        let words: Vec<&str> = f.cause.split_whitespace().collect();
        let share: f64 = words[words.iter().position(|w| *w == "%").unwrap() - 1].parse().unwrap();
        assert!(share < 15.0, "{}", f.cause);
        assert!(f.evidence[0].value.starts_with("29 of 30"), "{f:?}");
    }
    // Types that no host packs, and a machine whose host packs less.
    assert_eq!(one(&case.of(&llama(4, &[Q5_0])), "model.types").status, Status::Ok);
    let Case(board, dir) = Case::board("laptop");
    let laptop = Case(board.set("proc/sys/kernel/arch", "x86_64\n"), dir);
    assert_eq!(one(&laptop.of(&llama(4, &[Q8_0])), "model.types").status, Status::Ok);
    assert_eq!(one(&laptop.of(&llama(4, &[Q4_K])), "model.types").status, Status::Warn);
}

fn speech(kind: u32) -> Vec<u8> {
    let names: Vec<String> = (0..2).map(|i| format!("encoder.blocks.{i}.mlp.0.weight")).collect();
    let tensors: Vec<(&str, &[i32], u32)> =
        names.iter().map(|n| (n.as_str(), &[512, 2048][..], kind)).collect();
    whisper([51865, 1500, 512, 8, 2, 448, 512, 8, 2, 80, 1], &tensors)
}

/// A17: an encoder has rows enough whatever the beams, and whisper.cpp no flag.
#[test]
fn whisper_files_are_judged_by_their_encoder() {
    let case = Case::with(8192);
    let well = case.bytes(&speech(F16));
    assert!(well.iter().all(|f| f.status == Status::Ok), "{well:?}");
    assert!(one(&well, "model.ubatch").title.contains("1500 positions"));
    let packed = one(&case.bytes(&speech(Q8_0)), "model.types");
    assert!(
        packed.status == Status::Warn
            && packed.fix[0].run.contains("GGML_CPU_REPACK=OFF")
            && packed.cause.contains("F16"),
        "{packed:?}"
    );
    assert_eq!(one(&case.bytes(&speech(Q5_0)), "model.types").status, Status::Ok);
}

/// A15: off the grid is on the NPU; too small is not.
#[test]
fn shapes_off_the_grid_are_padded() {
    let case = Case::with(8192);
    let with = |k: u64, n: u64| {
        let g = Gguf::new("llama").number("llama.attention.head_count", 4);
        let g = g.tensor("blk.0.ffn_down.weight", &[k, n], F16);
        one(&case.of(&g.tensor("blk.1.ffn_up.weight", &[64, 64], F16)), "model.shapes")
    };
    for (k, n) in [(4304, 1152), (1152, 4300)] {
        let f = with(k, n);
        assert!(f.status == Status::Ok && f.title.contains(&format!("{k} x {n}")), "{f:?}");
    }
    assert!(!with(4096, 4096).title.contains("padding"));
    for (k, n, why) in [(48, 4096, "k_too_small"), (4096, 32, "n_too_small")] {
        let f = with(k, n);
        assert!(f.status == Status::Note && f.title.contains(why), "{f:?}");
    }
}

fn experts(layers: u64, experts: u64) -> Gguf {
    let mut g = Gguf::new("gpt-oss").number("gpt-oss.expert_used_count", 4);
    g = g.number("gpt-oss.expert_count", experts as u32).number("gpt-oss.attention.head_count", 64);
    for i in 0..layers {
        for part in ["gate", "up", "down"] {
            g = g.tensor(format!("blk.{i}.ffn_{part}_exps.weight"), &[2880, 2880, experts], MXFP4);
        }
    }
    g
}

/// A18: whole stacks, by what memory they leave; and rows, by the micro-batch.
#[test]
fn experts_want_memory_and_rows() {
    let fit = |mib, layers| one(&Case::with(mib).of(&experts(layers, 32)), "model.fit");
    let small = fit(16384, 24);
    assert!(
        small.status == Status::Warn && small.cause.contains("stacks of experts find no room"),
        "{small:?}"
    );
    assert!(small.cause.contains("% of 27.4 GiB resident"), "{small:?}");
    assert_eq!(fit(32768, 4).status, Status::Ok);
    // Of 128 experts each gets 16 rows of 512 tokens, and 64 of 2048.
    let case = Case::with(65536);
    let few = one(&case.of(&experts(2, 128)), "model.ubatch");
    assert!(few.status == Status::Warn && few.fix[0].run.contains("-b 2048 -ub 2048"), "{few:?}");
    assert_eq!(one(&case.of(&experts(2, 32)), "model.ubatch").status, Status::Ok);
}

#[test]
fn what_does_not_fit_is_said() {
    let fit = |mib, layers| one(&Case::with(mib).of(&llama(layers, &[F16])), "model.fit");
    // 4.1 GiB of weights.
    assert_eq!(fit(16384, 48).status, Status::Ok);
    let much = fit(4864, 48);
    assert!(much.status == Status::Warn && much.cause.contains("reserve"), "{much:?}");
    let file = fit(4400, 48);
    assert!(file.status == Status::Warn && file.title.contains("no memory"), "{file:?}");
    let large = fit(2048, 48);
    assert_eq!(large.status, Status::Fail);
    let fix = &large.fix[0];
    assert!(fix.run.starts_with("llama-quantize ") && fix.run.ends_with(" Q4_K_M"), "{fix:?}");
    assert!(fix.verify.contains("-q4_k_m.gguf ") && fix.undo.starts_with("rm "), "{fix:?}");
    // Streamed weights want large micro-batches.
    let Case(board, dir) = Case::with(4864);
    let case = Case(board, dir);
    assert_eq!(one(&case.of(&llama(48, &[F16])), "model.ubatch").status, Status::Warn);
    let unknown = Case(
        Board::of("rk3588-stock").set("proc/meminfo", "nothing"),
        tempfile::tempdir().unwrap(),
    );
    assert_eq!(one(&unknown.of(&llama(2, &[F16])), "model.fit").status, Status::Unknown);
}

#[test]
fn an_rk3576_has_its_own_rules() {
    let board = |env: &str| {
        let Case(board, dir) = Case::with(8192);
        let board = board.set("proc/device-tree/compatible", "acme,board\0rockchip,rk3576\0");
        Case(board.set("cmd/env.txt", env), dir)
    };
    let f = one(&board("").of(&llama(2, &[Q8_0])), "model.rk3576");
    assert!(
        f.status == Status::Warn && f.cause.contains("q8_0") && f.cause.contains("ROCKET_INT8=1"),
        "{f:?}"
    );
    let f = one(&board("").of(&llama(2, &[F16])), "model.rk3576");
    assert!(f.cause.contains("would have to be set"), "{f:?}");
    assert_eq!(f.fix[0].run, "export ROCKET_INT8=1");
    let f = one(&board("ROCKET_INT8=1\n").of(&llama(2, &[F16])), "model.rk3576");
    assert!(f.cause.contains("is set") && f.evidence[0].value == "1", "{f:?}");
    assert_eq!(f.status, Status::Note, "nothing is left to do");
}
