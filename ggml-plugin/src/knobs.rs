//! Every `ROCKET_*` variable in one table; the tools print the same table. A variable that is set
//! but empty counts as unset (ggml-plugin-behaviour 10).

use std::ffi::OsString;
use std::path::PathBuf;

/// One variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knob {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Default, as one would write it; empty for none.
    pub default: &'static str,
    /// One sentence.
    pub help: &'static str,
}

/// What a variable holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A whole number in an inclusive range.
    Int {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// 0 or 1 (also off/on, no/yes, false/true).
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A file.
    Path,
}

impl Kind {
    /// The range in words.
    pub fn range(&self) -> String {
        match self {
            Kind::Int { min, max } => format!("{min}..{max}"),
            Kind::Flag => "0 or 1".to_owned(),
            Kind::Word(words) => words.join(", "),
            Kind::Path => "a path".to_owned(),
        }
    }
}

/// Smallest row count that is ever accepted: below it even batched decode is slower on the NPU
/// (ggml-plugin-behaviour 3.5).
pub const MIN_M_FLOOR: u64 = 8;

const DEVICE: Knob = Knob {
    name: "ROCKET_DEVICE",
    kind: Kind::Word(&["sim", "none"]),
    default: "",
    help: "which NPU to use: unset for the board's own, sim for a simulated one, none for no NPU",
};
const MIN_M: Knob = Knob {
    name: "ROCKET_MIN_M",
    kind: Kind::Int { min: MIN_M_FLOOR, max: 1 << 20 },
    default: "128",
    help: "rows (tokens of a micro-batch) from which a matrix product runs on the NPU",
};
const N_THREADS: Knob = Knob {
    name: "ROCKET_N_THREADS",
    kind: Kind::Int { min: 1, max: 8 },
    default: "5",
    help: "worker files opened on the NPU node; each feeds one core at a time",
};
const CACHE_MB: Knob = Knob {
    name: "ROCKET_CACHE_MB",
    kind: Kind::Int { min: 0, max: 1 << 20 },
    default: "2048",
    help: "megabytes of packed weights kept resident; 0 for no limit",
};
const STATS: Knob = Knob {
    name: "ROCKET_STATS",
    kind: Kind::Flag,
    default: "0",
    help: "print routes, CPU redos and decline reasons when a context ends",
};
const REPORT: Knob = Knob {
    name: "ROCKET_REPORT",
    kind: Kind::Path,
    default: "",
    help: "write a JSON report of every op to this file when a context ends",
};

/// The table.
pub const KNOBS: &[Knob] = &[DEVICE, MIN_M, N_THREADS, CACHE_MB, STATS, REPORT];

/// Which NPU was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// The board's own.
    Real,
    /// A simulated one.
    Sim,
    /// None, on purpose.
    None,
    /// A word that means nothing here.
    Unknown(String),
}

/// The values of one process, read once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knobs {
    /// `ROCKET_DEVICE`.
    pub device: Device,
    /// `ROCKET_MIN_M`.
    pub min_m: usize,
    /// `ROCKET_N_THREADS`.
    pub n_threads: usize,
    /// `ROCKET_CACHE_MB` in bytes; `None` is no limit.
    pub cache_bytes: Option<u64>,
    /// `ROCKET_STATS`.
    pub stats: bool,
    /// `ROCKET_REPORT`.
    pub report: Option<PathBuf>,
    /// One sentence for each value that could not be taken as it is.
    pub warnings: Vec<String>,
}

impl Knobs {
    /// From this process's environment.
    pub fn from_env() -> Knobs {
        Knobs::read(|name| std::env::var_os(name))
    }

    /// From any source of variables.
    pub fn read(get: impl Fn(&str) -> Option<OsString>) -> Knobs {
        let get = |knob: &Knob| get(knob.name).filter(|v| !v.is_empty());
        let mut warnings = Vec::new();
        let mut int = |knob: &Knob| int(knob, get(knob), &mut warnings);
        let min_m = int(&MIN_M) as usize;
        let n_threads = int(&N_THREADS) as usize;
        let cache_mb = int(&CACHE_MB);
        let stats = flag(&STATS, get(&STATS), &mut warnings);
        let device = match get(&DEVICE).map(|v| v.to_string_lossy().into_owned()).as_deref() {
            None => Device::Real,
            Some("sim") => Device::Sim,
            Some("none") => Device::None,
            Some(other) => Device::Unknown(other.to_owned()),
        };
        Knobs {
            device,
            min_m,
            n_threads,
            cache_bytes: (cache_mb != 0).then_some(cache_mb << 20),
            stats,
            report: get(&REPORT).map(PathBuf::from),
            warnings,
        }
    }
}

