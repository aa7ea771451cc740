//! The live counters of hosts (docs/counters.md): finding them below a root path, and what `why` and `stats` share.

pub mod prometheus;
pub mod stats;
pub mod why;

use anyhow::{Context, Result};
use rocket_runtime::board::Root;
use rocket_runtime::telemetry::{Found, Keep, Life, Snapshot, clean, directories, scan};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Which processes, and what becomes of left-over files.
#[derive(Debug, Clone, clap::Args)]
pub struct Choice {
    /// Show the process with this number only, as it sees itself.
    #[arg(long, value_name = "P")]
    pub pid: Option<u32>,
    /// Leave the files of dead processes where they are. Without this those that are older than ten minutes are
    /// removed where this user may; below --root never.
    #[arg(long)]
    pub keep: bool,
}

/// What was found.
#[derive(Debug)]
pub struct Counters {
    /// Processes with figures.
    pub shown: Vec<(PathBuf, Snapshot)>,
    /// Files that are not shown, and why.
    pub refused: Vec<(PathBuf, String)>,
    /// Files of dead processes that were removed.
    pub removed: Vec<PathBuf>,
    /// Folders that were looked at.
    pub looked: Vec<PathBuf>,
    /// The one that was asked for.
    pid: Option<u32>,
    /// Whether ages can be told: not of a tree, whose clock is another one.
    live: bool,
}

/// Reads all three places of every user that can be seen.
///
/// # Errors
/// A root that is not there.
pub fn read(root: &Path, choice: &Choice) -> Result<Counters> {
    let live = Root::open(root).with_context(|| root.display().to_string())?.is_live();
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = own.filter(|dir| live && dir.is_absolute());
    let looked = directories(root, own.as_deref());
    let mut counters = Counters {
        shown: Vec::new(),
        refused: Vec::new(),
        removed: Vec::new(),
        looked,
        pid: choice.pid,
        live,
    };
    // Read before anything is removed: the last figures of the dead are worth a look.
    for Found { path, figures } in scan(&counters.looked) {
        match figures {
            Ok(snapshot) => counters.shown.push((path, snapshot)),
            Err(why) => counters.refused.push((path, why.to_string())),
        }
    }
    if live && !choice.keep {
        counters.removed = clean(&counters.looked, &Keep::default()).removed;
    }
    counters.shown.retain(|(_, s)| choice.pid.is_none_or(|pid| s.process.pid == pid));
    // The living first, then by number.
    counters.shown.sort_by_key(|(_, s)| (s.life == Life::Dead, s.process.pid));
    Ok(counters)
}

impl Counters {
    /// Where nothing was found: what was looked at, and what makes counters appear.
    pub fn nothing(&self) -> String {
        let who = match self.pid {
            Some(pid) => format!("process {pid} has no counters, or ended a while ago"),
            None => "no process has counters".to_owned(),
        };
        let looked: Vec<String> = self.looked.iter().map(|d| d.display().to_string()).collect();
        let looked = if looked.is_empty() {
            "none of their folders exists".into()
        } else {
            looked.join(", ")
        };
        format!(
            "{who} (looked in: {looked}).\n\
             A host has them once it computes with the plugin, unless ROCKET_COUNTERS is 0."
        )
    }
}

/// A reading in JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reading {
    pub value: Option<u64>,
    pub unit: String,
    pub source: &'static str,
    pub why: Option<String>,
    pub age_ms: Option<u64>,
}

/// One process in JSON.
#[derive(Debug, Serialize)]
pub struct Process<'a> {
    pub pid: u32,
    pub uid: u32,
    /// Tells it from others with this number, in other containers or times.
    pub id: String,
    /// `running`, `ended`, or `unknown`.
    pub state: &'static str,
    pub path: String,
    /// Since the figures were written.
    pub age: Reading,
    pub facts: std::collections::BTreeMap<&'a str, &'a str>,
}

/// Random digits of a process.
pub fn id_of(s: &Snapshot) -> String {
    s.process.id.iter().take(8).map(|b| format!("{b:02x}")).collect()
}

pub fn state(s: &Snapshot) -> &'static str {
    match s.life {
        Life::Alive => "running",
        Life::Dead => "ended",
        Life::Unknown(_) => "unknown",
    }
}

