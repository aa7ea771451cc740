//! The journal of a run (docs/setup.md): a line of JSON for what is about to change, on the disk before it does.

use super::place::is_clean;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

/// Where journals are, a file `NNNN.jsonl` a run; old bytes are in `NNNN.d`.
pub const FOLDER: &str = "/var/lib/rocketctl/journal";
/// Version of the format.
pub const SCHEMA: u32 = 1;
/// Longest journal that is read.
const LIMIT: usize = 4 << 20;

/// A line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    Begin(Begin),
    /// What is about to be done.
    Do(Deed),
    /// All is done.
    End,
}

/// Which run this is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    pub schema: u32,
    /// The program's version.
    pub version: String,
    /// The plan's name.
    pub plan: String,
    /// The command that takes it back.
    pub undo: String,
    /// Seconds since 1970.
    pub time: u64,
    /// Folders that were made for the journal.
    pub made: Vec<String>,
}

/// One change: its number, which names the file of its old bytes, and its step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deed {
    pub n: u32,
    pub step: String,
    #[serde(flatten)]
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum What {
    /// Bytes and mode before and after; nothing where there is no file.
    File { path: String, old: Option<Print>, new: Option<Print> },
    /// A folder that was not there.
    Folder { path: String },
    /// A kernel's parameter, which no restart keeps.
    Set { path: String, old: String, new: String },
    /// A command, and the one that takes it back.
    Run { argv: Vec<String>, undo: Option<Vec<String>> },
}

/// A file, as far as it matters whether it is the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Print {
    pub bytes: u64,
    /// xxh3 of 128 bits, in hex: of changes, and not of malice.
    pub xxh3: String,
    pub mode: u32,
    /// User and group, where they were somebody's choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<(u32, u32)>,
}

impl Print {
    pub fn of(bytes: &[u8], mode: u32, owner: Option<(u32, u32)>) -> Print {
        let xxh3 = format!("{:032x}", XxHash3_128::oneshot(bytes));
        Print { bytes: bytes.len() as u64, xxh3, mode, owner }
    }

    /// Whether a file is this one. Who owns it is not asked: a copy of a system may be another user's.
    pub fn is(&self, other: &Print) -> bool {
        (self.bytes, &self.xxh3, self.mode) == (other.bytes, &other.xxh3, other.mode)
    }
}

/// A journal that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    pub begin: Begin,
    pub deeds: Vec<Deed>,
    /// Whether it says that all is done.
    pub ended: bool,
}

/// A line with its end.
pub fn line(record: &Record) -> serde_json::Result<String> {
    Ok(serde_json::to_string(record)? + "\n")
}

/// Reads a journal. None where not even the first line is whole: then nothing was done. A last line without its end
/// was being written when the power went, so what it says was not done either.
///
/// # Errors
/// What is no journal, or one of another schema.
pub fn parse(bytes: &[u8]) -> Result<Option<Journal>, String> {
    if bytes.len() > LIMIT {
        return Err(format!("longer than {} MiB", LIMIT >> 20));
    }
    let whole = &bytes[..bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1)];
    let text = std::str::from_utf8(whole).map_err(|_| "is no text")?;
    let mut journal: Option<Journal> = None;
    for (at, line) in text.lines().enumerate() {
        let record = serde_json::from_str(line).map_err(|e| format!("line {}: {e}", at + 1))?;
        let bad = |what: &str| Err(format!("line {}: {what}", at + 1));
        match (record, &mut journal) {
            (Record::Begin(begin), None) if begin.schema != SCHEMA => {
                return bad(&format!("schema {}; this program has {SCHEMA}", begin.schema));
            }
            (Record::Begin(begin), None) if !begin.made.iter().all(|p| is_clean(p)) => {
                return bad("a path");
            }
            (Record::Begin(begin), None) => {
                journal = Some(Journal { begin, deeds: Vec::new(), ended: false });
            }
            (Record::Do(deed), Some(j)) if !j.ended => {
                if deed.n as usize != j.deeds.len() + 1 {
                    return bad("a number out of order");
                }
                if !deed.what.path().is_none_or(is_clean) {
                    return bad("a path");
                }
                j.deeds.push(deed);
            }
            (Record::End, Some(j)) if !j.ended => j.ended = true,
            _ => return bad("a record out of order"),
        }
    }
    Ok(journal)
}

impl What {
    pub fn path(&self) -> Option<&str> {
        match self {
            What::File { path, .. } | What::Folder { path } | What::Set { path, .. } => Some(path),
            What::Run { .. } => None,
        }
    }
}
