//! Boards of `tests/boards`, and what people met with theirs, in variants.

mod access;
mod cases;
mod hostile;
mod hosts;
mod kernel;
mod models;
mod rules;
mod speed;

use super::finding::{Finding, Report, Status};
use super::{Options, checks, examine, look, opened};
pub use rules::well_formed;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

fn boards() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/boards")
}

/// A copy of a board that a case changes.
pub struct Board(tempfile::TempDir);

impl Board {
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn of(name: &str) -> Board {
        let dir = tempfile::tempdir().unwrap();
        copy(&boards().join(name), dir.path());
        Board(dir)
    }

    pub fn set(self, path: &str, bytes: impl AsRef<[u8]>) -> Board {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        self
    }

    fn link(self, path: &str, target: &str) -> Board {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink(target, path).unwrap();
        self
    }

    fn add(self, path: &str, text: &str) -> Board {
        let old = fs::read_to_string(self.0.path().join(path)).unwrap();
        self.set(path, old + text)
    }

    pub fn without(self, path: &str) -> Board {
        let path = self.0.path().join(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        self
    }

    /// What the doctor says, which must be well formed.
    fn ask(&self) -> Report {
        let report = examine(self.0.path()).unwrap();
        well_formed(&report);
        report
    }

    /// The same, with a service.
    fn ask_for(&self, service: &str) -> Report {
        let options = Options { as_service: Some(service.into()), ..Options::default() };
        let report = look(&opened(self.0.path()).unwrap(), &options).unwrap();
        well_formed(&report);
        report
    }

    /// Everything that is not well, by status.
    fn wrong(&self) -> Vec<String> {
        wrong(&self.ask())
    }

    /// The one finding with this id.
    fn finding(&self, id: &str) -> Finding {
        self.ask().findings.into_iter().find(|f| f.id == id).unwrap()
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_symlink() {
            symlink(fs::read_link(&path).unwrap(), to).unwrap();
        } else if kind.is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&path, &to);
        } else {
            // No links: what is tried here writes into files as they are.
            fs::copy(&path, &to).map(drop).unwrap();
        }
    }
}

fn wrong(report: &Report) -> Vec<String> {
    let word = |s: Status| format!("{s:?}").to_lowercase();
    let bad = |f: &&Finding| !matches!(f.status, Status::Ok | Status::Skipped);
    report.findings.iter().filter(bad).map(|f| format!("{} {}", word(f.status), f.id)).collect()
}

/// Beside each board lies what the doctor must find, and by that what it must not.
#[test]
fn every_board_has_its_findings_and_no_others() {
    let mut seen = 0;
    for entry in fs::read_dir(boards()).unwrap().flatten().filter(|e| e.path().is_dir()) {
        let report = examine(&entry.path()).unwrap();
        well_formed(&report);
        let expected = fs::read_to_string(entry.path().with_extension("findings")).unwrap();
        let expected: Vec<&str> = expected.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(
            wrong(&report),
            expected,
            "{}:\n{}",
            entry.path().display(),
            report.text(false, false)
        );
        let name = entry.file_name().to_string_lossy().into_owned();
        insta::assert_snapshot!(name.clone(), report.text(false, false));
        let json = Report { version: "", ..report.clone() };
        let json = serde_json::to_string_pretty(&json).unwrap();
        insta::assert_snapshot!(format!("{name}.json"), json);
        seen += 1;
    }
    assert!(seen >= 13, "{seen}");
}

#[test]
fn checks_depend_on_those_before_them() {
    for (i, check) in checks::ALL.iter().enumerate() {
        let before = |id: &str| checks::ALL[..i].iter().any(|c| c.id == id);
        assert!(check.after.iter().all(|id| before(id)), "{}", check.id);
        assert!(check.explain.len() > 60, "{}", check.id);
    }
}

/// What `verify` of a fix runs must not call a board ready whose check could not be made.
#[test]
fn one_check_alone() {
    let ids = |report: &Report| report.findings.iter().map(|f| f.id).collect::<Vec<_>>();
    let one = |board: &str, only: &str| {
        let only = [only.to_owned()];
        super::chosen(examine(&boards().join(board)).unwrap(), &only, &[])
    };
    let ready = one("rk3588-series", "speed.clock");
    assert_eq!((ids(&ready), ready.exit), (vec!["speed.clock"], 0));
    let skipped = one("rk3588s-nodes-disabled", "speed.clock");
    assert_eq!((ids(&skipped), skipped.exit), (vec!["kernel.dt-nodes", "speed.clock"], 1));
    well_formed(&skipped);
    let stock = examine(&boards().join("rk3588-stock")).unwrap();
    let less = super::chosen(stock, &[], &["speed.clock".to_owned()]);
    assert!(!ids(&less).contains(&"speed.clock") && less.exit == 1);
}

/// Names and bytes of a tree.
fn digest(dir: &Path) -> String {
    let mut all = String::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        let mut entries: Vec<_> = fs::read_dir(&dir).unwrap().flatten().map(|e| e.path()).collect();
        entries.sort();
        for e in entries {
            all += &format!("{} {:?}\n", e.display(), fs::read(&e).unwrap_or_default());
            if e.is_dir() && !e.is_symlink() {
                open.push(e);
            }
        }
    }
    all
}
