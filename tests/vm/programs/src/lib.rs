//! What the two programs have in common.

use std::path::Path;

/// Where `npu` says what it did.
pub const STATUS: &str = "/run/npu.status";

/// While this file is there, the next kick hangs, and takes it away.
pub const HANG: &str = "/run/npu.hang";

/// What the simulated NPU did so far; in the file, a word and its figures a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Status {
    /// Kicks of each core that came to their end.
    pub kicks: [u64; 3],
    /// Kicks that hang, of those wanted and those not.
    pub hangs: u64,
    /// Longest kick that came to its end, in real ms of this machine.
    pub longest_ms: u64,
}

impl Status {
    /// The status as `npu` wrote it last; all zero where it wrote none.
    pub fn read(path: &Path) -> Status {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let figures = |word: &str| -> Vec<u64> {
            let line = text.lines().find_map(|l| l.strip_prefix(word)).unwrap_or_default();
            line.split_whitespace().filter_map(|f| f.parse().ok()).collect()
        };
        let one = |word| figures(word).first().copied().unwrap_or(0);
        let kicks = figures("kicks");
        Status {
            kicks: std::array::from_fn(|i| kicks.get(i).copied().unwrap_or(0)),
            hangs: one("hangs"),
            longest_ms: one("longest-ms"),
        }
    }

    /// Writes it so that a reader sees all of it or what was there before.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        let [a, b, c] = self.kicks;
        let (hangs, longest) = (self.hangs, self.longest_ms);
        let new = path.with_extension("new");
        std::fs::write(&new, format!("kicks {a} {b} {c}\nhangs {hangs}\nlongest-ms {longest}\n"))?;
        std::fs::rename(new, path)
    }
}
