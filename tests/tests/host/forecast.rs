//! What `rocketctl forecast` says of a model from its header is what a stock host then computes and what the
//! board's counters then show: for each op, type, K, N and class of rows the number of ops and their
//! multiply-accumulates, on the NPU and on the CPU.
//!
//! How many ops there are in all comes from the host's own list; what ran on the NPU from the plugin's
//! counters; the rest is the CPU's. For that the counters have the reason (how often the host asked is not
//! how often it computed), and the forecast must name the same one.

use crate::gguf::{self, Header};
use crate::models::{file_of, line};
use crate::{Setup, named, run};
use rocket_runtime::telemetry::{Place, Row, scan};
use rocket_tests::generate;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Op, type, K, N and rows, or the first of a class of rows.
type Key = (String, String, u64, u64, u64);
/// Ops and their multiply-accumulates.
type Work = BTreeMap<Key, [u64; 2]>;

/// Attention at the positions that a short prompt has.
const KNOBS: [(&str, &str); 1] = [("ROCKET_FLASH_ATTN_MIN_KV", "256")];

/// The build of the host's CPU backend, and its name in a forecast: which weights the host packs for itself
/// depends on it.
fn cpu() -> [&'static str; 2] {
    if cfg!(target_arch = "x86_64") { ["haswell", "avx2"] } else { ["armv8.2_1", "dotprod"] }
}

/// One way to run a model.
#[derive(Debug, Clone, Copy)]
struct Case {
    prompt: usize,
    ubatch: usize,
    flash: bool,
    repack: bool,
}

fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn add(to: &mut Work, key: Key, [ops, macs]: [u64; 2]) {
    let sum = to.entry(key).or_default();
    *sum = [sum[0] + ops, sum[1] + macs];
}

/// The classes of rows that counters tell apart.
fn class(rows: u64) -> u64 {
    [512, 128, 32, 2].into_iter().find(|first| rows >= *first).unwrap_or(1)
}

fn classed(work: &Work) -> Work {
    let mut classes = Work::new();
    for ((op, kind, k, n, rows), work) in work {
        add(&mut classes, (op.clone(), kind.clone(), *k, *n, class(*rows)), *work);
    }
    classes
}

fn four(text: &str) -> Option<[u64; 4]> {
    let list: Option<Vec<u64>> =
        text.split('}').next()?.split(", ").map(|n| n.trim().parse().ok()).collect();
    list?.try_into().ok()
}

/// The host's list: `name = (f32) OP(a{4, 3, 2, 1}, b{...}) = {...}`. What has no rows is nothing.
fn listed(log: &str, model: &Header) -> Work {
    let mut all = Work::new();
    // What was computed before, and its type.
    let mut made: BTreeMap<&str, &str> = BTreeMap::new();
    for text in log.lines() {
        let Some((result, rest)) = text.split_once(" = (") else { continue };
        let Some((made_of, rest)) = rest.split_once(')') else { continue };
        let result = result.rsplit_once(": ").map_or(result, |(_, name)| name).trim();
        made.insert(result, made_of.trim());
        let Some((op, rest)) = rest.split_once('(') else { continue };
        let dims: Vec<[u64; 4]> = rest.split('{').skip(1).filter_map(four).collect();
        let (&[a, b, .., r], Some(name)) = (&dims[..], rest.split('{').next()) else { continue };
        // A cache is in F16, unless it is asked for otherwise.
        let kind = match (model.tensor(name), made.get(name)) {
            (Some(t), _) => t.kind.to_lowercase().replace("_k", "_K"),
            (None, Some(kind)) => (*kind).to_owned(),
            (None, None) if name.starts_with("cache_") => "f16".to_owned(),
            (None, None) => "unknown".to_owned(),
        };
        let (label, rows, macs) = match op.trim() {
            "MUL_MAT" => {
                let rows = b[1..].iter().product::<u64>();
                ([a[0], a[1]], rows, a[0] * a[1] * rows)
            }
            "MUL_MAT_ID" => ([a[0], a[1]], r[2], a[0] * a[1] * r[1] * r[2]),
            // Q over K and V, whose rows are the result's.
            "FLASH_ATTN_EXT" => ([b[0], b[1]], a[1], a[1] * a[2] * b[1] * (b[0] + r[0])),
            _ => continue,
        };
        let kind = if op.trim() == "FLASH_ATTN_EXT" { "f16".to_owned() } else { kind };
        if rows > 0 {
            add(&mut all, (op.trim().to_owned(), kind, label[0], label[1], rows), [1, macs]);
        }
    }
    all
}

