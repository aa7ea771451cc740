//! What can be read of the machine, always below a root path (`/` on a live one).

use std::path::Path;

/// MemAvailable and MemTotal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Bytes that can be had without swapping.
    pub available: u64,
    /// Bytes in all.
    pub total: u64,
}

/// Reads `proc/meminfo` below `root`; `None` where it is missing or unreadable: unknown, not 0.
pub fn memory(root: &Path) -> Option<Memory> {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let field = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Memory { available: field("MemAvailable:")?, total: field("MemTotal:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_tree_and_knows_what_it_does_not_know() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(memory(dir.path()), None);
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        let write = |text| std::fs::write(dir.path().join("proc/meminfo"), text).unwrap();
        write("MemTotal:       16 kB\nMemFree: 1 kB\nMemAvailable:    4 kB\n");
        assert_eq!(memory(dir.path()), Some(Memory { available: 4096, total: 16384 }));
        write("MemTotal: 16 kB\n");
        assert_eq!(memory(dir.path()), None);
    }
}
