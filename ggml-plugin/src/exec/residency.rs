//! Which packed weights stay, whose they are, and when they go.
//!
//! Buffer objects are pinned memory: nothing can take them back (kernel-and-uapi A.3). So they go
//! with the last context that used them, and earlier when the system runs short.

use super::engine::WeightKey;
use super::pressure::Pressure;
use super::product::Tiles;
use super::times::Holdings;
use super::weight::Columns;
use crate::knobs::{self, Budget, Knobs};
use rocket_runtime::{Error, Result};
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A packed weight.
#[derive(Debug)]
pub struct Packed {
    /// Its tiles.
    pub tiles: Tiles,
    /// What the result's columns need.
    pub columns: Arc<Columns>,
}

/// How much may stay.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Bytes in all; `None` is unlimited.
    pub total: Option<u64>,
    /// Bytes of quantized weights.
    pub quantized: Share,
    /// Bytes of F16, BF16 and F32 weights.
    pub float: Share,
    /// Bytes of MemAvailable that stay free of resident weights; `None` is half a GiB or a tenth
    /// of the machine.
    pub reserve: Option<u64>,
}

impl Rules {
    /// As the settings say, on this machine.
    pub fn of(knobs: &Knobs) -> Rules {
        let memory = rocket_runtime::board::memory(Path::new("/"));
        Rules::on(knobs, memory.map_or(0, |m| m.total))
    }

    /// The same on a machine with so many bytes of memory in all.
    pub fn on(knobs: &Knobs, memory: u64) -> Rules {
        let share = |class, knob| match class {
            _ if knobs.no_prepack => Share::Nothing("ROCKET_NO_PREPACK is set"),
            knobs::Residency::Auto => Share::All,
            knobs::Residency::Off => Share::Nothing(knob),
            knobs::Residency::Bytes(bytes) => Share::Bytes(bytes),
        };
        // An automatic budget is what the reserve leaves; a given one stands beside it.
        let (total, reserve) = match knobs.cache {
            Budget::Auto => {
                (None, Some(knobs.reserve.unwrap_or_else(|| automatic_reserve(memory))))
            }
            Budget::Bytes(bytes) => (Some(bytes), knobs.reserve),
            Budget::Unlimited => (None, knobs.reserve),
        };
        Rules {
            total,
            quantized: share(knobs.quant_resident, "ROCKET_QUANT_RESIDENT is off"),
            float: share(knobs.f16_resident, "ROCKET_F16_RESIDENT is off"),
            reserve,
        }
    }

    /// Whether a weight may stay beside `held` bytes of unquantized and of quantized ones, as far as
    /// the settings limit them.
    ///
    /// # Errors
    /// Why not.
    pub fn allow(&self, key: &WeightKey, held: [u64; 2]) -> std::result::Result<(), String> {
        let all: u64 = held.iter().sum();
        if let Some(total) = self.total.filter(|t| all + key.packed_bytes() > *t) {
            return Err(format!(
                "{} of the {} MB of ROCKET_CACHE_MB are used",
                all >> 20,
                total >> 20
            ));
        }
        let [float, quantized] = held;
        let (used, share, knob) = match key.dtype.is_quantized() {
            true => (quantized, self.quantized, "ROCKET_QUANT_RESIDENT"),
            false => (float, self.float, "ROCKET_F16_RESIDENT"),
        };
        let limit = match share {
            Share::All => return Ok(()),
            Share::Nothing(why) => return Err(why.to_owned()),
            Share::Bytes(limit) => limit,
        };
        match used + key.packed_bytes() <= limit {
            true => Ok(()),
            false => Err(format!("{} of the {} MB of {knob} are used", used >> 20, limit >> 20)),
        }
    }