/// The forecast's shapes with this place, and the reasons of what is the CPU's.
fn forecast(json: &Value, place: &str) -> (Work, BTreeSet<(Key, String)>) {
    let (mut work, mut why) = (Work::new(), BTreeSet::new());
    let number = |v: &Value| v.as_u64().unwrap_or_else(|| panic!("{v} is no count"));
    for s in json["shapes"].as_array().expect("shapes").iter().filter(|s| s["place"] == place) {
        let [op, kind, outcome] =
            ["op", "weight_type", "outcome"].map(|n| s[n].as_str().expect("text").to_owned());
        let [k, n, rows, count, macs] = ["k", "n", "rows", "count", "macs"].map(|n| number(&s[n]));
        let key = (op, kind, k, n, rows);
        why.insert(((key.0.clone(), key.1.clone(), k, n, class(rows)), outcome));
        add(&mut work, key, [count, macs]);
    }
    (work, why)
}

fn counted(rows: &[Row], place: Place) -> (Work, BTreeSet<(Key, String)>) {
    let (mut work, mut why) = (Work::new(), BTreeSet::new());
    for r in rows.iter().filter(|r| r.place == place) {
        let key: Key = (r.op.clone(), r.weight.clone(), r.k, r.n, class(u64::from(r.rows[0])));
        why.insert((key.clone(), r.outcome.clone()));
        add(&mut work, key, [r.calls, r.macs]);
    }
    (work, why)
}

/// The prompt, of exactly so many tokens.
fn prompt(s: &Setup, tokens: usize, generated: bool) -> std::path::PathBuf {
    if !generated {
        return s.prompt_of(tokens);
    }
    let path = s.scratch.path().join("prompt.txt");
    std::fs::write(&path, generate::text_of(&line(), tokens)).expect("writes");
    path
}

fn knobs(c: &mut Command) -> &mut Command {
    c.env("ROCKET_MOE_WAIT", "1")
        .env("ROCKET_PACKED_DIR", "0")
        .env("ROCKET_MOE_CACHE_MB", "0")
        .envs(KNOBS)
}

/// The host's list, and the counters of the same run.
fn computed(s: &Setup, case: Case, prompt: &Path, header: &Header) -> (Work, Vec<Row>) {
    let folder = s.scratch.path().join("counters");
    let batches = case.prompt.div_ceil(case.ubatch);
    for _ in 0..5 {
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut c = s.command_with("llama-eval-callback", |c| {
            c.arg("--cpu").arg(cpu()[0]);
        });
        knobs(&mut c)
            .env("GGML_BACKEND_PATH", &s.plugin)
            .env("ROCKET_DEVICE", "sim")
            .env("ROCKET_COUNTERS", &folder);
        c.arg("-m").arg(&s.model).arg("-f").arg(prompt).args([
            "-n",
            "1",
            "-t",
            "2",
            "-fa",
            word(case.flash),
        ]);
        c.args(["-ub", &case.ubatch.to_string()]);
        if !case.repack {
            c.arg("-nr");
        }
        let out = run(&mut c);
        let log = [out.stdout, out.stderr].concat();
        let log = String::from_utf8_lossy(&log);
        // Its logger may end before all is written; the head is each micro-batch's last operation.
        if log.matches(" result_output = ").count() == batches {
            let mut found = scan(&[folder]);
            let figures = found.pop().expect("counters").figures.expect("figures");
            assert!(found.is_empty());
            return (listed(&log, header), figures.rows);
        }
    }
    panic!("the host never printed its whole list");
}

