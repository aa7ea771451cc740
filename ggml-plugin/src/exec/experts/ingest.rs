//! Making one expert resident: from the folder of packed experts if it is there, else from the
//! host's weights.

use super::host_memory::Memory;
use super::lanes::Decoded;
use super::shelf::Rules;
use super::{Absent, StackSource};
use crate::exec::WeightKey;
use crate::exec::codes::CodedWeight;
use crate::exec::product::{Tiles, int8};
use crate::exec::residency::Packed;
use crate::exec::weight::{Columns, Source};
use crate::log::{Level, line};
use crate::route::Numerics;
use rocket_runtime::matmul::{Fp16, Npu, PACK_ROWS, Weights};
use rocket_runtime::store::{Content, Store};
use rocket_runtime::{Error, Result};
use std::path::PathBuf;
use std::sync::Arc;

/// Where packed experts are kept, and how much of the disk they may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedFolder {
    /// The folder.
    pub path: PathBuf,
    /// Bytes in all; `None` for half of what is free when it is opened.
    pub limit: Option<u64>,
}

impl PackedFolder {
    fn open(&self) -> Option<Store> {
        let opened = Store::open(&self.path, self.limit).and_then(|store| match self.limit {
            Some(_) => Ok(store),
            None => {
                let half = store.free()? / 2;
                Ok(store.with_reserve(half))
            }
        });
        opened.inspect_err(|e| line(Level::Warn, &format!("packed experts are not kept: {e}"))).ok()
    }
}

/// An expert that is resident now.
pub(super) struct Ingested {
    pub packed: Packed,
    /// It was in the folder.
    pub stored: bool,
}

/// What a thread needs to pack experts.
pub(super) struct Ingest<'r> {
    rules: &'r Rules,
    memory: Option<Memory>,
    store: Option<Option<Store>>,
    bytes: Vec<u8>,
}

