//! Where everything lies in the file. All numbers are little-endian; texts are UTF-8, cut to their
//! field and filled with zeros. Whatever changes here changes [`VERSION`]: a reader refuses every
//! version but its own.
//!
//! | from | what |
//! |---|---|
//! | 0 | the header, see [`header`] |
//! | 256 | facts of the process: a u32 of bytes, then lines `key TAB value` |
//! | 4096 | 128 totals of 64 bytes, see [`total`] |
//! | 12288 | 64 events of 128 bytes, a ring, see [`event`] |
//! | 20480 | 512 rows of 128 bytes, see [`row`]; the last is for what found no row |

/// The first bytes of a file.
pub const MAGIC: [u8; 8] = *b"RKTCOUNT";
/// Of this layout.
pub const VERSION: u32 = 1;

/// Bytes of the header.
pub const HEADER: usize = 256;
/// Where the facts begin.
pub const FACTS: usize = HEADER;
/// Bytes of them.
pub const FACTS_LEN: usize = TOTALS - FACTS;
/// Where the totals begin.
pub const TOTALS: usize = 4096;
/// How many there can be.
pub const TOTAL_COUNT: usize = 128;
/// Bytes of one.
pub const TOTAL_LEN: usize = 64;
/// Where the events begin.
pub const EVENTS: usize = TOTALS + TOTAL_COUNT * TOTAL_LEN;
/// How many are kept.
pub const EVENT_COUNT: usize = 64;
/// Bytes of one.
pub const EVENT_LEN: usize = 128;
/// Where the rows begin.
pub const ROWS: usize = EVENTS + EVENT_COUNT * EVENT_LEN;
/// How many there can be.
pub const ROW_COUNT: usize = 512;
/// Bytes of one.
pub const ROW_LEN: usize = 128;
/// Bytes of a file.
pub const SIZE: usize = ROWS + ROW_COUNT * ROW_LEN;

/// Offsets in the header.
pub mod header {
    /// [`MAGIC`](super::MAGIC).
    pub const MAGIC: usize = 0;
    /// u32.
    pub const VERSION: usize = 8;
    /// u32, bytes of the file.
    pub const SIZE: usize = 12;
    /// u32, bytes from the beginning that hold something: those that the checksum is over.
    pub const USED: usize = 16;
    /// u32, as the process sees itself: another one in another PID namespace.
    pub const PID: usize = 20;
    /// u32, the file's owner as the writer sees it.
    pub const UID: usize = 24;
    /// 16 random bytes.
    pub const ID: usize = 32;
    /// 16 bytes of the kernel's boot id.
    pub const BOOT: usize = 48;
    /// u64, inode of the PID namespace; 0 where unknown.
    pub const PID_NAMESPACE: usize = 64;
    /// u64, field 22 of /proc/PID/stat: clock ticks from boot to the process's start.
    pub const START_TICKS: usize = 72;
    /// u64, ns since 1970 when the file was made.
    pub const CREATED: usize = 80;
    /// u64, ns since boot (CLOCK_BOOTTIME) when this copy was written.
    pub const UPDATED: usize = 88;
    /// u64, copies written.
    pub const COPIES: usize = 96;
    /// u64, XXH3-64 of the used bytes with these eight as zeros.
    pub const CHECKSUM: usize = 104;
}

/// Offsets in a total.
pub mod total {
    /// u32: 0 free, 1 a counter (only grows), 2 a gauge.
    pub const KIND: usize = 0;
    /// 32 bytes.
    pub const NAME: usize = 8;
    /// 8 bytes.
    pub const UNIT: usize = 40;
    /// u64.
    pub const VALUE: usize = 48;
}

/// Offsets in an event.
pub mod event {
    /// u64: 0 free, else its number from 1 on.
    pub const NUMBER: usize = 0;
    /// u64, ns since boot (CLOCK_BOOTTIME).
    pub const TIME: usize = 8;
    /// 24 bytes.
    pub const CODE: usize = 16;
    /// 88 bytes.
    pub const TEXT: usize = 40;
}

/// Offsets in a row. What comes before the counts is its key.
pub mod row {
    /// u32: 0 free, else a [`Place`](super::super::Place).
    pub const PLACE: usize = 0;
    /// 16 bytes.
    pub const OP: usize = 8;
    /// 16 bytes.
    pub const WEIGHT: usize = 24;
    /// 32 bytes: a route's name, or why not.
    pub const OUTCOME: usize = 40;
    /// u64.
    pub const K: usize = 72;
    /// u64.
    pub const N: usize = 80;
    /// u32, least rows of the class.
    pub const ROWS_FROM: usize = 88;
    /// u32, most rows of the class.
    pub const ROWS_TO: usize = 92;
    /// u64.
    pub const CALLS: usize = 96;
    /// u64.
    pub const MACS: usize = 104;
    /// u64, ns.
    pub const TIME: usize = 112;
}

/// Classes of rows, as least and most: decode, its batches, and what the thresholds are about.
pub const ROW_CLASSES: [[u32; 2]; 5] = [[1, 1], [2, 31], [32, 127], [128, 511], [512, u32::MAX]];

/// The class of so many rows.
pub fn class_of(rows: u64) -> [u32; 2] {
    let at = ROW_CLASSES.iter().position(|c| rows <= u64::from(c[1]));
    ROW_CLASSES[at.unwrap_or(ROW_CLASSES.len() - 1)]
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let low = u64::from(u32_at(bytes, at));
    low | u64::from(u32_at(bytes, at + 4)) << 32
}

pub(super) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// As much of a text as fits, cut between characters, with zeros behind it.
pub(super) fn put_text(field: &mut [u8], text: &str) {
    let len = text.floor_char_boundary(field.len());
    field[..len].copy_from_slice(&text.as_bytes()[..len]);
    field[len..].fill(0);
}

/// A field's text, fit for a terminal whatever the field holds.
pub(super) fn text(field: &[u8]) -> String {
    let len = field.iter().position(|&b| b == 0).unwrap_or(field.len());
    clean(&field[..len])
}

/// Without control characters: another user's file must not move a cursor.
pub(super) fn clean(bytes: &[u8]) -> String {
    let fit = |c: char| if c.is_control() || is_format(c) { '\u{fffd}' } else { c };
    String::from_utf8_lossy(bytes).chars().map(fit).collect()
}

/// Characters that change the order or the look of others.
fn is_format(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Over `bytes`, whose checksum field counts as zeros.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    let mut hash = twox_hash::XxHash3_64::new();
    let field = header::CHECKSUM..header::CHECKSUM + 8;
    std::hash::Hasher::write(&mut hash, &bytes[..field.start]);
    std::hash::Hasher::write(&mut hash, &[0; 8]);
    std::hash::Hasher::write(&mut hash, &bytes[field.end..]);
    std::hash::Hasher::finish(&hash)
}