/// A number: text that is none gives the default, one outside the range the nearest bound.
fn int(knob: &Knob, value: Option<OsString>, warnings: &mut Vec<String>) -> u64 {
    let Kind::Int { min, max } = knob.kind else { return 0 };
    let default = knob.default.parse().unwrap_or(min);
    let Some(text) = value.map(|v| v.to_string_lossy().into_owned()) else { return default };
    let trimmed = text.trim();
    // i128 also reads what is negative or far too large, so that it can be told apart from text.
    let taken = match trimmed.parse::<i128>() {
        Ok(n) => n.clamp(min.into(), max.into()) as u64,
        Err(_) => default,
    };
    if trimmed.parse() != Ok(taken) {
        let range = knob.kind.range();
        warnings.push(format!("{}={text:?} is not in {range}; using {taken}", knob.name));
    }
    taken
}

fn flag(knob: &Knob, value: Option<OsString>, warnings: &mut Vec<String>) -> bool {
    let Some(text) = value.map(|v| v.to_string_lossy().into_owned()) else { return false };
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "on" | "yes" | "true" => true,
        "0" | "off" | "no" | "false" => false,
        _ => {
            warnings.push(format!("{}={text:?} is neither 0 nor 1; using 0", knob.name));
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs(vars: &[(&str, &str)]) -> Knobs {
        Knobs::read(|n| vars.iter().find(|(k, _)| *k == n).map(|(_, v)| OsString::from(v)))
    }

    #[test]
    fn defaults_are_the_tables() {
        let k = knobs(&[]);
        assert_eq!((k.min_m, k.n_threads, k.cache_bytes), (128, 5, Some(2048 << 20)));
        assert_eq!((k.device, k.stats, k.report), (Device::Real, false, None));
        assert!(k.warnings.is_empty());
    }

    #[test]
    fn set_but_empty_is_unset() {
        let all: Vec<_> = KNOBS.iter().map(|k| (k.name, "")).collect();
        assert_eq!(knobs(&all), knobs(&[]));
    }

    #[test]
    fn numbers() {
        for (name, text, taken, warns) in [
            ("ROCKET_MIN_M", "32", 32, false),
            ("ROCKET_MIN_M", " 32 ", 32, false),
            ("ROCKET_MIN_M", "8", 8, false),
            ("ROCKET_MIN_M", "7", 8, true),
            ("ROCKET_MIN_M", "-1", 8, true),
            ("ROCKET_MIN_M", "99999999999999999999999", 1 << 20, true),
            ("ROCKET_MIN_M", "many", 128, true),
            ("ROCKET_N_THREADS", "8", 8, false),
            ("ROCKET_N_THREADS", "9", 8, true),
            ("ROCKET_N_THREADS", "0", 1, true),
        ] {
            let k = knobs(&[(name, text)]);
            let got = if name == "ROCKET_MIN_M" { k.min_m } else { k.n_threads };
            assert_eq!((got, !k.warnings.is_empty()), (taken, warns), "{name}={text}");
            assert!(k.warnings.iter().all(|w| w.contains(name) && w.contains(text)), "{k:?}");
        }
        assert_eq!(knobs(&[("ROCKET_CACHE_MB", "0")]).cache_bytes, None);
    }

    #[test]
    fn flags_and_words() {
        for (text, on, warns) in
            [("1", true, 0), ("ON", true, 0), ("0", false, 0), ("no", false, 0), ("2", false, 1)]
        {
            let k = knobs(&[("ROCKET_STATS", text)]);
            assert_eq!((k.stats, k.warnings.len()), (on, warns), "{text}");
        }
        assert_eq!(knobs(&[("ROCKET_DEVICE", "sim")]).device, Device::Sim);
        assert_eq!(knobs(&[("ROCKET_DEVICE", "none")]).device, Device::None);
        let k = knobs(&[("ROCKET_DEVICE", "gpu")]);
        assert_eq!(k.device, Device::Unknown("gpu".into()));
    }

    /// The default of each knob is inside its own range, and every help is one sentence.
    #[test]
    fn the_table_is_consistent() {
        for k in KNOBS {
            assert!(k.name.starts_with("ROCKET_") && !k.help.is_empty() && !k.help.ends_with('.'));
            if let Kind::Int { min, max } = k.kind {
                let d: u64 = k.default.parse().unwrap();
                assert!((min..=max).contains(&d), "{}", k.name);
            }
            assert!(!k.kind.range().is_empty());
        }
    }
}

#[cfg(test)]
mod readme {
    use super::*;

    /// The README's table is this one.
    #[test]
    fn readme_lists_every_knob_as_it_is() {
        let readme = include_str!("../../README.md");
        for k in KNOBS {
            let row = readme.lines().find(|l| l.starts_with(&format!("| `{}` |", k.name)));
            let row = row.unwrap_or_else(|| panic!("{} is not in the README", k.name));
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            assert_eq!(cells[2].replace('`', ""), k.kind.range(), "{}", k.name);
            if k.name != "ROCKET_DEVICE" {
                assert_eq!(cells[3], k.default, "{}", k.name);
            }
            assert_eq!(cells[4], k.help, "{}", k.name);
        }
        let rows = readme.lines().filter(|l| l.starts_with("| `ROCKET_")).count();
        assert_eq!(rows, KNOBS.len());
    }
}
