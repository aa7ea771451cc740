//! llama.cpp hosts of older generations of ggml's interface than Debian's, with the same library.
//!
//! Debian's own for arm64 runs under qemu, but slowly and with the board's deadlines passing when
//! the machine is busy, so that no test does it. By hand, with `scripts/build-aarch64`'s library
//! and `host_prebuilt arm64` of `scripts/lib/host.sh` unpacked in ROOT:
//!
//! ```text
//! GGML_BACKEND_PATH=.../libggml_rocket.so ROCKET_DEVICE=sim ROCKET_MIN_M=8 \
//!   OMP_WAIT_POLICY=passive qemu-aarch64-static -cpu cortex-a76 -L ROOT \
//!   ROOT/usr/bin/llama-completion -m smollm2-q8_0.gguf -p "about forty tokens" -n 2 --temp 0 \
//!   -no-cnv --no-warmup -nr -t 2 -fit off
//! ```

use crate::kld::measure;
use crate::{Setup, first_words, gguf, lines_of_ours, macs, named, run};
use std::process::{Command, Output};

/// API 2, with the demo's gate. Under the profile `source-host`: the host is slow to build, and
/// `scripts/test` says when it leaves it out.
#[test]
fn host_source_logits_are_the_cpus() {
    let s = Setup::in_host(named("ROCKET_TEST_SOURCE_HOST"));
    let m = measure(&s, &s.model, Some(&s.model_named("smollm2-q8_0.gguf")));
    assert!(m.ours.mean <= 2e-4 && m.ours.same_top >= 99.0, "{:?}", m.ours);
    let control = m.control.expect("was given");
    assert!(control.mean >= 10.0 * m.ours.mean, "{control:?} {:?}", m.ours);
    assert!(m.share >= 0.99, "{}", m.share);
}

/// Under the same profile. API 1, the oldest that has GGML_BACKEND_PATH: the host says word for word what it says without
/// us, and its prompt was on the board.
#[test]
fn host_source_simple_of_api_1_says_the_same() {
    let s = Setup::in_host(named("ROCKET_TEST_SIMPLE_HOST"));
    let prompt = first_words(300);
    let say =
        |mut c: Command| -> Output { run(c.arg("-m").arg(&s.model).args(["-n", "16", &prompt])) };
    let alone = say(s.command("llama-simple"));
    let (c, report) = s.on_npu("llama-simple");
    let with = say(c);
    let lines = lines_of_ours(&with);
    println!("{}", lines.join("\n"));
    assert!(lines.iter().any(|l| l.contains("interface A1/A2")), "{lines:?}");
    assert!(alone.stdout.len() > prompt.len());
    let [alone, with] = [alone, with].map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    assert_eq!(alone, with);
    let report = macs::read(&report);
    let rows = report["ops"][0]["m"].as_u64().expect("a count") as usize;
    assert!(rows >= 300, "{rows} rows");
    let expected = macs::expected(&gguf::read(&s.model), rows, 1);
    let share = macs::share(&report, &expected);
    println!("{rows} rows, {:.2} % of MACs on the NPU", share * 100.0);
    assert!(share >= 0.99, "{share}");
}
