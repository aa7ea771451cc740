use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Which driver the board runs (kernel-and-uapi A.1, A.4, A.5). The names that [`FromStr`] takes
/// are those that [`DriverProfile::name`] gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum DriverProfile {
    /// Mainline 6.18 and 6.19, version 0.0: as [`Stock`](DriverProfile::Stock), and PREP_BO leaks
    /// a positive number when it succeeds (A.4, B.6 F6).
    Stock618,
    /// Mainline from 7.1, version 0.0: malformed jobs are dropped in silence, flags are ignored.
    #[default]
    Stock,
    /// Descriptors may grow, and the error of a malformed job is returned.
    V1_0,
    /// The job grew flags; it may be batched. The public RK3588 series.
    V1_1,
    /// The flag NO_DPU_DONE is known.
    V1_2,
    /// The flag PPU_DONE is known.
    V1_3,
    /// No new interface.
    V1_4,
    /// PREP_BO and FINI_BO of ranges.
    V1_5,
    /// No new interface.
    V1_6,
    /// This project's full patch series, 1.7.
    Full,
}

use DriverProfile::{Full, Stock, Stock618, V1_0, V1_1, V1_2, V1_3, V1_4, V1_5, V1_6};

impl DriverProfile {
    /// Every profile, oldest first.
    pub const ALL: [DriverProfile; 10] =
        [Stock618, Stock, V1_0, V1_1, V1_2, V1_3, V1_4, V1_5, V1_6, Full];

    /// Its name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Stock618 => "stock-6.18",
            Stock => "stock",
            V1_0 => "1.0",
            V1_1 => "1.1",
            V1_2 => "1.2",
            V1_3 => "1.3",
            V1_4 => "1.4",
            V1_5 => "1.5",
            V1_6 => "1.6",
            Full => "full",
        }
    }

    /// What it is, in words.
    pub const fn describe(self) -> &'static str {
        match self {
            Stock618 => "mainline 6.18 and 6.19, whose PREP_BO leaks positive numbers",
            Stock => "mainline from 7.1 on, unpatched: job errors are swallowed",
            V1_0 => "job descriptors may grow, job errors are returned",
            V1_1 => "batched jobs; the public RK3588 patch series",
            V1_2 => "job flag NO_DPU_DONE",
            V1_3 => "job flag PPU_DONE",
            V1_4 => "no new interface over 1.3",
            V1_5 => "PREP_BO and FINI_BO of ranges",
            V1_6 => "no new interface over 1.5",
            Full => "this project's full patch series (1.7)",
        }
    }

    /// Major and minor version that DRM_IOCTL_VERSION reports.
    pub const fn version(self) -> (u32, u32) {
        match self {
            Stock618 | Stock => (0, 0),
            V1_0 => (1, 0),
            V1_1 => (1, 1),
            V1_2 => (1, 2),
            V1_3 => (1, 3),
            V1_4 => (1, 4),
            V1_5 => (1, 5),
            V1_6 => (1, 6),
            Full => (1, 7),
        }
    }

    /// An unpatched mainline driver.
    pub const fn is_stock(self) -> bool {
        matches!(self, Stock618 | Stock)
    }

    /// Whether a malformed job's error reaches the caller (A.5).
    pub const fn reports_job_errors(self) -> bool {
        !self.is_stock()
    }

    /// Bytes of the job descriptor that this driver knows (A.2).
    pub fn job_bytes(self) -> u64 {
        if self >= V1_1 { 48 } else { 40 }
    }

    /// Job flags that are not refused (A.6). A driver without flags never looks at them.
    pub fn known_flags(self) -> u32 {
        match self.version().1 {
            0 => 0,
            1 => 0b1,
            2 => 0b11,
            _ => 0b111,
        }
    }

    /// Rest after which a core loses its power (kernel-and-uapi C.2, 081).
    pub fn autosuspend(self) -> Duration {
        Duration::from_millis(if self.is_stock() { 50 } else { 1000 })
    }

    /// Whether it counts each core's busy time (kernel-and-uapi C.4, P2).
    pub fn has_usage(self) -> bool {
        self == Full
    }

    /// Whether a job can be batched: the driver knows the flag (A.6).
    pub fn batches(self) -> bool {
        self >= V1_1
    }

    /// Whether the ranged cache ioctls exist (A.4).
    pub fn has_ranges(self) -> bool {
        self >= V1_5
    }

    /// Whether PREP_BO returns what is left of its time (B.6 F6).
    pub const fn leaks_remaining_time(self) -> bool {
        matches!(self, Stock618)
    }
}

impl fmt::Display for DriverProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DriverProfile {
    type Err = String;

    fn from_str(s: &str) -> Result<DriverProfile, String> {
        // 1.7 is the version that the full series reports.
        let wanted = if s == "1.7" { "full" } else { s };
        let found = DriverProfile::ALL.into_iter().find(|p| p.name() == wanted);
        found.ok_or_else(|| {
            let names: Vec<&str> = DriverProfile::ALL.iter().map(|p| p.name()).collect();
            format!("no driver profile is called '{s}'; there are {}", names.join(", "))
        })
    }
}
