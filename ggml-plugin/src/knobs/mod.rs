//! Every setting: the `ROCKET_*` variables and the configuration file, in one table; the tools
//! print the same table, and `docs/knobs.md` is it.
//!
//! The rules (ggml-plugin-behaviour 10): a variable that is set but empty counts as unset, except
//! for diagnostics that are on by being there; text that is no value leaves the default, a number
//! beyond its range is moved to the bound, and either is said in one line that names the variable,
//! the text, where it came from, the range and the value used. The environment wins over a
//! profile of the file, a profile over the file's `settings`.

mod entries;
mod file;
mod profile;
pub mod reference;
mod resolve;
mod suggest;
mod table;
#[cfg(test)]
mod tests;
pub mod value;

pub use entries::{KNOBS, MIN_M_FLOOR};
pub(crate) use profile::{command_line, models};
pub use table::{Group, Kind, Knob, PREFIX, Status};

use crate::route::{AttentionPolicy, ExpertsMode, ExpertsPolicy, Wanted};
use entries as e;
use file::Place;
use resolve::{Given, Origin, Values};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use value::Value;

/// Which NPU was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// The board's own.
    Real,
    /// A simulated one.
    Sim,
    /// None, on purpose.
    None,
    /// A word that means nothing here. It is no reason to take the board's: nobody who misspells
    /// `sim` wants that.
    Unknown(String),
}

/// How many bytes of packed weights may be resident: `ROCKET_CACHE_MB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// What available memory allows.
    Auto,
    /// So many bytes.
    Bytes(u64),
    /// No limit.
    Unlimited,
}

/// Whether weights of one class are kept resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residency {
    /// Within the budget.
    Auto,
    /// Never.
    Off,
    /// At most so many bytes, within the budget.
    Bytes(u64),
}

/// `ROCKET_CPU_AFFINITY`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Affinity {
    /// The big cores.
    Auto,
    /// Wherever the system puts a thread.
    Off,
    /// These CPUs, ascending, each once, at least one.
    Cores(Vec<usize>),
}

/// `ROCKET_VERIFY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// On a real board.
    Auto,
    /// Never.
    Off,
    /// On any board.
    On,
}

/// `ROCKET_CALIBRATE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calibrate {
    /// Once on a real board.
    Auto,
    /// Never.
    Off,
    /// Once on any board.
    On,
    /// Again, although it was measured.
    Force,
}

/// `ROCKET_COUNTERS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counters {
    /// None.
    Off,
    /// Where tools look for them.
    On,
    /// In this folder.
    In(PathBuf),
}

/// `ROCKET_PACKED_DIR`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packed {
    /// Nothing is kept.
    Off,
    /// In the user's cache.
    On,
    /// In this folder.
    In(PathBuf),
}

/// `ROCKET_LOG_LEVEL`: the least important lines that are written. Ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Every line.
    Debug,
    /// What was found and done.
    Info,
    /// What did not go as asked.
    Warn,
    /// What failed.
    Error,
}

/// The values of one process, read once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knobs {
    /// `ROCKET_DEVICE`.
    pub device: Device,
    /// `ROCKET_MIN_M`, at least [`MIN_M_FLOOR`].
    pub min_m: usize,
    /// `ROCKET_MIN_M_QUANT`, at least `min_m`.
    pub min_m_quant: usize,
    /// Whether the user gave a threshold: then no measured one takes its place.
    pub min_m_given: bool,
    /// `ROCKET_FLASH_ATTN` and its thresholds.
    pub attention: AttentionPolicy,
    /// `ROCKET_MOE` and its thresholds.
    pub experts: ExpertsPolicy,
    /// `ROCKET_MOE_CACHE_MB`.
    pub moe_cache: Budget,
    /// `ROCKET_MOE_WAIT`.
    pub moe_wait: bool,
    /// `ROCKET_PACKED_DIR`.
    pub packed: Packed,
    /// `ROCKET_PACKED_MB`: `None` for half of what is free.
    pub packed_bytes: Option<u64>,
    /// `ROCKET_N_THREADS`, 1..8.
    pub n_threads: usize,
    /// `ROCKET_CACHE_MB`.
    pub cache: Budget,
    /// `ROCKET_QUANT_RESIDENT_RESERVE_MB`: bytes of available memory left to everything else;
    /// `None` for max(1024 MB, 25 % of RAM) with an automatic budget.
    pub reserve: Option<u64>,
    /// `ROCKET_QUANT_RESIDENT`.
    pub quant_resident: Residency,
    /// `ROCKET_F16_RESIDENT`.
    pub f16_resident: Residency,
    /// `ROCKET_NO_PREPACK`: nothing is resident, whatever the others say.
    pub no_prepack: bool,
    /// Not `ROCKET_NO_FUSE`: products of one activation run together.
    pub fuse: bool,
    /// `ROCKET_BF16`, `ROCKET_INT8`, `ROCKET_INT4` and what belongs to them; `native` is not decided
    /// here.
    pub wanted: Wanted,
    /// `ROCKET_QUANT_INT8`; `None` where it depends on what fits.
    pub quant_int8: Option<bool>,
    /// `ROCKET_DEQUANT_THREADS`; `None` for as many as there are big cores.
    pub dequant_threads: Option<usize>,
    /// `ROCKET_CPU_AFFINITY`.
    pub affinity: Affinity,
    /// `ROCKET_VERIFY`.
    pub verify: Verify,
    /// `ROCKET_CALIBRATE`.
    pub calibrate: Calibrate,
    /// `ROCKET_ABI=adapt`.
    pub abi_adapt: bool,
    /// `ROCKET_STATS`.
    pub stats: bool,
    /// `ROCKET_COUNTERS`.
    pub counters: Counters,
    /// `ROCKET_REPORT`.
    pub report: Option<PathBuf>,
    /// `ROCKET_LOG_STDERR`.
    pub log_stderr: bool,
    /// `ROCKET_LOG_LEVEL`, or debug with `ROCKET_DEBUG`.
    pub log_level: LogLevel,
    /// One sentence for each setting that could not be taken as it is, is not known, or has no
    /// effect yet.
    pub warnings: Vec<String>,
    /// What else is worth a line: the configuration file and the profiles that apply.
    pub notes: Vec<String>,
}

