//! From how many rows on the NPU is faster, measured once a machine and kept.
//!
//! `supports_op` must not change its answers while a process runs (ggml-abi 6), so what is
//! measured serves from the next start on. Until then, and wherever it was not measured, the
//! fixed defaults hold.

use crate::route::Dtype;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Rows at which both are timed, as far as the product at hand has them.
pub const ROWS: &[usize] = &[8, 16, 24, 32, 48, 64, 96, 128, 192, 256];

/// Seconds that one product of so many rows took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// Rows.
    pub rows: usize,
    /// On the host's CPU backend.
    pub cpu: f64,
    /// On the NPU, its weight packed by the op that went before if there was room.
    pub npu: f64,
}

/// The smallest multiple of 4 from which on the NPU wins at every larger measured count: between
/// the last count that it loses and the first that it wins, where the straight lines cross. `None`
/// when it loses at the largest.
pub fn crossover(timings: &[Timing]) -> Option<usize> {
    let wins = |t: &Timing| t.npu <= t.cpu;
    let first = timings.iter().rposition(|t| !wins(t)).map_or(0, |i| i + 1);
    let won = timings.get(first)?;
    let Some(lost) = first.checked_sub(1).and_then(|i| timings.get(i)) else {
        return Some(won.rows);
    };
    let (behind, ahead) = (lost.npu - lost.cpu, won.cpu - won.npu);
    let part = behind / (behind + ahead).max(f64::MIN_POSITIVE);
    let rows = lost.rows as f64 + part * (won.rows - lost.rows) as f64;
    Some((rows.ceil() as usize).next_multiple_of(4).min(won.rows))
}

/// What is kept where the NPU lost at every count up to `last` rows: it is not given up, because
/// a measurement may have met a board that was hot or busy, but has twice as many to prove itself.
pub fn lost(last: usize) -> usize {
    last * 2
}

/// Weight classes with a threshold each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// F16, F32, BF16.
    Float,
    /// All others.
    Quantized,
}

impl Class {
    /// Of a weight's type.
    pub fn of(dtype: Dtype) -> Class {
        if dtype.is_quantized() { Class::Quantized } else { Class::Float }
    }
}

/// What is known of one machine: rows, `None` when not measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thresholds {
    /// F16, F32 and BF16 weights.
    pub float: Option<usize>,
    /// Quantized weights.
    pub quantized: Option<usize>,
}

impl Thresholds {
    /// That of a class.
    pub fn get(&self, class: Class) -> Option<usize> {
        match class {
            Class::Float => self.float,
            Class::Quantized => self.quantized,
        }
    }

    fn set(&mut self, class: Class, rows: usize) {
        match class {
            Class::Float => self.float = Some(rows),
            Class::Quantized => self.quantized = Some(rows),
        }
    }
}

/// The file: a version, and thresholds by machine (a home folder may be shared).
#[derive(Debug, Default, Serialize, Deserialize)]
struct File {
    schema: u32,
    machines: BTreeMap<String, Thresholds>,
}

const SCHEMA: u32 = 1;

/// Where thresholds are kept.
#[derive(Debug, Clone)]
pub struct Store {
    path: Option<PathBuf>,
    machine: String,
}

impl Store {
    /// In the user's cache folder; without a home nothing is kept.
    pub fn of(get: impl Fn(&str) -> Option<std::ffi::OsString>, machine: String) -> Store {
        let dir = |name: &str| get(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let cache = dir("XDG_CACHE_HOME").filter(|d| d.is_absolute());
        let cache = cache.or_else(|| dir("HOME").map(|h| h.join(".cache")));
        Store { path: cache.map(|c| c.join("ggml-rocket/crossover.json")), machine }
    }

    /// What is known of this machine. A file that cannot be read or understood says nothing: it
    /// is measured again.
    pub fn load(&self) -> Thresholds {
        self.path
            .as_deref()
            .and_then(read)
            .and_then(|f| f.machines.get(&self.machine).copied())
            .unwrap_or_default()
    }

    /// Keeps one more threshold; the file is replaced whole.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn keep(&self, class: Class, rows: usize) -> std::io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        // Two contexts may finish at once: one after the other, or one's threshold is lost.
        static WRITING: Mutex<()> = Mutex::new(());
        let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = read(path).unwrap_or_default();
        file.schema = SCHEMA;
        file.machines.entry(self.machine.clone()).or_default().set(class, rows);
        let dir = path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(dir)?;
        let temporary = path.with_extension(format!("json.{}", std::process::id()));
        std::fs::write(&temporary, serde_json::to_vec_pretty(&file)?)?;
        std::fs::rename(&temporary, path)
    }
}

fn read(path: &Path) -> Option<File> {
    let file: File = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    (file.schema == SCHEMA).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(cpu_row: f64, npu_row: f64, npu_fixed: f64) -> Vec<Timing> {
        let at = |&rows: &usize| Timing {
            rows,
            cpu: cpu_row * rows as f64,
            npu: npu_fixed + npu_row * rows as f64,
        };
        ROWS.iter().map(at).collect()
    }

    #[test]
    fn where_the_lines_cross() {
        // 1 ms a row against 10 ms + 0.5 ms a row: 20 rows.
        assert_eq!(crossover(&lines(1.0, 0.5, 10.0)), Some(20));
        assert_eq!(crossover(&lines(1.0, 0.5, 0.0)), Some(8), "ahead everywhere");
        assert_eq!(crossover(&lines(1.0, 2.0, 0.0)), None, "never ahead");
        assert_eq!(crossover(&[]), None);
        // A lucky measurement below does not count.
        let mut odd = lines(1.0, 0.5, 10.0);
        odd[0].npu = 0.0;
        assert_eq!(crossover(&odd), Some(20));
    }

    proptest! {
        /// For straight lines the answer is their crossing, rounded up to the next multiple of 4.
        #[test]
        fn agrees_with_geometry(npu_row in 0.05f64..0.9, rows in 9.0f64..250.0) {
            let fixed = rows * (1.0 - npu_row);
            let got = crossover(&lines(1.0, npu_row, fixed)).unwrap() as f64;
            prop_assert!(got >= rows - 1e-6 && got < rows + 4.0 + 1e-6, "{got} {rows}");
        }
    }

    #[test]
    fn kept_by_machine_and_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let env = |name: &str| (name == "XDG_CACHE_HOME").then(|| dir.path().into());
        let (a, b) = (Store::of(env, "a".into()), Store::of(env, "b".into()));
        assert_eq!(a.load(), Thresholds::default());
        a.keep(Class::Float, 24).unwrap();
        b.keep(Class::Quantized, 60).unwrap();
        a.keep(Class::Quantized, 44).unwrap();
        assert_eq!(a.load(), Thresholds { float: Some(24), quantized: Some(44) });
        assert_eq!(b.load().get(Class::Quantized), Some(60));
        let path = dir.path().join("ggml-rocket/crossover.json");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        for broken in ["", "{", "[]", "{\"schema\":2,\"machines\":{}}", "\u{0}"] {
            std::fs::write(&path, broken).unwrap();
            assert_eq!(a.load(), Thresholds::default(), "{broken:?}");
        }
        a.keep(Class::Float, 16).unwrap();
        assert_eq!(a.load().float, Some(16));
    }

    #[test]
    fn without_a_home_nothing_is_kept() {
        let s = Store::of(|_| None, "m".into());
        s.keep(Class::Float, 16).unwrap();
        assert_eq!(s.load(), Thresholds::default());
    }
}
