//! Reading vector files: addresses and words are hex strings, everything else plain JSON.

use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};

/// One vector file.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    pub value: Value,
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.file_name().unwrap_or_default().to_string_lossy())
    }
}

/// Every JSON file below `dir`, in order of name, read.
pub fn files_below(dir: &Path) -> Vec<File> {
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("readable file");
        let value =
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        File { path, value }
    };
    paths_below(dir).into_iter().map(read).collect()
}

/// Every JSON file below `dir`, in order of name.
pub fn paths_below(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(dir) = todo.pop() {
        let entries = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        for path in entries.map(|e| e.expect("readable entry").path()) {
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|e| e == "json") {
                out.push(path);
            }
        }
    }
    out.sort();
    out
}

impl File {
    pub fn text(&self, key: &str) -> Option<&str> {
        self.value[key].as_str()
    }

    pub fn words(&self) -> Vec<u64> {
        words(&self.value["words"])
    }
}

/// A number, or a hex string.
pub fn number(v: &Value) -> u64 {
    match v {
        Value::String(s) => u64::from_str_radix(s.trim_start_matches("0x"), 16)
            .unwrap_or_else(|_| panic!("{s:?} is not hex")),
        other => other.as_u64().unwrap_or_else(|| panic!("{other} is not a number")),
    }
}

pub fn usize_of(v: &Value) -> usize {
    number(v) as usize
}

pub fn u32_of(v: &Value) -> u32 {
    u32::try_from(number(v)).expect("32-bit value")
}

pub fn list(v: &Value) -> &[Value] {
    v.as_array().unwrap_or_else(|| panic!("{v} is not a list"))
}

pub fn words(v: &Value) -> Vec<u64> {
    list(v).iter().map(number).collect()
}

pub fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("hex bytes");
    assert!(hex.len().is_multiple_of(2));
    (0..hex.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex"))
        .collect()
}