impl Knobs {
    /// From this process's environment and the configuration file.
    pub fn from_env() -> Knobs {
        let variables: Vec<_> = std::env::vars_os().collect();
        let words = profile::command_line();
        Knobs::from_parts(&variables, &words, &file::read)
    }

    /// From another process's environment, with a way to read the configuration file that it names.
    pub fn of_environment(
        variables: &[(OsString, OsString)],
        read: &dyn Fn(&Path) -> io::Result<Option<Vec<u8>>>,
    ) -> Knobs {
        Knobs::from_parts(variables, &[], read)
    }

    /// From variables alone, as `get` has them; no file and no unknown names.
    pub fn read(get: impl Fn(&str) -> Option<OsString>) -> Knobs {
        let given = KNOBS
            .iter()
            .filter_map(|k| Some((k, Given { text: get(k.name)?, origin: Origin::Environment })));
        Knobs::resolve(given.collect(), Vec::new(), Vec::new())
    }

    /// From an environment, the words of a command line, and a way to read files.
    fn from_parts(
        variables: &[(OsString, OsString)],
        words: &[OsString],
        read: file::Read<'_>,
    ) -> Knobs {
        let mut warnings = Vec::new();
        let mut notes = Vec::new();
        let environment = resolve::environment(variables, &mut warnings);
        let mut given = match file::find(&Place::of(variables), read, &mut warnings) {
            Some(loaded) => loaded.apply(variables, words, &mut warnings, &mut notes),
            None => {
                if let Some(name) = profile::named(variables) {
                    warnings
                        .push(format!("ROCKET_PROFILE={name:?}: there is no configuration file"));
                }
                Vec::new()
            }
        };
        given.extend(environment);
        Knobs::resolve(given, warnings, notes)
    }

