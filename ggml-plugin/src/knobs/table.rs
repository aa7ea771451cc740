//! What one variable is: the form of the table in `entries`.

/// One variable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Knob {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Default, as one would write it; empty for none.
    pub default: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// The heading it stands under.
    pub group: Group,
    /// Whether it does something yet.
    pub status: Status,
}

impl Knob {
    /// The key of a configuration file: the name without `ROCKET_`, in lower case.
    pub fn key(&self) -> String {
        self.name.trim_start_matches(PREFIX).to_ascii_lowercase()
    }
}

/// What every name begins with.
pub const PREFIX: &str = "ROCKET_";

/// Headings of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Which NPU, and what the plugin says about it.
    Plugin,
    /// How the NPU is driven.
    Operating,
    /// Which product goes where.
    Routing,
    /// Weights kept on the NPU.
    Memory,
    /// Mixture of experts.
    Experts,
    /// Flash attention.
    Attention,
    /// The RK3576's own.
    Rk3576,
    /// For people who look for faults.
    Diagnostics,
}

impl Group {
    /// In the order of the reference.
    pub const ALL: [Group; 8] = [
        Group::Plugin,
        Group::Operating,
        Group::Routing,
        Group::Memory,
        Group::Experts,
        Group::Attention,
        Group::Rk3576,
        Group::Diagnostics,
    ];

    /// The heading.
    pub fn title(self) -> &'static str {
        match self {
            Group::Plugin => "The plugin",
            Group::Operating => "Driving the NPU",
            Group::Routing => "Routing",
            Group::Memory => "Memory",
            Group::Experts => "Experts",
            Group::Attention => "Attention",
            Group::Rk3576 => "RK3576",
            Group::Diagnostics => "Diagnostics",
        }
    }
}

/// Whether a variable does something yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It does what its help says.
    Now,
    /// The name is kept for what this names; setting it has no effect and is answered by a line.
    Later(&'static str),
}

/// What a variable holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A whole number in an inclusive range.
    Int {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A whole number in an inclusive range, or one word.
    IntOr {
        /// The word.
        word: &'static str,
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A number in an inclusive range.
    Real {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
    },
    /// 0 or 1 (also off/on, no/yes, false/true).
    Flag,
    /// On by being there, whatever it holds, even nothing (ggml-plugin-behaviour 10).
    Presence,
    /// One of these words; 0 and 1 may be written as a flag's.
    Word(&'static [&'static str]),
    /// `auto`, 0 for off, 1 for on as in `auto`, or megabytes.
    Residency,
    /// `auto`, `off`, or CPU numbers as in `4-7` or `4,5,6,7`.
    Cores,
    /// A file.
    Path,
    /// 0, 1, or a folder.
    Folder,
    /// Any text.
    Name,
}

/// Megabytes of 1 TiB: more than any board has, and no overflow when it becomes bytes.
pub(super) const MAX_MB: u64 = 1 << 20;
/// Largest number of a CPU.
pub(super) const MAX_CPU: usize = 1023;

impl Kind {
    /// The range in words.
    pub fn range(&self) -> String {
        match self {
            Kind::Int { min, max } => format!("{min}..{max}"),
            Kind::IntOr { word, min, max } => format!("{word} or {min}..{max}"),
            Kind::Real { min, max } => format!("{min}..{max}"),
            Kind::Flag => "0 or 1".to_owned(),
            Kind::Presence => "set or not".to_owned(),
            Kind::Word(words) => words.join(", "),
            Kind::Residency => format!("auto, 0, 1 or 2..{MAX_MB}"),
            Kind::Cores => format!("auto, off or CPUs of 0..{MAX_CPU} such as 4-7"),
            Kind::Path => "a path".to_owned(),
            Kind::Folder => "0, 1 or a folder".to_owned(),
            Kind::Name => "a name".to_owned(),
        }
    }
}