fn check(s: &Setup, case: Case, generated: bool) {
    let begun = Instant::now();
    let header = gguf::read(&s.model);
    let mut c = Command::new(named("ROCKET_TEST_ROCKETCTL"));
    knobs(c.arg("forecast").arg(&s.model).args([
        "--json",
        "--soc",
        "rk3588",
        "--host-cpu",
        cpu()[1],
    ]));
    c.args(["--prompt", &case.prompt.to_string(), "--ubatch", &case.ubatch.to_string()]);
    c.args(["--flash-attn", word(case.flash), "--repack", word(case.repack)]);
    let json: Value = serde_json::from_slice(&run(&mut c).stdout).expect("JSON");
    let ((npu, _), (cpu, why)) = (forecast(&json, "npu"), forecast(&json, "cpu"));

    let prompt = prompt(s, case.prompt, generated);
    let (all, rows) = computed(s, case, &prompt, &header);
    let what = format!("{} {case:?}", s.model.file_name().expect("a file").to_string_lossy());
    // All that is computed, to the row.
    let mut whole = npu.clone();
    cpu.iter().for_each(|(key, work)| add(&mut whole, key.clone(), *work));
    differs(&whole, &all, &format!("{what}: forecast and the host's list"));
    // What ran on the NPU, by the counters; and nothing was redone.
    let (ran, _) = counted(&rows, Place::Npu);
    differs(&classed(&npu), &ran, &format!("{what}: forecast and counters of the NPU"));
    assert_eq!(counted(&rows, Place::Redone).0, Work::new(), "{what}");
    // What is left of the host's list ran on the CPU.
    let mut left = classed(&all);
    for (key, [ops, macs]) in &ran {
        let of =
            left.get_mut(key).unwrap_or_else(|| panic!("{what}: {key:?} is no op of the host's"));
        *of = [of[0] - ops, of[1] - macs];
    }
    left.retain(|_, work| *work != [0, 0]);
    differs(&classed(&cpu), &left, &format!("{what}: forecast and the CPU's part"));
    // The reasons: each that is forecast was given.
    let (_, given) = counted(&rows, Place::Declined);
    let missing: Vec<_> = why.difference(&given).collect();
    assert!(missing.is_empty(), "{what}: not among the reasons: {missing:#?}\n{given:#?}");
    let sum = |w: &Work| w.values().fold([0, 0], |a, b| [a[0] + b[0], a[1] + b[1]]);
    println!(
        "{what}: {:?} ops and MACs, {:?} on the NPU, {:?} on the CPU; {:.1} s",
        sum(&all),
        sum(&ran),
        sum(&left),
        begun.elapsed().as_secs_f64()
    );
    let totals = &json["totals"];
    assert_eq!([&totals["ops"], &totals["macs"]].map(Value::as_u64), sum(&all).map(Some));
    assert_eq!([&totals["npu_ops"], &totals["npu_macs"]].map(Value::as_u64), sum(&ran).map(Some));
}

/// Says which entries differ.
fn differs(ours: &Work, theirs: &Work, what: &str) {
    let keys: BTreeSet<&Key> = ours.keys().chain(theirs.keys()).collect();
    let apart: Vec<_> = keys
        .into_iter()
        .map(|k| (k, ours.get(k), theirs.get(k)))
        .filter(|(_, a, b)| a != b)
        .collect();
    assert!(apart.is_empty(), "{what}: {apart:#?}");
}

/// Every way to run a model: two micro-batches of 64 and a tail, one of 512.
fn every_way(s: &Setup, generated: bool) {
    for flash in [true, false] {
        for repack in [true, false] {
            for (prompt, ubatch) in [(130, 64), (512, 512)] {
                check(s, Case { prompt, ubatch, flash, repack }, generated);
            }
        }
    }
}

fn of_recipe(recipe: &generate::Recipe) {
    every_way(&Setup { model: file_of(recipe), ..Setup::named() }, true);
}

#[test]
fn host_forecast_of_smollm2_is_what_runs() {
    let s = Setup::named();
    every_way(&Setup { model: s.model_named("smollm2-q4_k_m.gguf"), ..s }, false);
}

#[test]
fn host_forecast_of_experts_and_sinks_is_what_runs() {
    of_recipe(&generate::oss());
}

#[test]
fn host_forecast_of_latent_attention_is_what_runs() {
    of_recipe(&generate::mla(true));
}

/// A third micro-batch of a few tokens, after which the cache is longer than any window.
const TAIL: Case = Case { prompt: 1044, ubatch: 512, flash: true, repack: true };

#[test]
fn host_forecast_of_a_small_model_is_what_runs() {
    let recipe = generate::tiny(generate::Kind::F16);
    of_recipe(&recipe);
    check(&Setup { model: file_of(&recipe), ..Setup::named() }, TAIL, true);
}

/// What families multiply: in micro-batches longer and shorter than a window, with and without flash attention.
#[test]
fn host_forecast_of_each_family_is_what_runs() {
    for name in ["qwen2", "qwen2moe", "qwen3", "qwen3moe", "gemma2", "gemma3", "phi3"] {
        let s = Setup { model: file_of(&generate::family(name)), ..Setup::named() };
        check(&s, TAIL, true);
        for flash in [true, false] {
            check(&s, Case { prompt: 600, ubatch: 64, flash, repack: false }, true);
        }
    }
    let s = Setup { model: file_of(&generate::hybrid()), ..Setup::named() };
    check(&s, Case { prompt: 130, ubatch: 64, flash: true, repack: true }, true);
}

