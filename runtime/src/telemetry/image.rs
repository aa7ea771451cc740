//! The writer's truth: the file's bytes, in its own memory.

use super::layout::{
    self as l, event, header, put_text, put_u32, put_u64, row, total, u32_at, u64_at,
};
use std::collections::HashMap;
use twox_hash::XxHash3_64;

/// Where an op of a row ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Place {
    /// On the NPU; the outcome is the route.
    Npu = 1,
    /// Left to the CPU when the host asked; the outcome is the reason. Its calls are the host's
    /// questions, which are not as many as the times that the op then runs.
    Declined = 2,
    /// Accepted, and computed by the CPU after all; the outcome is why.
    Redone = 3,
    /// Of any kind: what found no row of its own.
    Other = 4,
}

impl Place {
    pub(super) fn of(number: u32) -> Option<Place> {
        [Place::Npu, Place::Declined, Place::Redone, Place::Other]
            .into_iter()
            .find(|p| *p as u32 == number)
    }
}

/// What tells rows apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowKey<'a> {
    /// Where it ran.
    pub place: Place,
    /// Kind of op, 16 bytes at most.
    pub op: &'a str,
    /// Type of the weight, 16 bytes at most.
    pub weight: &'a str,
    /// Inner dimension.
    pub k: u64,
    /// Columns of the result.
    pub n: u64,
    /// Rows of the result; their class counts.
    pub rows: u64,
    /// Route, or reason, 32 bytes at most.
    pub outcome: &'a str,
}

/// How a total behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum TotalKind {
    /// Only grows.
    Counter = 1,
    /// Goes up and down.
    Gauge = 2,
}

/// A total's place; none when the table was full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(Option<usize>);

/// Length of a row's key, which comes first in it.
const KEY: usize = row::CALLS;
const NAME: usize = total::UNIT - total::NAME;

/// Counters of one process, in the form of the file.
#[derive(Debug)]
pub struct Image {
    bytes: Vec<u8>,
    rows: HashMap<u64, usize>,
    totals: HashMap<[u8; NAME], Slot>,
    facts: Vec<(String, String)>,
    events: u64,
}

impl Default for Image {
    /// No counters yet, and no process.
    fn default() -> Image {
        let mut bytes = vec![0; l::SIZE];
        bytes[header::MAGIC..][..8].copy_from_slice(&l::MAGIC);
        put_u32(&mut bytes, header::VERSION, l::VERSION);
        put_u32(&mut bytes, header::SIZE, l::SIZE as u32);
        put_u32(&mut bytes, header::USED, l::ROWS as u32);
        Image { bytes, rows: HashMap::new(), totals: HashMap::new(), facts: Vec::new(), events: 0 }
    }
}

impl Image {
    /// Counts calls of one row: their multiply-accumulates and nanoseconds, as far as known.
    pub fn count(&mut self, key: &RowKey<'_>, calls: u64, macs: u64, ns: u64) {
        let at = self.row(key);
        for (field, more) in [(row::CALLS, calls), (row::MACS, macs), (row::TIME, ns)] {
            self.grow(at + field, more);
        }
    }

    /// Offset of the key's row, claimed now if it is new.
    fn row(&mut self, key: &RowKey<'_>) -> usize {
        let mut bytes = [0; KEY];
        put_u32(&mut bytes, row::PLACE, key.place as u32);
        put_text(&mut bytes[row::OP..row::WEIGHT], key.op);
        put_text(&mut bytes[row::WEIGHT..row::OUTCOME], key.weight);
        put_text(&mut bytes[row::OUTCOME..row::K], key.outcome);
        put_u64(&mut bytes, row::K, key.k);
        put_u64(&mut bytes, row::N, key.n);
        let [from, to] = l::class_of(key.rows);
        put_u32(&mut bytes, row::ROWS_FROM, from);
        put_u32(&mut bytes, row::ROWS_TO, to);
        let hash = XxHash3_64::oneshot(&bytes);
        // Two keys of one hash would share a row; at 2^-64 a pair nobody will see it.
        if let Some(&at) = self.rows.get(&hash) {
            return at;
        }
        let mut next = self.rows.len();
        if next >= l::ROW_COUNT - 1 {
            next = l::ROW_COUNT - 1;
            bytes = [0; KEY];
            put_u32(&mut bytes, row::PLACE, Place::Other as u32);
            put_text(&mut bytes[row::OP..row::WEIGHT], "other");
            put_text(&mut bytes[row::OUTCOME..row::K], "table_full");
        } else {
            self.rows.insert(hash, l::ROWS + next * l::ROW_LEN);
        }
        let at = l::ROWS + next * l::ROW_LEN;
        self.bytes[at..at + KEY].copy_from_slice(&bytes);
        let used = (at + l::ROW_LEN) as u32;
        put_u32(&mut self.bytes, header::USED, used);
        at
    }

