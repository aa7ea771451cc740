//! The figures of one moment, and how they are found in a copy's bytes, whatever these hold.

use super::image::{Place, TotalKind};
use super::layout::{self as l, event, header, row, total, u32_at, u64_at};
use super::reader::{Life, Refused};

/// Who counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// As it sees itself.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Random: tells its file from every other.
    pub id: [u8; 16],
    /// The kernel's boot id.
    pub boot: [u8; 16],
    /// Inode of the PID namespace in which `pid` means it; `None` where it could not tell.
    pub pid_namespace: Option<u64>,
    /// Clock ticks from boot to its start, as in /proc/PID/stat; `None` where it could not tell.
    pub start_ticks: Option<u64>,
    /// When it began to count, ns since 1970.
    pub created: u64,
}

/// One number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Total {
    /// As in `docs/counters.md`.
    pub name: String,
    /// `1`, `B`, `ns`, `MAC`.
    pub unit: String,
    /// How it behaves.
    pub kind: TotalKind,
    /// In that unit.
    pub value: u64,
}

/// One row of the routing table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Where it ran.
    pub place: Place,
    /// Kind of op.
    pub op: String,
    /// Type of the weight.
    pub weight: String,
    /// Route or reason.
    pub outcome: String,
    /// Inner dimension.
    pub k: u64,
    /// Columns of the result.
    pub n: u64,
    /// Least and most rows.
    pub rows: [u32; 2],
    /// Times.
    pub calls: u64,
    /// Multiply-accumulates of these; a FLOP count is twice that.
    pub macs: u64,
    /// Nanoseconds in these; 0 for what was declined.
    pub ns: u64,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// From 1 on; a gap means that older ones were overwritten.
    pub number: u64,
    /// ns since boot.
    pub time: u64,
    /// Stable.
    pub code: String,
    /// For people.
    pub text: String,
}

/// A file's figures of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Whose.
    pub process: Process,
    /// Whether it lives; [`Life::Unknown`] from [`parse`], which has no file.
    pub life: Life,
    /// When this copy was written, ns since boot.
    pub updated: u64,
    /// Copies written.
    pub copies: u64,
    /// Statements about the process.
    pub facts: Vec<(String, String)>,
    /// Numbers.
    pub totals: Vec<Total>,
    /// The routing table.
    pub rows: Vec<Row>,
    /// Oldest first.
    pub events: Vec<Event>,
}

impl Snapshot {
    /// The value of a total; `None` is unknown, not 0.
    pub fn total(&self, name: &str) -> Option<u64> {
        self.totals.iter().find(|t| t.name == name).map(|t| t.value)
    }

    /// A statement about the process.
    pub fn fact(&self, key: &str) -> Option<&str> {
        self.facts.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Nanoseconds since this copy was written; `None` when that was before this boot.
    pub fn age(&self) -> Option<u64> {
        super::writer::since_boot().checked_sub(self.updated)
    }
}

/// Whether `bytes`, the beginning of a file of `size` bytes, are a whole copy.
pub(super) fn check(bytes: &[u8], size: u64) -> Result<(), Refused> {
    if bytes.len() < header::SIZE || bytes[..8] != l::MAGIC {
        return Err(match bytes.len() {
            // As a truncated one begins; the next copy mends it.
            0 => Refused::Size { found: size },
            _ => Refused::Foreign,
        });
    }
    let found = u32_at(bytes, header::VERSION);
    if found != l::VERSION {
        let fix = match found > l::VERSION {
            true => "use the tools of the plugin's version",
            false => "update the plugin of that process",
        };
        return Err(Refused::Version { found, fix });
    }
    if size != l::SIZE as u64
        || bytes.len() != l::SIZE
        || u32_at(bytes, header::SIZE) as usize != l::SIZE
    {
        return Err(Refused::Size { found: size });
    }
    let used = u32_at(bytes, header::USED) as usize;
    if !(l::ROWS..=l::SIZE).contains(&used) || !(used - l::ROWS).is_multiple_of(l::ROW_LEN) {
        return Err(Refused::Damaged);
    }
    if l::checksum(&bytes[..used]) != u64_at(bytes, header::CHECKSUM) {
        return Err(Refused::Damaged);
    }
    Ok(())
}

/// The figures in the bytes of a whole file.
///
/// # Errors
/// Why they are not shown.
pub fn parse(bytes: &[u8]) -> Result<Snapshot, Refused> {
    check(bytes, bytes.len() as u64)?;
    let known = |at| Some(u64_at(bytes, at)).filter(|&n| n != 0);
    let sixteen = |at: usize| {
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[at..at + 16]);
        id
    };
    let used = u32_at(bytes, header::USED) as usize;
    let mut events: Vec<Event> =
        bytes[l::EVENTS..l::ROWS].chunks_exact(l::EVENT_LEN).filter_map(event).collect();
    events.sort_by_key(|e| e.number);
    Ok(Snapshot {
        process: Process {
            pid: u32_at(bytes, header::PID),
            uid: u32_at(bytes, header::UID),
            id: sixteen(header::ID),
            boot: sixteen(header::BOOT),
            pid_namespace: known(header::PID_NAMESPACE),
            start_ticks: known(header::START_TICKS),
            created: u64_at(bytes, header::CREATED),
        },
        life: Life::Unknown("no file was asked".into()),
        updated: u64_at(bytes, header::UPDATED),
        copies: u64_at(bytes, header::COPIES),
        facts: facts(&bytes[l::FACTS..l::TOTALS]),
        totals: bytes[l::TOTALS..l::EVENTS].chunks_exact(l::TOTAL_LEN).filter_map(total).collect(),
        rows: bytes[l::ROWS..used].chunks_exact(l::ROW_LEN).filter_map(row).collect(),
        events,
    })
}

fn facts(field: &[u8]) -> Vec<(String, String)> {
    let len = (u32_at(field, 0) as usize).min(field.len() - 4);
    let lines = field[4..4 + len].split(|&b| b == b'\n');
    lines
        .filter_map(|line| {
            let tab = line.iter().position(|&b| b == b'\t')?;
            Some((l::clean(&line[..tab]), l::clean(&line[tab + 1..])))
        })
        .collect()
}

fn total(t: &[u8]) -> Option<Total> {
    let kind = match u32_at(t, total::KIND) {
        1 => TotalKind::Counter,
        2 => TotalKind::Gauge,
        _ => return None,
    };
    Some(Total {
        name: l::text(&t[total::NAME..total::UNIT]),
        unit: l::text(&t[total::UNIT..total::VALUE]),
        kind,
        value: u64_at(t, total::VALUE),
    })
}

fn row(r: &[u8]) -> Option<Row> {
    Some(Row {
        place: Place::of(u32_at(r, row::PLACE))?,
        op: l::text(&r[row::OP..row::WEIGHT]),
        weight: l::text(&r[row::WEIGHT..row::OUTCOME]),
        outcome: l::text(&r[row::OUTCOME..row::K]),
        k: u64_at(r, row::K),
        n: u64_at(r, row::N),
        rows: [u32_at(r, row::ROWS_FROM), u32_at(r, row::ROWS_TO)],
        calls: u64_at(r, row::CALLS),
        macs: u64_at(r, row::MACS),
        ns: u64_at(r, row::TIME),
    })
}

fn event(e: &[u8]) -> Option<Event> {
    let number = u64_at(e, event::NUMBER);
    (number != 0).then(|| Event {
        number,
        time: u64_at(e, event::TIME),
        code: l::text(&e[event::CODE..event::TEXT]),
        text: l::text(&e[event::TEXT..]),
    })
}