    /// Bytes that quantized weights may take in all, of `memory` bytes and the address windows of so
    /// many workers; `None` where nothing is known to limit them.
    pub fn room(&self, memory: Option<u64>, workers: usize) -> Option<u64> {
        let class = match self.quantized {
            Share::All => None,
            Share::Bytes(limit) => Some(limit),
            Share::Nothing(_) => Some(0),
        };
        let windows = Some(workers as u64 * WINDOW_BYTES);
        [self.total, class, memory, windows].into_iter().flatten().min()
    }
}

/// What an automatic budget leaves to everything else: decode reads the model's file through the
/// page cache, which counts as available.
fn automatic_reserve(memory: u64) -> u64 {
    (1 << 30).max(memory / 4)
}

/// The part of one class of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Share {
    /// As much as there is.
    #[default]
    All,
    /// So many bytes.
    Bytes(u64),
    /// Nothing, because of this setting: they are streamed.
    Nothing(&'static str),
}

#[derive(Debug)]
struct Entry {
    /// `None`: it was looked at and holds an element that is not finite.
    packed: Option<Arc<Packed>>,
    owners: HashSet<u64>,
    used: u64,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<WeightKey, Entry>,
    clock: u64,
    /// Weights that found no room: who asked for them, and why not.
    refused: HashMap<WeightKey, (HashSet<u64>, String)>,
    shed: u64,
    /// What was last told.
    told: Option<String>,
    /// Bytes that are spoken for by others.
    promised: u64,
}

/// Of a worker's 4 GiB window, what weights may fill (kernel-and-uapi A.3): the runtime keeps the
/// rest for the buffers of calls.
pub const WINDOW_BYTES: u64 = 7 << 29;

/// The resident weights of one engine.
#[derive(Debug)]
pub struct Residency {
    rules: Rules,
    state: Mutex<State>,
    pressure: Pressure,
}

/// What became of a request.
#[derive(Debug)]
pub enum Held {
    /// It is packed; `true` when that happened just now.
    Packed(Arc<Packed>, bool),
    /// It holds an element that is not finite.
    Unfit,
    /// No room: stream it.
    No,
}