/// What a forecast says of the NPU is what its counters show of `runs` prefills, in a host that lists nothing.
fn counters_alone(
    s: &Setup,
    mut c: Command,
    arguments: &[&str],
    runs: u64,
    keep: impl Fn(&Key) -> bool,
) {
    let folder = s.scratch.path().join("counters");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    knobs(&mut c)
        .env("GGML_BACKEND_PATH", &s.plugin)
        .env("ROCKET_DEVICE", "sim")
        .env("ROCKET_COUNTERS", &folder);
    run(&mut c);
    let rows = scan(&[folder]).pop().expect("counters").figures.expect("figures").rows;
    let mut c = Command::new(named("ROCKET_TEST_ROCKETCTL"));
    knobs(
        c.arg("forecast")
            .args(["--json", "--soc", "rk3588", "--host-cpu", cpu()[1]])
            .args(arguments),
    );
    let json: Value = serde_json::from_slice(&run(&mut c).stdout).expect("JSON");
    let (npu, _) = forecast(&json, "npu");
    let npu = npu.into_iter().map(|(key, work)| (key, work.map(|n| n * runs))).collect();
    let (mut ran, _) = counted(&rows, Place::Npu);
    ran.retain(|key, _| keep(key));
    differs(&classed(&npu), &ran, &format!("{arguments:?}: forecast and counters of the NPU"));
    // With the reasons for the rest of it.
    let (_, why) = forecast(&json, "cpu");
    let (_, given) = counted(&rows, Place::Declined);
    let missing: Vec<_> = why.difference(&given).filter(|(key, _)| keep(key)).collect();
    assert!(missing.is_empty(), "{arguments:?}: not among the reasons: {missing:#?}\n{given:#?}");
    let sum = ran.values().fold([0, 0], |a, b| [a[0] + b[0], a[1] + b[1]]);
    println!("{arguments:?}: {sum:?} ops and MACs on the NPU");
}

#[test]
fn host_forecast_of_whisper_is_what_runs() {
    let s = Setup::named();
    for file in ["whisper-base-f16.bin", "whisper-base-q5_0.bin", "whisper-base-q8_0.bin"] {
        let model = s.model_named(file);
        let mut c = s.command_with("whisper-cli", |c| {
            c.arg("--cpu").arg(cpu()[0]);
        });
        c.arg("-m")
            .arg(&model)
            .arg("-f")
            .arg(s.model_named("jfk.wav"))
            .args(["-nt", "-t", "2", "-bs", "1"]);
        // One window of 30 s.
        counters_alone(&s, c, &[model.to_str().expect("text")], 1, |_| true);
    }
}

#[test]
fn host_forecast_of_an_embedder_is_what_runs() {
    let s = Setup { model: Setup::named().model_named("minilm-f16.gguf"), ..Setup::named() };
    let text = s.scratch.path().join("text.txt");
    std::fs::write(&text, crate::first_words(100)).expect("writes");
    let out = run(s
        .command("llama-tokenize")
        .arg("-m")
        .arg(&s.model)
        .arg("-f")
        .arg(&text)
        .arg("--show-count"));
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let tokens = said
        .lines()
        .rev()
        .find_map(|l| l.strip_prefix("Total number of tokens: "))
        .expect("a count");
    for flash in ["on", "off"] {
        let mut c = s.command_with("llama-embedding", |c| {
            c.arg("--cpu").arg(cpu()[0]);
        });
        c.arg("-m").arg(&s.model).arg("-f").arg(&text).args([
            "-nr",
            "-t",
            "2",
            "--no-warmup",
            "-fa",
            flash,
        ]);
        let model = s.model.to_str().expect("text");
        let arguments =
            [model, "--prompt", tokens.trim(), "--flash-attn", flash, "--repack", "off"];
        counters_alone(&s, c, &arguments, 1, |_| true);
    }
}

/// The encoder of pictures, on the device that is named; the text model beside it is narrower than all of it.
#[test]
fn host_forecast_of_a_projector_is_what_runs() {
    let s = Setup { model: file_of(&generate::tiny(generate::Kind::F16)), ..Setup::named() };
    let encoder = file_of(&generate::siglip(256));
    let picture = s.scratch.path().join("picture.ppm");
    std::fs::write(&picture, generate::image()).expect("writes");
    let mut c = s.command_with("llama-mtmd-cli", |c| {
        c.arg("--cpu").arg(cpu()[0]);
    });
    c.arg("-m").arg(&s.model).arg("--mmproj").arg(&encoder).arg("--image").arg(&picture);
    c.args(["-p", "What is it?", "-n", "1", "--temp", "0", "--chat-template", "vicuna"]);
    c.args(["-t", "2", "--no-warmup"]).env("MTMD_BACKEND_DEVICE", "ROCKET");
    let own = |key: &Key| key.2 >= 1152 || key.2 == 72;
    // Shown whole, and once more as its only tile.
    counters_alone(&s, c, &[encoder.to_str().expect("text")], 2, own);
}
