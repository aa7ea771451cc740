//! A value, or why there is none.

use std::fmt;
use std::io;

/// A value, or why there is none.
pub type Reading<T> = std::result::Result<T, Absent>;

/// Why a reading has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absent {
    /// The path, from the root on.
    pub path: String,
    /// What came of it.
    pub why: Why,
}

/// What came of a reading without a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// There is no such file.
    Missing,
    /// It may not be read by this user.
    Denied,
    /// It is there, and is not what it should be.
    Malformed(String),
    /// Reading it took longer than the tools wait (a stuck driver, a network file system).
    Late,
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::Missing => write!(f, "no {}", self.path),
            Why::Denied => write!(f, "{} may not be read (try as root)", self.path),
            Why::Malformed(what) => write!(f, "{}: {what}", self.path),
            Why::Late => write!(f, "{} did not answer within 3 s", self.path),
        }
    }
}

/// The reason in what the system said.
pub(super) fn why(e: &io::Error) -> Why {
    match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Why::Missing,
        io::ErrorKind::PermissionDenied => Why::Denied,
        _ => Why::Malformed(e.to_string()),
    }
}

/// The reasons that a tree's `cmd/absent.txt` has, a line each: `denied PATH`, `late PATH`, `malformed PATH: WORDS`.
pub(super) fn parse_absent(text: &str) -> Vec<Absent> {
    let line = |line: &str| {
        let (word, rest) = line.split_once(' ')?;
        let (path, what) = rest.split_once(": ").unwrap_or((rest, "not what it should be"));
        let why = match word {
            "denied" => Why::Denied,
            "late" => Why::Late,
            "malformed" => Why::Malformed(what.to_owned()),
            _ => return None,
        };
        Some(Absent { path: path.to_owned(), why })
    };
    text.lines().filter_map(line).collect()
}

/// The line for it. What is missing has none: its file is missing in the tree as well.
pub(super) fn absent_line(absent: &Absent) -> Option<String> {
    let Absent { path, why } = absent;
    match why {
        Why::Missing => None,
        Why::Denied => Some(format!("denied {path}")),
        Why::Late => Some(format!("late {path}")),
        Why::Malformed(what) => Some(format!("malformed {path}: {}", what.replace('\n', " "))),
    }
}
