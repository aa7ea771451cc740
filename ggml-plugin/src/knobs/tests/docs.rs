//! What people read is the table.

use super::*;
use crate::knobs::reference::{self, COMMAND};

#[test]
fn the_reference_is_printed_from_the_table() {
    let stored = include_str!("../../../../docs/knobs.md");
    assert!(stored == reference::markdown(), "docs/knobs.md is stale: {COMMAND} > docs/knobs.md");
    for k in KNOBS {
        let rows = stored.lines().filter(|l| l.starts_with(&format!("| `{}` |", k.name)));
        assert_eq!(rows.count(), 1, "{}", k.name);
    }
    let later = KNOBS.iter().filter(|k| matches!(k.status, Status::Later(_))).count();
    assert_eq!(stored.lines().filter(|l| l.contains("| *later (")).count(), later);
    assert!(stored.contains(COMMAND));
}

/// The README has the everyday ones, as they are.
#[test]
fn readme_lists_the_everyday_knobs_as_they_are() {
    let readme = include_str!("../../../../README.md");
    let everyday =
        ["DEVICE", "MIN_M", "MIN_M_QUANT", "N_THREADS", "CACHE_MB", "STATS", "REPORT", "CONFIG"];
    let rows: Vec<&str> = readme.lines().filter(|l| l.starts_with("| `ROCKET_")).collect();
    let expected = everyday.map(|n| {
        let knob = suggest::find(&format!("ROCKET_{n}")).unwrap();
        assert_eq!(knob.status, Status::Now);
        reference::row(knob)
    });
    assert_eq!(rows, expected);
    assert!(readme.contains("docs/knobs.md") && readme.contains("docs/using.md"));
}

/// The example that the packages bring is a file without a complaint, and says what it does not do.
#[test]
fn the_example_file_is_in_order() {
    let text = include_bytes!("../../../../docs/config.example.yaml");
    let read = |_: &std::path::Path| Ok(Some(text.to_vec()));
    let vars = env(&[("ROCKET_CONFIG", "/x")]);
    let k = Knobs::from_parts(&vars, &[], &read);
    assert_eq!(k.warnings, [""; 0]);
    // As it comes it changes nothing: it is meant to be copied and edited.
    assert_eq!(Knobs { notes: vec![], ..k }, knobs(&[]));
    let words = ["t", "-m", "x-Q4_K_M.gguf"].map(OsString::from);
    let k = Knobs::from_parts(&vars, &words, &read);
    assert_eq!((k.quant_resident, k.warnings.len()), (Residency::Bytes(512 << 20), 0));
}