impl<'r> Ingest<'r> {
    pub fn new(rules: &'r Rules) -> Ingest<'r> {
        Ingest { rules, memory: None, store: None, bytes: Vec::new() }
    }

    /// # Errors
    /// Why the stack stays absent.
    pub fn expert(
        &mut self,
        npu: &Npu,
        key: &WeightKey,
        source: &StackSource,
        expert: usize,
    ) -> Result<Ingested, Absent> {
        if !self.read(key, source, expert).map_err(|e| absent(&e))? {
            return Err(Absent::Packing);
        }
        let packed = self.pack(npu, key, source).map_err(|e| absent(&e))?;
        if packed.packed.columns.fit() { Ok(packed) } else { Err(Absent::Unfit) }
    }

    /// Reads an expert; false when the stack was replaced before or meanwhile: what was read may be a
    /// mixture, and its key would find it when the first weights come back.
    fn read(&mut self, key: &WeightKey, source: &StackSource, expert: usize) -> Result<bool> {
        let memory = match &self.memory {
            Some(memory) => memory,
            None => self.memory.insert(Memory::open()?),
        };
        // Before the first as well: it may have been replaced and put back since it was asked for.
        if expert == 0 && !source.is_still(memory, key.hash)? {
            return Ok(false);
        }
        source.read(memory, expert, &mut self.bytes)?;
        source.is_still(memory, key.hash)
    }

    fn pack(&mut self, npu: &Npu, key: &WeightKey, source: &StackSource) -> Result<Ingested> {
        let weight = source
            .form
            .weight(&self.bytes)
            .ok_or_else(|| Error::Unusable { why: "the rows of an expert are not whole".into() })?;
        let numerics = key.numerics;
        if numerics.codes().is_none() {
            let rows = Source::new(weight);
            let tiles = Tiles::Fp16(npu.pack_whole(PACK_ROWS, Fp16, &rows)?);
            let packed = Packed { tiles, columns: Arc::new(rows.columns()) };
            return Ok(Ingested { packed, stored: false });
        }
        let folder = &self.rules.folder;
        let store = self.store.get_or_insert_with(|| folder.as_ref().and_then(PackedFolder::open));
        let content = content(key, &self.bytes);
        if let Some(opened) = store {
            let coded = CodedWeight::new(weight, numerics);
            let found = coded
                .as_ref()
                .map(|c| npu.whole_from_store(opened, content, PACK_ROWS, int8(numerics), c));
            match (coded, found) {
                (Some(coded), Some(Ok(Some(tiles)))) => {
                    let packed = finished(Tiles::Int8(tiles, coded.scales()), coded.fit());
                    return Ok(Ingested { packed, stored: true });
                }
                (_, Some(Err(e))) => give_up(store, &e)?,
                _ => {}
            }
        }
        // Before the NPU is locked: its products go on meanwhile.
        let decoded = Decoded::new(weight, numerics, self.rules.threads)?;
        let rows = Ready { decoded: &decoded, n: weight.n(), k: weight.k() };
        let tiles = match store {
            Some(opened) => {
                let packed =
                    npu.pack_whole_stored(opened, content, PACK_ROWS, int8(numerics), &rows);
                match packed {
                    Ok((tiles, _)) => tiles,
                    Err(e) => {
                        give_up(store, &e)?;
                        npu.pack_whole(PACK_ROWS, int8(numerics), &rows)?
                    }
                }
            }
            None => npu.pack_whole(PACK_ROWS, int8(numerics), &rows)?,
        };
        let fit = decoded.fit();
        let packed = finished(Tiles::Int8(tiles, decoded.scales), fit);
        Ok(Ingested { packed, stored: false })
    }
}

fn absent(e: &Error) -> Absent {
    line(Level::Notice, &format!("a stack of experts is left to the CPU: {e}"));
    Absent::NoRoom
}

/// The folder failed: it is left alone, and the experts are packed without it.
///
/// # Errors
/// What was no failure of the folder.
fn give_up(store: &mut Option<Store>, e: &Error) -> Result<()> {
    match e {
        Error::Store { .. } => {
            line(Level::Warn, &format!("packed experts are not kept: {e}"));
            *store = None;
            Ok(())
        }
        Error::Memory { asked, what, why } => {
            Err(Error::Memory { asked: *asked, what, why: why.clone() })
        }
        other => Err(Error::Unusable { why: other.to_string() }),
    }
}

fn finished(tiles: Tiles, fit: bool) -> Packed {
    let columns = if fit { Columns::default() } else { Columns::unfit() };
    Packed { tiles, columns: Arc::new(columns) }
}

/// What the packed bytes depend on besides the runtime's own: the weights, their type, and how
/// they are rounded.
fn content(key: &WeightKey, bytes: &[u8]) -> u128 {
    let kind = match key.numerics {
        Numerics::Shifted(_) => 1,
        _ => u32::from(key.numerics.codes().is_some_and(|c| c.rotate)) << 1,
    };
    let mut content = Content::new();
    content.update(bytes);
    content.update(&key.dtype.0.to_le_bytes());
    content.update(&kind.to_le_bytes());
    content.finish()
}

/// Codes that are there already.
#[derive(Debug)]
struct Ready<'a> {
    decoded: &'a Decoded,
    n: usize,
    k: usize,
}

impl Weights<i8> for Ready<'_> {
    fn n(&self) -> usize {
        self.n
    }

    fn k(&self) -> usize {
        self.k
    }

    fn load(&self, n: usize, dst: &mut [i8]) {
        dst.copy_from_slice(&self.decoded.codes[n * self.k..][..self.k]);
    }

    fn notes(&self) -> Vec<u8> {
        self.decoded.notes.clone()
    }

    fn recall(&self, notes: &[u8]) -> bool {
        // Another process was faster; the same weights make the same notes.
        notes == self.decoded.notes
    }
}

/// What was packed so far, for people who wait.
#[derive(Debug, Default)]
pub(super) struct Progress {
    done: u64,
    stored: u64,
    told: u64,
}

/// Experts between two lines.
const EVERY: u64 = 256;

impl Progress {
    /// One more; a line now and then.
    pub fn count(&mut self, stored: bool, rules: &Rules) -> Option<String> {
        self.done += 1;
        self.stored += u64::from(stored);
        let meanwhile = if rules.wait { "" } else { "; the CPU computes meanwhile" };
        let due = self.done.is_multiple_of(EVERY);
        due.then(|| format!("{} experts packed so far{meanwhile}", self.done))
    }

    /// Nothing is left to pack for now: what became of it, if there was something.
    pub fn finish(&mut self) -> Option<String> {
        let (done, stored) = (self.done, self.stored);
        let news = std::mem::replace(&mut self.told, done) < done;
        news.then(|| format!("{done} experts resident, {stored} of them from the folder"))
    }
}
