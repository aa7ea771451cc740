//! The validation layer over every program of the vectors: which it refuses, and by what rule, is
//! a list in the repository, and nothing more or less may be.

use crate::json;
use rocket_sim::listing::{self, ListingError};
use std::collections::BTreeSet;
use std::path::Path;

/// The folders of RK3588 programs.
const FOLDERS: [&str; 2] = ["rk3588-matmul", "rk3588-ops"];
const LIST: &str = include_str!("../../data/refused-programs.txt");

#[test]
fn vectors_are_refused_as_listed() {
    let Some(dir) = crate::folder() else {
        println!("no vectors beside this clone: skipped");
        return;
    };
    let mut found = BTreeSet::new();
    let mut programs = 0;
    for folder in FOLDERS {
        for path in json::paths_below(&dir.join(folder)) {
            let (broken, n) = broken(&path, folder);
            found.extend(broken);
            programs += n;
        }
    }
    assert!(programs >= 85, "{programs} programs only");
    let listed: BTreeSet<String> =
        LIST.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).map(str::to_owned).collect();
    let lines = |a: &BTreeSet<String>, b: &BTreeSet<String>| -> Vec<String> {
        a.difference(b).cloned().collect()
    };
    assert_eq!(lines(&found, &listed), [""; 0], "refused, and not in the list");
    assert_eq!(lines(&listed, &found), [""; 0], "in the list, and not refused");
}

/// A line of each rule that each program of a file breaks, and how many programs it has.
fn broken(path: &Path, folder: &str) -> (Vec<String>, usize) {
    let file = format!("{folder}/{}", path.file_name().unwrap_or_default().to_string_lossy());
    let programs = match listing::parse(&std::fs::read(path).expect("readable file")) {
        Ok(programs) => programs,
        // Layouts, plans and the like.
        Err(ListingError::NoProgram) => return (Vec::new(), 0),
        Err(e) => panic!("{file}: {e}"),
    };
    let line = |name: &str, rule: &str| format!("{file} | {name} | {rule}");
    let lines = programs.iter().flat_map(|p| {
        let findings = listing::list(p).findings;
        findings.into_iter().map(|f| line(&p.name, f.rule.id())).collect::<Vec<_>>()
    });
    (lines.collect(), programs.len())
}
