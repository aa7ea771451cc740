//! What is no plain file, as a tree has it beside: nodes, users, and the kernel's log.

use super::reading::{Why, why};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;

/// A device node or a file as `stat` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Device numbers; none of a plain file.
    pub device: Option<(u64, u64)>,
    /// Permission bits.
    pub mode: u32,
    /// Owner's name, or number where it has none.
    pub owner: String,
    /// Group's name, or number where it has none.
    pub group: String,
}

/// Who is asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Effective user.
    pub uid: u32,
    /// User's name, where it has one.
    pub name: Option<String>,
    /// Names of this process's groups, or numbers where they have none.
    pub groups: Vec<String>,
}

/// A line of the kernel's log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogLine {
    /// Seconds since the boot, where the line says so.
    pub seconds: Option<f64>,
    /// The rest.
    pub text: String,
}

/// `major minor mode owner group`.
pub(super) fn side_file(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [major, minor, mode, owner, group] = fields[..] else { return None };
    let device = (major.parse().ok()?, minor.parse().ok()?);
    Some(Stat {
        device: (device != (0, 0)).then_some(device),
        mode: u32::from_str_radix(mode, 8).ok()?,
        owner: owner.to_owned(),
        group: group.to_owned(),
    })
}

/// The line of a side file; numbers of 0 are those of a plain file.
pub(super) fn side_line(stat: &Stat) -> String {
    let (major, minor) = stat.device.unwrap_or_default();
    format!("{major} {minor} {:o} {} {}\n", stat.mode, stat.owner, stat.group)
}

/// What the tools look at in a log; the rest of one (disks, networks, other people's hardware) is nobody's business
/// and not in a report. Lower case.
const OF_INTEREST: &[&str] = &[
    "npu",
    "rocket",
    "rknn",
    "rk_iommu",
    "iommu",
    "drm",
    "accel",
    "scmi",
    "kmalloc",
    "kvmalloc",
    "scheduler",
    "rockchip",
    "power-domain",
    "pm_genpd",
    "regulator",
    "module",
    "modprobe",
    "serror",
    "linux version",
    "machine model",
    "memory manager",
    "mmu_dte_addr",
    "enable stall",
    "failed to map buffer",
    "page fault at",
    "booting linux",
    "secure boot",
    "lockdown",
];

/// Whether a report has lines with these words.
pub fn of_interest(text: &str) -> bool {
    let text = text.to_lowercase();
    // What a kernel was started with may be anything, a password too.
    !text.contains("command line") && OF_INTEREST.iter().any(|words| text.contains(words))
}

/// Those lines of the log that are of interest, as `dmesg` prints them.
pub(super) fn log_text(lines: &[LogLine]) -> String {
    let line = |l: &LogLine| match l.seconds {
        Some(s) => format!("[{s:12.6}] {}\n", l.text),
        None => format!("{}\n", l.text),
    };
    lines.iter().filter(|l| of_interest(&l.text)).map(line).collect()
}

/// `uid=1000(tom) gid=1000(tom) groups=1000(tom),44(video)`
pub(super) fn id_line(text: &str) -> Option<Identity> {
    let field = |key: &str| text.split_whitespace().find_map(|w| w.strip_prefix(key));
    let split = |one: &str| -> Option<(u32, Option<String>)> {
        let (id, rest) = one.split_once('(').unwrap_or((one, ""));
        let name = rest.trim_end_matches(')');
        Some((id.parse().ok()?, (!name.is_empty()).then(|| name.to_owned())))
    };
    let (uid, name) = split(field("uid=")?)?;
    let groups = field("groups=").or_else(|| field("gid="))?;
    let groups: Option<Vec<String>> =
        groups.split(',').map(|g| split(g).map(|(id, n)| n.unwrap_or(id.to_string()))).collect();
    Some(Identity { uid, name, groups: groups? })
}

/// A kernel's log as `dmesg` prints it.
pub fn parse_log(text: &str) -> Vec<LogLine> {
    text.lines().map(log_line).collect()
}

/// `[    5.123456] text`, or text alone.
fn log_line(line: &str) -> LogLine {
    let timed = line.strip_prefix('[').and_then(|rest| {
        let (time, text) = rest.split_once(']')?;
        Some((time.trim().parse().ok()?, text.trim_start()))
    });
    match timed {
        Some((seconds, text)) => LogLine { seconds: Some(seconds), text: text.to_owned() },
        None => LogLine { seconds: None, text: line.to_owned() },
    }
}

/// The records of /dev/kmsg: `priority,sequence,microseconds,flags;text`, one a read.
pub(super) fn kernel_log() -> Result<Vec<LogLine>, Why> {
    let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let mut file: File = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open("/dev/kmsg")
        .map_err(|e| why(&e))?;
    let mut lines = Vec::new();
    let mut record = [0; 8192];
    for _ in 0..1 << 17 {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(n) => {
                let text = String::from_utf8_lossy(&record[..n]);
                let Some((head, text)) = text.split_once(';') else { continue };
                let micros: Option<f64> = head.split(',').nth(2).and_then(|m| m.parse().ok());
                let text = text.lines().next().unwrap_or_default().to_owned();
                lines.push(LogLine { seconds: micros.map(|m| m / 1e6), text });
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            // A record that was overwritten before it was read.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
            Err(e) => return Err(why(&e)),
        }
    }
    Ok(lines)
}

/// Whether a report may have a variable: what the suite and its hosts are told by, and how they are found.
fn in_report(name: &str) -> bool {
    const FAMILIES: [&str; 4] = ["GGML_", "ROCKET_", "LLAMA_", "WHISPER_"];
    const NAMES: [&str; 4] = ["PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "SUDO_USER"];
    FAMILIES.iter().any(|f| name.starts_with(f)) || NAMES.contains(&name)
}

/// Whether a variable's value is nobody's business (`LLAMA_API_KEY`).
fn is_secret(name: &str) -> bool {
    ["KEY", "TOKEN", "SECRET", "PASSW"].iter().any(|part| name.contains(part))
}

/// The environment as a report has it.
pub(super) fn environment_text(all: &BTreeMap<String, String>) -> String {
    let line = |(name, value): (&String, &String)| match is_secret(name) {
        true => format!("{name}=(removed)\n"),
        false => format!("{name}={}\n", value.replace('\n', " ")),
    };
    all.iter().filter(|(name, _)| in_report(name)).map(line).collect()
}
