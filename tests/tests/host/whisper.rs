//! One library, unchanged, in whisper.cpp hosts of every generation of ggml's interface: what is
//! heard is what the CPU hears, and the encoder ran on the board.

use crate::macs::{self, Product};
use crate::{Setup, lines_of_ours, named, run};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

/// Debian's, and those built from source.
fn hosts() -> Vec<PathBuf> {
    let built = named("ROCKET_TEST_WHISPER_HOSTS");
    let built = built.to_str().expect("paths of text").split(':').map(PathBuf::from);
    std::iter::once(named("ROCKET_TEST_HOST_ROOT")).chain(built).collect()
}

/// Greedy, without time stamps: only words.
fn hear(s: &Setup, mut c: Command, model: &Path) -> Output {
    c.arg("-m").arg(model).arg("-f").arg(s.model_named("jfk.wav"));
    run(c.args(["-nt", "-t", "2", "-bs", "1"]))
}

/// Audio context, state, layers and text layers of a model: the second, third, fifth and ninth number after
/// the magic.
fn settings(model: &Path) -> [usize; 4] {
    let file = std::fs::File::open(model).expect("the model opens");
    let mut head = [0; 48];
    std::io::Read::read_exact(&mut { file }, &mut head).expect("a header");
    [1, 2, 4, 8].map(|i| {
        let at = 4 + 4 * i;
        u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes")) as usize
    })
}

/// What the encoder multiplies with weights for each 30 s of sound, and the decoder once for its
/// cross attention.
fn expected([rows, state, blocks, text_blocks]: [usize; 4]) -> BTreeMap<Product, usize> {
    BTreeMap::from([
        // Query, key, value and output; and key and value of each decoder block.
        ((state, state, rows), 4 * blocks + 2 * text_blocks),
        ((state, 4 * state, rows), blocks),
        ((4 * state, state, rows), blocks),
    ])
}

/// Every product on the board from weights that stay there, although whisper gives them no names.
/// Returns how many, and in how many parts of graphs.
fn check(report: &Path, model: &Path) -> [usize; 2] {
    let report = macs::read(report);
    let settings = settings(model);
    let expected = expected(settings);
    let list: Vec<Product> =
        expected.iter().flat_map(|(p, n)| std::iter::repeat_n(*p, *n)).collect();
    assert_eq!(macs::share(&report, &list), 1.0);
    let mut ran: BTreeMap<Product, usize> = BTreeMap::new();
    for op in report["ops"].as_array().expect("ops") {
        let [k, n, m] = ["k", "n", "m"].map(|d| op[d].as_u64().expect("a count") as usize);
        assert_eq!(op["route"], "fp16", "{op}");
        assert_eq!(op["engine"]["resident"], true, "{op}");
        *ran.entry((k, n, m)).or_default() += 1;
    }
    assert_eq!(ran, expected);
    let parts = report["graphs"].as_u64().expect("a count") as usize;
    // Query, key and value of a block go together, although key and value are copied between them. Of the
    // decoder's keys the host scales each, which ends a part.
    let [.., blocks, text_blocks] = settings;
    assert_eq!(parts, 4 * blocks + text_blocks + 1);
    [list.len(), parts]
}

/// The interface that the plugin says it found, after checking both transcripts.
fn transcribe(host: PathBuf, model: &str) -> String {
    let s = Setup::in_host(host);
    let model = s.model_named(model);
    let begun = Instant::now();
    let alone = hear(&s, s.command("whisper-cli"), &model);
    let on_cpu = begun.elapsed();
    let (c, report) = s.on_npu("whisper-cli");
    let with = hear(&s, c, &model);
    let on_npu = begun.elapsed() - on_cpu;
    let [alone, heard] = [&alone, &with].map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    assert!(heard.contains("ask not what your country can do for you"), "{heard}");
    assert_eq!(alone, heard);
    let [products, parts] = check(&report, &model);
    let lines = lines_of_ours(&with);
    println!(
        "{}, {}: {products} products on the board in {parts} parts of graphs; {:.1} s on the CPU, {:.1} s simulated\n{}",
        s.host.file_name().expect("a folder").to_string_lossy(),
        model.file_name().expect("a file").to_string_lossy(),
        on_cpu.as_secs_f64(),
        on_npu.as_secs_f64(),
        lines.join("\n"),
    );
    let said = lines.iter().find_map(|l| l.split_once("interface ")).expect("names the interface");
    said.1.split(|c: char| c.is_whitespace() || c == ',').next().expect("a word").to_owned()
}

#[test]
fn host_whisper_hears_the_same_in_every_generation() {
    let library = named("ROCKET_TEST_PLUGIN");
    let sum = || {
        let out = run(Command::new("sha256sum").arg(&library));
        String::from_utf8_lossy(&out.stdout)[..16].to_owned()
    };
    let before = sum();
    let mut found: Vec<String> =
        hosts().into_iter().map(|host| transcribe(host, "whisper-base-f16.bin")).collect();
    assert_eq!(before, sum(), "the library changed meanwhile");
    println!("all from one file, sha256 {before}...: interfaces {found:?}");
    found.sort();
    found.dedup();
    assert_eq!(found, ["B1", "B2", "C"], "one host of each generation");
}

#[test]
fn host_whisper_hears_the_same_with_five_bit_weights() {
    transcribe(named("ROCKET_TEST_HOST_ROOT"), "whisper-base-q5_0.bin");
}

#[test]
fn host_whisper_hears_the_same_with_eight_bit_weights() {
    transcribe(named("ROCKET_TEST_HOST_ROOT"), "whisper-base-q8_0.bin");
}
