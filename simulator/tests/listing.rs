//! Listings: files of three forms, words, fields and broken rules, as text and as JSON.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use proptest::prelude::*;
use rocket_sim::listing::{self, NamedProgram, Place};
use rocket_sim::{Class, Rule};

/// A program whose operand is armed on one side only.
fn half_armed() -> Vec<u64> {
    let mut words = encode(&Shape::new(4, 32, 16), [0x1000, 0x2000, 0x3000, 0]);
    set(&mut words, 0x5034, 0x4000_0008);
    words
}

fn named(words: Vec<u64>) -> NamedProgram {
    NamedProgram { name: "half armed".to_owned(), words, place: Place::First }
}

fn rules(program: &NamedProgram) -> Vec<Rule> {
    listing::list(program).findings.iter().map(|f| f.rule).collect()
}

#[test]
fn as_text() {
    insta::assert_snapshot!(listing::list(&named(half_armed())));
}

#[test]
fn as_json() {
    // A short program: one of each kind of word, and two broken rules.
    let words = vec![
        0x1001_0000_000e_4004,
        0x0201_0000_0120_100c,
        0x1001_0000_0001_4f00,
        0,
        0x0101_0000_0000_0014,
        0x0041_0000_0000_0000,
        0x0081_0000_000d_0008,
    ];
    let listing = listing::list(&named(words));
    insta::assert_snapshot!(serde_json::to_string_pretty(&listing).unwrap());
}

#[test]
fn rules_are_those_of_a_run() {
    let words = encode(&Shape::new(16, 64, 32), [0x1000, 0x10000, 0x20000, 0]);
    assert_eq!(rules(&named(words.clone())), []);
    for (offset, value, rule) in [
        (0x5044, 0x7808, Rule::MrdmaWithoutFeed),
        (0x4010, 0x4800_0007, Rule::DpuPrecision7),
        (0x4050, 2, Rule::SurfacesTooFew),
        (0x1040, 0x1b1, Rule::FcDataBank),
        (0x1040, 0x10b1, Rule::StaleReuse),
    ] {
        let mut words = words.clone();
        set(&mut words, offset, value);
        assert_eq!(rules(&named(words)), [rule], "{offset:x}");
    }
    let mut linked = words.clone();
    linked[122] = word(0x10, 0x1000);
    assert_eq!(rules(&named(linked.clone())), [Rule::ChainNotBatched]);
    let chained = |words: &[u64], index| NamedProgram {
        place: Place::Chained { index, of: 2 },
        ..named(words.to_vec())
    };
    assert_eq!(rules(&chained(&linked, 0)), []);
    assert_eq!(rules(&chained(&words, 0)), [Rule::ChainWithoutLink]);
    assert_eq!(rules(&chained(&words, 1)), []);
    assert_eq!(rules(&named(words[..125].to_vec())), [Rule::EnableNotFetched]);
    assert_eq!(rules(&named(Vec::new())), [Rule::EnableNotFetched]);
}

#[test]
fn reuse_is_judged_as_the_file_says() {
    let reusing = Shape { data_reuse: true, ..Shape::new(16, 64, 32) };
    let words = encode(&reusing, [0x1000, 0x10000, 0x20000, 0]);
    let hex: Vec<String> = words.iter().map(|w| format!("0x{w:016x}")).collect();
    let file = |flag: bool| {
        let v = serde_json::json!({ "dtype": "fp16", "kind": "program", "M": 16, "K": 64, "N": 32,
            "flags": { "data_reuse": flag }, "words": hex });
        listing::parse(v.to_string().as_bytes()).unwrap()
    };
    let after = file(true);
    assert_eq!(
        (after[0].name.as_str(), after[0].place),
        ("program fp16 16x64x32", Place::AfterSame)
    );
    assert_eq!(rules(&after[0]), []);
    assert_eq!(rules(&file(false)[0]), [Rule::StaleReuse]);
}

#[test]
fn several_programs_of_a_file_have_different_names() {
    let file = br#"{"cases": [{"words": ["1"]}, {"words": ["2"]}, {"name": "x", "words": ["3"]}]}"#;
    let programs = listing::parse(file).unwrap();
    let names: Vec<(&str, u64)> = programs.iter().map(|p| (p.name.as_str(), p.words[0])).collect();
    assert_eq!(names, [("program", 1), ("program (2)", 2), ("x", 3)]);
}

#[test]
fn vectors_are_listed_without_a_broken_rule() {
    let Some(dir) = vectors() else { return };
    let mut programs = 0;
    for path in files(&dir, "chain-").into_iter().chain(files(&dir, "prog-int8")) {
        for program in listing::parse(&std::fs::read(&path).unwrap()).unwrap() {
            assert_eq!(rules(&program), [], "{} {}", path.display(), program.name);
            programs += 1;
        }
    }
    assert!(programs >= 8, "{programs}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_listed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(programs) = listing::parse(&bytes) {
            for program in programs {
                let listing = listing::list(&program);
                prop_assert_eq!(listing.words.len(), program.words.len());
                prop_assert!(listing.to_string().lines().count() > program.words.len());
                prop_assert!(serde_json::to_value(&listing).unwrap()["version"] == 1);
            }
        }
    }

    #[test]
    fn any_text_is_listed_or_refused(text in "[0-9a-fx_# \\n{}\\[\\]\":,]{0,200}") {
        if let Ok(programs) = listing::parse(text.as_bytes()) {
            prop_assert!(!programs.is_empty());
            programs.iter().for_each(|p| drop(listing::list(p)));
        }
    }

    /// Programs whose words are all well formed reach every check.
    #[test]
    fn any_values_in_registers_are_judged(
        changes in proptest::collection::vec((0usize..122, any::<u32>(), 0u32..32), 1..6),
        base in 0usize..4,
    ) {
        let mut words = match base {
            0 => encode(&Shape::new(16, 64, 32), [0x1000, 0x10000, 0x20000, 0]),
            1 => {
                let adding = Shape { ew: Some(EW_ADD), ..Shape::new(16, 64, 32) };
                encode(&adding, [0x1000, 0x10000, 0x20000, 0x30000])
            }
            2 => looking_up(8, 0x1000, 0x2000),
            _ => pooling(1, [2, 2], 0x1000, 0x2000),
        };
        for (at, value, shift) in changes {
            let at = at % (words.len() - 4);
            words[at] = word(words[at] as u16, value >> shift);
        }
        let found = listing::list(&named(words)).findings;
        // At most one finding stops the core.
        prop_assert!(found.iter().filter(|f| f.rule.class() == Class::Hang).count() <= 1);
    }
}