impl Counters {
    pub fn process<'a>(&self, path: &Path, s: &'a Snapshot) -> Process<'a> {
        let age = self.age_ms(s);
        Process {
            pid: s.process.pid,
            uid: s.process.uid,
            id: id_of(s),
            state: state(s),
            path: path.display().to_string(),
            age: Reading {
                value: age,
                unit: "ms".into(),
                source: "counters",
                why: age
                    .is_none()
                    .then(|| "written before this start of the machine, or elsewhere".into()),
                age_ms: None,
            },
            facts: s.facts.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect(),
        }
    }

    /// For JSON: the files that are not shown, each with its reason.
    pub fn refused_in_words(&self) -> Vec<[String; 2]> {
        let words = |(path, why): &(PathBuf, String)| [path.display().to_string(), why.clone()];
        self.refused.iter().map(words).collect()
    }

    /// Since the figures were written, where this machine's clock is the writer's.
    pub fn age_ms(&self, s: &Snapshot) -> Option<u64> {
        s.age().filter(|_| self.live).map(|ns| ns / 1_000_000)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use rocket_runtime::telemetry::{Directory, Image, Place, RowKey, TotalKind, Writer};

    pub const ALL: Choice = Choice { pid: None, keep: true };

    /// A tree with the counters of this process, whose writer must be kept for it to run.
    pub fn tree(fill: impl Fn(&mut Image)) -> (tempfile::TempDir, Writer) {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("run/rocket");
        std::fs::create_dir_all(&place).unwrap();
        let facts = [("program", "llama-cli"), ("models", "tiny \"q\".gguf"), ("driver", "rocket")];
        let writer = Writer::create(&[Directory::existing(&place)], &facts).unwrap();
        writer.update(fill);
        assert!(writer.publish());
        (dir, writer)
    }

    /// A product on the NPU, two that were declined, one redone, and totals.
    pub fn typical(image: &mut Image) {
        let row = |place, weight, k, n, rows, outcome| RowKey {
            place,
            op: "MUL_MAT",
            weight,
            k,
            n,
            rows,
            outcome,
        };
        image.count(
            &row(Place::Npu, "q4_k", 2048, 6144, 512, "fp16"),
            3,
            19_327_352_832,
            60_000_000,
        );
        image.count(&row(Place::Declined, "q4_k", 2048, 6144, 1, "too_few_rows"), 900, 0, 0);
        image.count(
            &row(Place::Declined, "q8_0", 512, 64, 512, "weight_not_in_host_memory"),
            7,
            0,
            0,
        );
        image.count(
            &row(Place::Redone, "f16", 512, 64, 512, "result_overflow"),
            1,
            16_777_216,
            2_000_000,
        );
        for (name, unit, kind, value) in [
            ("ops.fp16", "1", TotalKind::Counter, 3),
            ("npu.macs", "MAC", TotalKind::Counter, 20_000_000_000),
            ("time.pack", "ns", TotalKind::Counter, 1_500_000_000),
            ("bytes.resident", "B", TotalKind::Gauge, 25_165_824),
            ("asked.accepted_macs", "MAC", TotalKind::Counter, 300),
            ("asked.declined_macs", "MAC", TotalKind::Counter, 100),
        ] {
            let slot = image.total(name, unit, kind);
            image.set(slot, value);
        }
    }

    #[test]
    fn processes_below_a_root() {
        let (dir, writer) = tree(typical);
        let found = read(dir.path(), &ALL).unwrap();
        assert_eq!(found.shown.len(), 1);
        assert_eq!(state(&found.shown[0].1), "running");
        assert_eq!(found.age_ms(&found.shown[0].1), None, "a tree's clock is another one");
        let this = Choice { pid: Some(std::process::id()), keep: true };
        assert_eq!(read(dir.path(), &this).unwrap().shown.len(), 1);
        let other = Choice { pid: Some(1), keep: true };
        let none = read(dir.path(), &other).unwrap();
        let said = none.nothing();
        assert!(none.shown.is_empty() && said.contains("process 1 has no"), "{said}");
        drop(writer);
    }

    /// What is no file of counters is named with the reason; nothing below a root is removed.
    #[test]
    fn strangers_are_refused_and_stay() {
        let (dir, _writer) = tree(typical);
        let stranger = dir.path().join("run/rocket/rocket-counters-7-0123456789abcdef");
        std::fs::write(&stranger, vec![7u8; 200_000]).unwrap();
        let found = read(dir.path(), &Choice { pid: None, keep: false }).unwrap();
        assert_eq!((found.shown.len(), found.refused.len(), found.removed.len()), (1, 1, 0));
        assert!(stranger.exists());
    }

    #[test]
    fn no_processes_is_said_with_where_was_looked() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("dev/shm")).unwrap();
        let text = read(dir.path(), &ALL).unwrap().nothing();
        assert!(text.contains("dev/shm") && text.contains("ROCKET_COUNTERS"), "{text}");
        assert!(read(&dir.path().join("nowhere"), &ALL).is_err());
    }
}