    /// `given` in ascending order of precedence.
    fn resolve(
        given: Vec<(&'static Knob, Given)>,
        mut warnings: Vec<String>,
        notes: Vec<String>,
    ) -> Knobs {
        let device = resolve::last(&given, &e::DEVICE).map(|g| g.text.to_string_lossy());
        let device = match device.as_deref().map(|w| w.trim().to_ascii_lowercase()).as_deref() {
            None => Device::Real,
            Some("sim") => Device::Sim,
            Some("none") => Device::None,
            Some(_) => Device::Unknown(device.unwrap_or_default().into_owned()),
        };
        let v = Values::of(&given, &mut warnings);
        let min_m = v.int(&e::MIN_M) as usize;
        let mut min_m_quant = v.int(&e::MIN_M_QUANT) as usize;
        if min_m_quant < min_m {
            if let Some(g) = resolve::last(&given, &e::MIN_M_QUANT) {
                let said = g.named(&e::MIN_M_QUANT);
                warnings.push(format!("{said} is below ROCKET_MIN_M; using {min_m}"));
            }
            min_m_quant = min_m;
        }
        let is_given = |knob| resolve::last(&given, knob).is_some();
        let min_m_given = is_given(&e::MIN_M) || is_given(&e::MIN_M_QUANT);
        let cache = match v.int_or_none(&e::CACHE_MB) {
            None => Budget::Auto,
            Some(0) => Budget::Unlimited,
            Some(mb) => Budget::Bytes(mb << 20),
        };
        let residency = |knob| match v.int_or_none(knob) {
            None | Some(1) => Residency::Auto,
            Some(0) => Residency::Off,
            Some(mb) => Residency::Bytes(mb << 20),
        };
        Knobs {
            device,
            min_m,
            min_m_quant,
            min_m_given,
            attention: AttentionPolicy {
                on: v.flag(&e::FLASH_ATTN),
                min_kv: v.int(&e::FLASH_ATTN_MIN_KV) as usize,
                min_tokens: v.int(&e::FLASH_ATTN_MIN_T) as usize,
                unmasked: v.flag(&e::FLASH_ATTN_UNMASKED),
            },
            experts: ExpertsPolicy {
                mode: match v.word(&e::MOE) {
                    "0" => ExpertsMode::Off,
                    "1" => ExpertsMode::Forced,
                    _ => ExpertsMode::Auto,
                },
                native: v.flag(&e::MOE_NATIVE),
                min_tokens: v.int(&e::MOE_MIN_TOKENS) as usize,
                min_rows: v.int(&e::MOE_M_BUCKET) as usize,
                min_work: v.int(&e::MOE_MIN_WORK) * 1_000_000,
                group: v.int_or_none(&e::MOE_GROUP).map(|g| g as usize),
            },
            moe_cache: match v.int_or_none(&e::MOE_CACHE_MB) {
                None => Budget::Auto,
                Some(0) => Budget::Unlimited,
                Some(mb) => Budget::Bytes(mb << 20),
            },
            moe_wait: v.flag(&e::MOE_WAIT),
            packed: match v.get(&e::PACKED_DIR) {
                Some(Value::Path(path)) => Packed::In(path.clone()),
                Some(Value::Flag(false)) => Packed::Off,
                _ => Packed::On,
            },
            packed_bytes: match v.int_or_none(&e::PACKED_MB) {
                Some(0) => Some(u64::MAX),
                mb => mb.map(|mb| mb << 20),
            },
            n_threads: v.int(&e::N_THREADS) as usize,
            cache,
            reserve: v.int_or_none(&e::QUANT_RESIDENT_RESERVE_MB).map(|mb| mb << 20),
            quant_resident: residency(&e::QUANT_RESIDENT),
            f16_resident: residency(&e::F16_RESIDENT),
            no_prepack: v.flag(&e::NO_PREPACK),
            fuse: !v.flag(&e::NO_FUSE),
            wanted: Wanted {
                bf16: v.flag(&e::BF16),
                int8: v.flag(&e::INT8).then(|| v.flag(&e::INT8_HADAMARD)),
                int4: v
                    .flag(&e::INT4)
                    .then(|| (v.int(&e::INT4_GROUP) as usize, v.flag(&e::INT4_HADAMARD))),
                native: false,
            },
            quant_int8: match v.word(&e::QUANT_INT8) {
                "0" => Some(false),
                "1" => Some(true),
                _ => None,
            },
            dequant_threads: v.int_or_none(&e::DEQUANT_THREADS).map(|n| n as usize),
            affinity: match v.get(&e::CPU_AFFINITY) {
                Some(Value::Cores(cores)) => Affinity::Cores(cores.clone()),
                Some(Value::Word("off")) => Affinity::Off,
                _ => Affinity::Auto,
            },
            verify: match v.word(&e::VERIFY) {
                "0" => Verify::Off,
                "1" => Verify::On,
                _ => Verify::Auto,
            },
            calibrate: match v.word(&e::CALIBRATE) {
                "0" => Calibrate::Off,
                "1" => Calibrate::On,
                "force" => Calibrate::Force,
                _ => Calibrate::Auto,
            },
            abi_adapt: v.word(&e::ABI) == "adapt",
            stats: v.flag(&e::STATS),
            counters: match v.get(&e::COUNTERS) {
                Some(Value::Path(path)) => Counters::In(path.clone()),
                Some(Value::Flag(false)) => Counters::Off,
                _ => Counters::On,
            },
            report: match v.get(&e::REPORT) {
                Some(Value::Path(path)) => Some(path.clone()),
                _ => None,
            },
            log_stderr: v.flag(&e::LOG_STDERR),
            log_level: match v.word(&e::LOG_LEVEL) {
                // The level that was asked for by name wins over the plain switch.
                _ if v.flag(&e::DEBUG) && resolve::last(&given, &e::LOG_LEVEL).is_none() => {
                    LogLevel::Debug
                }
                "error" => LogLevel::Error,
                "warn" => LogLevel::Warn,
                "debug" => LogLevel::Debug,
                _ => LogLevel::Info,
            },
            warnings,
            notes,
        }
    }
}
