#![no_main]
//! The parser that FUZZ_TARGET names, by the table that the replay of the corpora uses too.

use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

static BODY: OnceLock<fn(&[u8])> = OnceLock::new();

fn chosen() -> fn(&[u8]) {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let names: Vec<&str> = rocketctl::fuzz::ALL.iter().map(|(n, _)| *n).collect();
    match rocketctl::fuzz::ALL.iter().find(|(n, _)| *n == name) {
        Some((_, body)) => *body,
        None => panic!("FUZZ_TARGET must be one of {}", names.join(", ")),
    }
}

fuzz_target!(|data: &[u8]| BODY.get_or_init(chosen)(data));
