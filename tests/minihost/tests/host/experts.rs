//! Products with experts: every form, where they are taken, and boards that fail.

use super::{SLOW_TYPES, command, faults, hosts, number, right, types_of};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `experts` with these variables; what it prints and logs.
fn experts(host: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> [String; 2] {
    let mut c = command(host, &[&["experts"], arguments].concat());
    c.envs(variables.iter().copied()).env("ROCKET_LOG_STDERR", "1");
    let [text, log] = right(c);
    println!("{} {variables:?} {arguments:?}:\n{text}", host.display());
    [text, log]
}

/// Weight types of a host that the list has, and whether MXFP4 is among them.
fn types(text: &str) -> (usize, bool) {
    let version = text.lines().find_map(|l| l.strip_prefix("host: ggml ")).unwrap();
    let all = types_of(version);
    (all - SLOW_TYPES, all > types_of("0.8"))
}

/// F32, F16, BF16.
const PLAIN: usize = 3;
/// Of a stack with every form: those with a result; of outliers; that fail; not finite.
const FORMS: usize = 30;
const OUTLIERS: usize = 2;
const FAILED: usize = 4;
const NOT_FINITE: usize = 2;

/// All of them forced onto the board: who is computed how, right, and not with wrong weights.
#[test]
fn host_experts() {
    for host in hosts() {
        let [text, log] = experts(&host, &[], &[]);
        let (types, mxfp4) = types(&text);
        let more = |count: usize| if mxfp4 { count } else { 0 };
        // Every form of F16, two of plain F32 and BF16, two of each type.
        let fp16 = FORMS + 2 * 2 + 2 * PLAIN;
        assert_eq!(number(&text, " experts-fp16"), fp16, "{text}");
        let int8 = 3 * FORMS + 2 * 2 + 2 * (types - PLAIN) + 2;
        let int8 = int8 + more(FORMS - OUTLIERS + 2 + 1);
        assert_eq!(number(&text, " experts-int8"), int8, "{text}");
        assert_eq!(number(&text, "redone: activation_not_finite"), NOT_FINITE * (4 + more(1)));
        assert_eq!(number(&text, " failed"), FAILED * (4 + more(1)), "{text}");
        for why in ["experts_few_tokens", "k_too_small", "n_too_small"] {
            assert_eq!(number(&text, &format!("declined: {why}")), 1, "{text}");
        }
        // Each packed by its first op.
        assert_eq!(number(&text, "in int8 that stayed: "), 3 + types - PLAIN + 2 + more(2));
        assert!(weakest(&text, "fp16") >= 10.0 && weakest(&text, "int8") >= 2.0, "{text}");
        // Each graph that failed says why.
        let why = |l: &&str| l.ends_with(": a token asks for an expert that does not exist.");
        let failed: BTreeSet<&str> = log.lines().filter(why).collect();
        assert_eq!(failed.len(), FAILED * (4 + more(1)), "{log}");
    }
}

/// The weakest negative control.
fn weakest(text: &str, route: &str) -> f64 {
    let line = text.lines().find(|l| l.starts_with(&format!("{route}: worst"))).unwrap();
    let (_, rest) = line.split_once("negative control ").unwrap();
    rest.trim_end_matches(" times").parse().unwrap()
}

/// Without native numbers all is fp16, within the bounds of each element.
#[test]
fn host_experts_in_fp16() {
    let host = &hosts()[0];
    let [text, _] = experts(host, &[("ROCKET_MOE_NATIVE", "0")], &[]);
    assert!(!text.contains("experts-int8"), "{text}");
    assert!(number(&text, " experts-fp16") > 150, "{text}");
    assert!(weakest(&text, "fp16") >= 10.0, "{text}");
}

/// As a host has them by default, with thresholds as low as they go; and not at all.
#[test]
fn host_experts_by_mode() {
    let host = &hosts()[0];
    let low = [
        ("ROCKET_MOE", "auto"),
        ("ROCKET_MOE_MIN_TOKENS", "8"),
        ("ROCKET_MOE_M_BUCKET", "4"),
        ("ROCKET_MOE_MIN_WORK", "0"),
    ];
    let [text, _] = experts(host, &low, &[]);
    assert!(!text.contains("experts-fp16"), "{text}");
    // Two batches of a plain stack; those of stacks that are not quantized.
    let plain = number(&text, "declined: experts_unquantized");
    assert!(plain >= FORMS && number(&text, "declined: experts_not_kept") >= 4, "{text}");
    assert!(number(&text, " experts-int8") > 100, "{text}");
    let [text, _] = experts(host, &[("ROCKET_MOE", "0")], &[]);
    let all = number(&text, " products with experts");
    assert_eq!(number(&text, "declined: experts_off"), all, "{text}");
}

/// The thread that packs is the plugin's own: the newest host of those at hand and the oldest show it.
pub fn newest_and_oldest() -> [PathBuf; 2] {
    let hosts = hosts();
    [hosts[0].clone(), hosts[hosts.len() - 1].clone()]
}

/// A stack that is packed while the host goes on.
#[test]
fn host_experts_are_packed_beside_the_host() {
    for host in newest_and_oldest() {
        let [text, log] = experts(&host, &[("ROCKET_MOE_WAIT", "0")], &["--background"]);
        assert!(number(&text, " ops by the CPU while it was packed") >= 1, "{text}");
        assert!(log.contains("64 of 64 experts resident"), "{log}");
    }
}

/// Contexts and stacks come and go, also while stacks are packed.
#[test]
fn host_experts_come_and_go() {
    for host in newest_and_oldest() {
        experts(&host, &[], &["--contexts"]);
        experts(&host, &[("ROCKET_MOE_WAIT", "0")], &["--abandoned"]);
        experts(&host, &[], &["--threads"]);
        experts(&host, &[("ROCKET_MOE_WAIT", "0")], &["--threads"]);
    }
}

/// A model takes another one's place in memory while that is packed: neither is ever a mixture.
#[test]
fn host_experts_replaced_while_packed() {
    experts(&hosts()[0], &[("ROCKET_MOE_WAIT", "0")], &["--replaced"]);
}

fn placement(host: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> String {
    let mut c = command(host, &[&["experts-placement"], arguments].concat());
    c.envs(variables.iter().copied());
    let [text, _] = right(c);
    text
}

/// Every boundary in every mode.
#[test]
fn host_experts_placement() {
    // Nothing is computed, so memory of this machine decides nothing either.
    let unlimited = ("ROCKET_MOE_CACHE_MB", "0");
    for host in hosts() {
        for (variables, taken) in [
            (&[unlimited][..], 5),
            (&[unlimited, ("ROCKET_MOE", "auto")], 5),
            (&[unlimited, ("ROCKET_MOE", "1")], 14),
            (&[unlimited, ("ROCKET_MOE", "0")], 0),
            (&[unlimited, ("ROCKET_MOE_NATIVE", "0")], 0),
            // A budget is no matter of what is forced.
            (&[("ROCKET_MOE_CACHE_MB", "1"), ("ROCKET_MOE", "1")], 14),
        ] {
            let text = placement(&host, variables, &[]);
            assert_eq!(number(&text, " accepted"), taken, "{variables:?} {text}");
            assert_eq!(number(&text, " questions about experts"), 19, "{text}");
        }
    }
}

/// Whole stacks, as many as the budget holds and not one more.
#[test]
fn host_experts_admitted_by_budget() {
    let host = &hosts()[0];
    let admitted = |mb: usize| {
        let mb = mb.to_string();
        let text = placement(host, &[("ROCKET_MOE_CACHE_MB", &mb)], &["--stacks", "3"]);
        number(&text, "stacks admitted: ")
    };
    assert_eq!(admitted(1), 0);
    // The least that so many need.
    let least = |count: usize| {
        let (mut low, mut high) = (1, 200);
        assert!(admitted(high) >= count);
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if admitted(middle) >= count { high = middle } else { low = middle }
        }
        assert_eq!(admitted(high), count, "at {high} MB");
        high
    };
    let [one, two, three] = [1, 2, 3].map(least);
    println!("one stack of 16 MB of codes takes {one} MB, two {two} MB, three {three} MB");
    // Codes of a byte, a scale for 512 of them, and 4.5 bits of the file: 25.1 MB. Buffers are
    // rounded up, scales of smaller groups are more.
    assert!((25..=28).contains(&one), "{one}");
    assert!((2 * one - 1..=2 * one).contains(&two), "{one} {two}");
    assert!((3 * one - 2..=3 * one).contains(&three), "{one} {three}");
    assert_eq!(admitted(0), 3, "no limit");
}

/// Every call and every job of a small graph with experts fails once.
#[test]
fn host_faults_of_experts() {
    let text = faults(&["--experts"]);
    assert!(number(&text, " met a fault") >= 150, "{text}");
}

/// The program where the system says that so many kilobytes are available.
fn in_memory_of(c: &Command, meminfo: &Path) -> Command {
    let mut all = Command::new("bwrap");
    super::clean(&mut all);
    all.args(["--die-with-parent", "--bind", "/", "/", "--dev-bind", "/dev", "/dev"]);
    all.arg("--ro-bind").arg(meminfo).arg("/proc/meminfo");
    all.arg(c.get_program()).args(c.get_args());
    all
}

/// Where memory is short when a stack is to be packed, none is, and the CPU computes; or, where
/// experts are forced onto the board, each is packed for its op and goes again.
#[test]
fn host_experts_under_pressure() {
    let host = &hosts()[0];
    let scratch = tempfile::tempdir().unwrap();
    let meminfo = scratch.path().join("meminfo");
    let with = |available: u64, variables: &[(&str, &str)], arguments: &[&str]| {
        let text = format!("MemTotal: 8000000 kB\nMemAvailable: {available} kB\n");
        std::fs::write(&meminfo, text).unwrap();
        let all = [&["experts", "--stored"], arguments].concat();
        let mut c = in_memory_of(&command(host, &all), &meminfo);
        c.envs(variables.iter().copied());
        let [text, _] = right(c);
        println!("{available} kB, {variables:?}:\n{text}");
        text
    };
    let low = [
        ("ROCKET_MOE", "auto"),
        ("ROCKET_MOE_MIN_TOKENS", "8"),
        ("ROCKET_MOE_M_BUCKET", "4"),
        ("ROCKET_MOE_MIN_WORK", "0"),
    ];
    let short = ["--expect", "redone: experts_not_resident"];
    with(200_000, &low, &short);
    let forced = with(200_000, &[], &[]);
    // Without a limit of the user's the available memory is one.
    let auto = [&low[..], &[("ROCKET_MOE_CACHE_MB", "auto")]].concat();
    with(200_000, &auto, &["--expect", "declined: experts_no_room"]);
    // The same with memory enough: the results are those of the forced ones.
    let ample = with(7_000_000, &low, &[]);
    let results =
        |text: &str| text.lines().find(|l| l.starts_with("results: ")).map(str::to_owned).unwrap();
    assert_eq!(results(&forced), results(&ample));
}