    /// The total of this name (32 bytes at most), claimed now if it is new. One that was never
    /// claimed is unknown to readers, which is not 0.
    pub fn total(&mut self, name: &str, unit: &str, kind: TotalKind) -> Slot {
        self.named("", name, unit, kind)
    }

    /// The same for a name in two parts.
    pub fn named(&mut self, family: &str, name: &str, unit: &str, kind: TotalKind) -> Slot {
        let mut key = [0; NAME];
        let rest = family.floor_char_boundary(NAME);
        put_text(&mut key[..rest], &family[..rest]);
        put_text(&mut key[rest..], name);
        if let Some(&slot) = self.totals.get(&key) {
            return slot;
        }
        let next = self.totals.len();
        if next >= l::TOTAL_COUNT {
            return Slot(None);
        }
        let at = l::TOTALS + next * l::TOTAL_LEN;
        put_u32(&mut self.bytes, at + total::KIND, kind as u32);
        self.bytes[at + total::NAME..at + total::UNIT].copy_from_slice(&key);
        put_text(&mut self.bytes[at + total::UNIT..at + total::VALUE], unit);
        let slot = Slot(Some(at + total::VALUE));
        self.totals.insert(key, slot);
        slot
    }

    /// Adds to a total.
    pub fn add(&mut self, slot: Slot, more: u64) {
        if let Slot(Some(at)) = slot {
            self.grow(at, more);
        }
    }

    /// Sets a total.
    pub fn set(&mut self, slot: Slot, value: u64) {
        if let Slot(Some(at)) = slot {
            put_u64(&mut self.bytes, at, value);
        }
    }

    /// What a total stands at; 0 for one that found no place.
    pub fn value(&self, slot: Slot) -> u64 {
        slot.0.map_or(0, |at| u64_at(&self.bytes, at))
    }

    fn grow(&mut self, at: usize, more: u64) {
        let sum = u64_at(&self.bytes, at).saturating_add(more);
        put_u64(&mut self.bytes, at, sum);
    }

    /// Something that happened, over the oldest if there were many. `time` is in ns since boot.
    pub fn event(&mut self, time: u64, code: &str, text: &str) {
        let at = l::EVENTS + (self.events % l::EVENT_COUNT as u64) as usize * l::EVENT_LEN;
        self.events += 1;
        let e = &mut self.bytes[at..at + l::EVENT_LEN];
        put_u64(e, event::NUMBER, self.events);
        put_u64(e, event::TIME, time);
        put_text(&mut e[event::CODE..event::TEXT], code);
        put_text(&mut e[event::TEXT..], text);
    }

    /// The same, at this moment.
    pub fn event_now(&mut self, code: &str, text: &str) {
        self.event(super::writer::since_boot(), code, text);
    }

    /// States something about the process, in place of an earlier statement. What does not fit
    /// any more is left out.
    pub fn fact(&mut self, key: &str, value: &str) {
        let plain = |s: &str| s.replace(['\t', '\n', '\r'], " ");
        let (key, value) = (plain(key), plain(value));
        match self.facts.iter_mut().find(|(k, _)| *k == key) {
            Some((_, old)) => *old = value,
            None => self.facts.push((key, value)),
        }
        let mut text = String::new();
        for line in self.facts.iter().map(|(k, v)| format!("{k}\t{v}\n")) {
            if text.len() + line.len() <= l::FACTS_LEN - 4 {
                text += &line;
            }
        }
        put_u32(&mut self.bytes, l::FACTS, text.len() as u32);
        put_text(&mut self.bytes[l::FACTS + 4..l::TOTALS], &text);
    }

    /// The header, for the writer to fill in.
    pub(super) fn header(&mut self) -> &mut [u8] {
        &mut self.bytes[..l::HEADER]
    }

    /// Replaces `to` by the bytes that hold something, with their checksum.
    pub(super) fn copy_to(&self, to: &mut Vec<u8>) {
        to.clear();
        to.extend_from_slice(&self.bytes[..u32_at(&self.bytes, header::USED) as usize]);
    }
}
