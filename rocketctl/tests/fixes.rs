//! What the doctor tells people to type, on every fixture board: it is a command of ours, and what changes something
//! can be asked first, which changes nothing.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Subcommands that change nothing; every other one takes `--dry-run`.
const LOOKS: &[&[&str]] = &[
    &["detect"],
    &["doctor"],
    &["explain"],
    &["forecast"],
    &["knobs"],
    &["load-test"],
    &["overlay", "show"],
    &["patch", "list"],
    &["patch", "status"],
    &["clock", "get"],
    &["udev", "show"],
    &["udev", "check"],
    &["selftest"],
    &["sim"],
    &["stats"],
    &["why"],
];

fn boards() -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/boards");
    let all = fs::read_dir(all).unwrap().flatten().map(|e| e.path());
    all.filter(|p| p.is_dir()).collect()
}

fn rocketctl(words: &[String]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rocketctl")).args(words).output().unwrap()
}

/// Names, links and bytes of a tree.
fn digest(dir: &Path) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            all.insert(path.display().to_string());
            all.append(&mut digest(&path));
        } else if kind.is_symlink() {
            all.insert(format!("{} -> {:?}", path.display(), fs::read_link(&path).unwrap()));
        } else {
            all.insert(format!("{} {:?}", path.display(), fs::read(&path).unwrap()));
        }
    }
    all
}

fn copied(board: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let from = format!("{}/.", board.display());
    let status = Command::new("cp").arg("-a").arg(from).arg(dir.path()).status().unwrap();
    assert!(status.success());
    dir
}

/// Words after `rocketctl` of the commands of ours in a line; those of other programs are theirs to try.
fn ours(line: &str) -> Vec<Vec<String>> {
    let commands = line.split("&&").flat_map(|part| part.split(['|', ';']));
    let words = commands.map(|c| c.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    words
        .filter_map(|words| {
            let at = words.iter().position(|w| w == "rocketctl")?;
            let before = words[..at].iter().all(|w| w == "sudo" || w.starts_with("--preserve-env"));
            before.then(|| words[at + 1..].to_vec())
        })
        .collect()
}

fn said(board: &Path) -> (Option<i32>, Value) {
    let root = board.display().to_string();
    let words = ["doctor", "--json", "--root", &root].map(str::to_owned);
    let output = rocketctl(&words);
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn every_fix_is_a_command_and_can_be_tried() {
    let mut tried = 0;
    for board in boards() {
        let (code, report) = said(&board);
        assert_eq!(report["exit"].as_i64(), code.map(i64::from), "{}", board.display());
        let lines = report["findings"].as_array().unwrap().iter().flat_map(|f| {
            let fixes = f["fix"].as_array().unwrap().iter();
            fixes.flat_map(|fix| {
                ["run", "verify", "undo"].map(|key| fix[key].as_str().unwrap().to_owned())
            })
        });
        let lines: BTreeSet<String> = lines.collect();
        for words in lines.iter().flat_map(|line| ours(line)) {
            let whole = [&["rocketctl".to_owned()], words.as_slice()].concat();
            rocketctl::parsed(&whole).unwrap_or_else(|e| panic!("{whole:?}: {e}"));
            let starts = |look: &&[&str]| look.iter().zip(&words).all(|(a, b)| a == b);
            if !LOOKS.iter().any(starts) {
                dry_run(&board, &words);
                tried += 1;
            }
        }
    }
    println!("{tried} commands that change something");
    assert!(tried > 0);
}

/// Asked first on a copy of the board, it says something and changes nothing.
fn dry_run(board: &Path, words: &[String]) {
    let tree = copied(board);
    let before = digest(tree.path());
    let root = tree.path().display().to_string();
    let dry = [words, &["--dry-run".to_owned(), "--root".to_owned(), root]].concat();
    let output = rocketctl(&dry);
    let what = format!("{dry:?} of {}: {output:?}", board.display());
    assert!(matches!(output.status.code(), Some(0 | 1 | 3)), "{what}");
    assert!(!output.stdout.is_empty(), "it does not say what it would do: {what}");
    assert_eq!(digest(tree.path()), before, "{what}");
}

/// Looking changes nothing either, and a report stands for its tree.
#[test]
fn what_only_looks_changes_nothing() {
    for board in boards() {
        let tree = copied(&board);
        let before = digest(tree.path());
        let root = tree.path().display().to_string();
        let out = tempfile::tempdir().unwrap();
        let file = out.path().join("r.tar.gz").display().to_string();
        for words in [
            vec!["doctor", "--security"],
            vec!["doctor", "--quiet"],
            vec!["detect", "--json"],
            vec!["report", "--dry-run"],
            vec!["report", &file],
        ] {
            let words: Vec<String> =
                words.into_iter().chain(["--root", &root]).map(str::to_owned).collect();
            let code = rocketctl(&words).status.code();
            assert!(matches!(code, Some(0 | 1 | 3)), "{words:?}: {code:?}");
        }
        assert_eq!(digest(tree.path()), before);
        let statuses = |report: &Value| -> Vec<(Value, Value)> {
            let all = report["findings"].as_array().unwrap().iter();
            all.map(|f| (f["id"].clone(), f["status"].clone())).collect()
        };
        let ((code, here), (there_code, there)) = (said(&board), said(Path::new(&file)));
        assert_eq!((code, statuses(&here)), (there_code, statuses(&there)), "{}", board.display());
    }
}

/// A bundle beside the doctor's answer: JSON stays JSON, and the exit status is the answer's.
#[test]
fn a_bundle_with_the_answer() {
    let board = boards().into_iter().find(|b| b.ends_with("rk3588-stock")).unwrap();
    let out = tempfile::tempdir().unwrap();
    let file = out.path().join("b.tar.gz").display().to_string();
    let root = board.display().to_string();
    let words = ["doctor", "--json", "--bundle", &file, "--root", &root].map(str::to_owned);
    let output = rocketctl(&words);
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.starts_with("wrote ") && words.contains("Taken out are host name"), "{words}");
    assert_eq!(said(Path::new(&file)).1["verdict"], json["verdict"]);
    let again = rocketctl(&["report".to_owned(), file.clone(), "--root".to_owned(), root]);
    let words = String::from_utf8(again.stderr).unwrap();
    assert!(again.status.code() == Some(2) && words.contains("is there already"), "{words}");
    let no_report = out.path().join("no.tar.gz");
    fs::write(&no_report, "no").unwrap();
    let words = ["doctor".to_owned(), "--root".to_owned(), no_report.display().to_string()];
    let refused = rocketctl(&words);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("is no report of rocketctl"));
    // A check of something that nobody named has no answer, and is not well.
    let alone = ["doctor", "--only", "access.service", "--root", &board.display().to_string()]
        .map(str::to_owned);
    let alone = rocketctl(&alone);
    assert_eq!(alone.status.code(), Some(2), "{alone:?}");
}