impl Residency {
    /// Nothing yet.
    pub fn new(rules: Rules, pressure: Pressure) -> Residency {
        Residency { rules, state: Mutex::default(), pressure }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The weight, packed now if it is new and there is room. Others wait meanwhile: two contexts
    /// must not pack the same weight twice.
    ///
    /// # Errors
    /// Those of `pack`, but for a lack of memory: that is [`Held::No`].
    pub fn get(
        &self,
        key: WeightKey,
        owner: u64,
        pack: impl FnOnce() -> Result<Packed>,
    ) -> Result<Held> {
        let mut s = self.state();
        s.clock += 1;
        let now = s.clock;
        if let Some(e) = s.entries.get_mut(&key) {
            e.used = now;
            e.owners.insert(owner);
            return Ok(e.packed.clone().map_or(Held::Unfit, |p| Held::Packed(p, false)));
        }
        let refuse = |s: &mut State, why: String| {
            s.refused.entry(key).or_insert_with(|| (HashSet::new(), why)).0.insert(owner);
            Ok(Held::No)
        };
        if let Err(why) = self.admit(&s, &key) {
            return refuse(&mut s, why);
        }
        let packed = match pack() {
            Ok(p) => p.columns.fit().then(|| Arc::new(p)),
            Err(Error::Memory { why, .. }) => return refuse(&mut s, why),
            Err(e) => return Err(e),
        };
        s.refused.remove(&key);
        let entry = Entry { packed: packed.clone(), owners: HashSet::from([owner]), used: now };
        s.entries.insert(key, entry);
        Ok(packed.map_or(Held::Unfit, |p| Held::Packed(p, true)))
    }

    fn admit(&self, s: &State, key: &WeightKey) -> std::result::Result<(), String> {
        self.pressure.admits(key.packed_bytes() + s.promised)?;
        let mut held = [0; 2];
        for k in s.entries.keys() {
            held[usize::from(k.dtype.is_quantized())] += k.packed_bytes();
        }
        self.rules.allow(key, held)
    }

    /// So many bytes of memory are spoken for and not taken yet.
    pub fn promise(&self, bytes: u64) {
        self.state().promised = bytes;
    }

    /// Bytes that may be resident in all, by the settings, the memory that is available now and the
    /// address windows of so many workers; `None` where nothing is known to limit them.
    pub fn room(&self, workers: usize) -> Option<u64> {
        let promised = self.state().promised;
        let memory =
            self.pressure.room().map(|free| (free + self.bytes()).saturating_sub(promised));
        self.rules.room(memory, workers)
    }

    /// Drops what only `owner` used.
    pub fn release(&self, owner: u64) {
        let mut s = self.state();
        s.entries.retain(|_, e| {
            e.owners.remove(&owner);
            !e.owners.is_empty()
        });
        s.refused.retain(|_, (owners, _)| {
            owners.remove(&owner);
            !owners.is_empty()
        });
    }

    /// Gives memory back when the system is short of it: the least recently used first. Called
    /// before each op; it reads the system's figures a few times a second at most. `others` are bytes
    /// that can be given back besides; how many of them must be, `None` when memory is not short.
    pub fn relieve(&self, others: u64) -> Option<u64> {
        let mut short = self.pressure.shortage(self.bytes() + others);
        if short == 0 {
            return None;
        }
        let mut s = self.state();
        let mut by_age: Vec<(u64, WeightKey)> =
            s.entries.iter().map(|(k, e)| (e.used, *k)).collect();
        by_age.sort_unstable_by_key(|(used, _)| *used);
        let mut count = 0;
        for (_, key) in by_age {
            if short == 0 {
                break;
            }
            let bytes =
                s.entries.remove(&key).and_then(|e| e.packed).map_or(0, |p| p.tiles.bytes());
            short = short.saturating_sub(bytes);
            s.shed += bytes;
            count += 1;
        }
        if count > 0 {
            tracing::warn!(
                "memory is short: {count} resident weights were given back; they are streamed until \
             there is room again"
            );
        }
        Some(short)
    }

    /// Bytes that are resident.
    pub fn bytes(&self) -> u64 {
        let s = self.state();
        s.entries.values().filter_map(|e| e.packed.as_ref()).map(|p| p.tiles.bytes()).sum()
    }

    /// The same in numbers.
    pub fn holdings(&self) -> Holdings {
        let s = self.state();
        let packed = || s.entries.values().filter_map(|e| e.packed.as_ref());
        let resident = packed().count() as u64;
        Holdings {
            resident_bytes: Some(packed().map(|p| p.tiles.bytes()).sum()),
            resident: Some(resident),
            offered: Some(resident + s.refused.len() as u64),
            shed_bytes: Some(s.shed),
            ..Holdings::default()
        }
    }

    /// How many weights are resident, and why not more; once for each state of things.
    pub fn outcome(&self) -> Option<String> {
        let bytes = self.bytes();
        let mut s = self.state();
        let resident = s.entries.values().filter(|e| e.packed.is_some()).count();
        let offered = resident + s.refused.len();
        if offered == 0 {
            return None;
        }
        let mut text = format!("{resident} of {offered} weights resident ({} MB)", bytes >> 20);
        if let Some((_, why)) = s.refused.values().next() {
            text += &format!("; the others are packed for every micro-batch: {why}");
        }
        if s.shed > 0 {
            text += &format!("; {} MB given back under memory pressure", s.shed >> 20);
        }
        (s.told.replace(text.clone()) != Some(text.clone())).then_some(text)
    }
}

impl WeightKey {
    /// About the bytes it takes packed, on the hardware's grid.
    pub fn packed_bytes(&self) -> u64 {
        let [n, k] = self.shape;
        (n.next_multiple_of(16) * k.next_multiple_of(32) * self.numerics.bits() / 8) as u64
    }
}
