//! The stacks of experts that are resident, and the thread that makes them so.
//!
//! A stack is packed whole, beside the host: whoever asks meanwhile is told so and computes on the
//! CPU. The thread ends when nothing is left to pack, and with the last context that wants something:
//! the host may unload this library afterwards.

use super::ingest::{self, PackedFolder};
use super::{Absent, StackSource};
use crate::exec::WeightKey;
use crate::exec::pressure::Pressure;
use crate::exec::residency::Packed;
use crate::log::{Level, line};
use rocket_runtime::matmul::Npu;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

/// How stacks become resident.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// `ROCKET_MOE_WAIT`: wait for the packing instead of letting the CPU compute meanwhile.
    pub wait: bool,
    /// `ROCKET_MOE=1`: what cannot stay is packed for each call.
    pub stream: bool,
    /// Where packed experts are kept between runs.
    pub folder: Option<PackedFolder>,
    /// Threads that decode.
    pub threads: usize,
}

/// How a stack stands.
#[derive(Debug, Clone)]
pub enum Standing {
    /// All its experts, packed.
    Ready(Arc<Vec<Packed>>),
    /// Not there.
    Absent(Absent),
}

#[derive(Debug)]
struct Entry {
    owners: HashSet<u64>,
    source: StackSource,
    standing: Standing,
    /// Of the NPU's memory.
    bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    stacks: HashMap<WeightKey, Entry>,
    queue: VecDeque<WeightKey>,
    thread: Option<JoinHandle<()>>,
    running: bool,
    stop: bool,
    progress: ingest::Progress,
    /// What was last told.
    told: Option<String>,
    shed: u64,
    /// Bytes that were packed and that no op has reported yet.
    packed: u64,
    /// How often an expert was packed for one call.
    streamed: u64,
}

impl State {
    /// The next stack to be packed that is still wanted.
    fn next(&mut self) -> Option<(WeightKey, StackSource)> {
        if self.stop {
            return None;
        }
        let wanted = |key| Some((key, self.stacks.get(&key)?.source));
        std::iter::from_fn(|| self.queue.pop_front()).find_map(wanted)
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// A stack's standing changed.
    changed: Condvar,
    npu: Arc<OnceLock<Npu>>,
    rules: Rules,
    pressure: Pressure,
}

/// The resident stacks of one engine.
#[derive(Debug)]
pub struct Shelf {
    shared: Arc<Shared>,
}

impl Shelf {
    /// Nothing yet. `npu` is open when the first stack is asked for.
    pub fn new(npu: Arc<OnceLock<Npu>>, rules: Rules, pressure: Pressure) -> Shelf {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Shelf { shared: Arc::new(Shared { state, changed, npu, rules, pressure }) }
    }

    /// How they become resident.
    pub fn rules(&self) -> &Rules {
        &self.shared.rules
    }

    /// How a stack stands, after waiting for it if the rules say so; a new one is to be packed.
    pub fn find(&self, key: WeightKey, source: StackSource, owner: u64) -> Standing {
        let shared = &self.shared;
        let mut state = shared.state();
        if let Some(entry) = state.stacks.get_mut(&key) {
            entry.owners.insert(owner);
        } else {
            let standing = Standing::Absent(Absent::Packing);
            let owners = HashSet::from([owner]);
            state.stacks.insert(key, Entry { owners, source, standing, bytes: 0 });
            state.queue.push_back(key);
        }
        if !state.queue.is_empty() && !state.running {
            self.start(&mut state);
        }
        loop {
            let standing = state.stacks.get(&key).map(|e| e.standing.clone());
            let standing = standing.unwrap_or(Standing::Absent(Absent::NoRoom));
            let packing = matches!(standing, Standing::Absent(Absent::Packing));
            if !(packing && shared.rules.wait && state.running) {
                return standing;
            }
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn start(&self, state: &mut State) {
        // An earlier one has said its last word; its code must not be unloaded under it.
        if let Some(earlier) = state.thread.take() {
            let _ = earlier.join();
        }
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("rocket-experts".into());
        let started = thread.spawn(move || {
            rocket_runtime::device::leave_signals_to_others();
            shared.work();
        });
        match started {
            Ok(handle) => {
                state.running = true;
                state.thread = Some(handle);
            }
            // The CPU goes on computing; the next op tries again.
            Err(e) => line(Level::Warn, &format!("experts cannot be packed: {e}")),
        }
    }

    /// Drops what only `owner` used.
    pub fn release(&self, owner: u64) {
        let mut state = self.shared.state();
        state.stacks.retain(|_, e| {
            e.owners.remove(&owner);
            !e.owners.is_empty()
        });
        if state.stacks.is_empty() {
            state.queue.clear();
            state.stop = true;
            let thread = state.thread.take();
            drop(state);
            if let Some(thread) = thread {
                let _ = thread.join();
            }
            self.shared.state().stop = false;
        }
    }

    /// Bytes that were packed since this was last asked; those from the folder are not among them.
    pub fn take_packed(&self) -> u64 {
        std::mem::take(&mut self.shared.state().packed)
    }

    /// So many experts were packed for a single call.
    pub fn streamed(&self, experts: usize) {
        self.shared.state().streamed += experts as u64;
    }

    /// How often an expert was packed for a single call.
    pub fn times_streamed(&self) -> u64 {
        self.shared.state().streamed
    }

    /// Bytes of NPU memory.
    pub fn bytes(&self) -> u64 {
        self.shared.state().stacks.values().map(|e| e.bytes).sum()
    }

    /// Experts that are resident, and all that were asked for.
    pub fn counts(&self) -> [u64; 2] {
        let state = self.shared.state();
        let of = |e: &Entry| match &e.standing {
            Standing::Ready(all) => [all.len() as u64, all.len() as u64],
            Standing::Absent(_) => [0, e.source.experts as u64],
        };
        state.stacks.values().map(of).fold([0, 0], |[a, b], [x, y]| [a + x, b + y])
    }

    /// Gives whole stacks back until `short` bytes are free; the bytes that went. They do not come
    /// back: half a stack is of no use, and memory that was short once will be again.
    pub fn shed(&self, short: u64) -> u64 {
        let mut state = self.shared.state();
        let mut gone = 0;
        for entry in state.stacks.values_mut() {
            if gone >= short {
                break;
            }
            if let Standing::Ready(_) = entry.standing {
                gone += std::mem::take(&mut entry.bytes);
                entry.standing = Standing::Absent(Absent::NoRoom);
            }
        }
        state.shed += gone;
        drop(state);
        if gone > 0 {
            tracing::warn!(
                "memory is short: {} MB of experts were given back; the CPU computes them",
                gone >> 20
            );
        }
        gone
    }

    /// How many experts are resident; once for each state of things.
    pub fn outcome(&self) -> Option<String> {
        let ([resident, offered], bytes) = (self.counts(), self.bytes());
        let mut state = self.shared.state();
        if offered == 0 {
            return None;
        }
        let mut text = format!("{resident} of {offered} experts resident ({} MB)", bytes >> 20);
        let absent = |why| {
            let is = |e: &&Entry| matches!(&e.standing, Standing::Absent(a) if *a == why);
            state.stacks.values().filter(is).count()
        };
        match (absent(Absent::Packing), absent(Absent::NoRoom), absent(Absent::Unfit)) {
            (0, 0, 0) => {}
            (packing, 0, 0) => {
                text += &format!("; {packing} stacks were still to be packed when this ended");
            }
            (_, no_room, unfit) => {
                text += &format!(
                    "; {no_room} stacks found no room and {unfit} are not finite: the CPU computes \
                     them"
                );
            }
        }
        if state.shed > 0 {
            text += &format!("; {} MB given back under memory pressure", state.shed >> 20);
        }
        (state.told.replace(text.clone()) != Some(text.clone())).then_some(text)
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.stop = true;
        let thread = state.thread.take();
        drop(state);
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Whole at any time: each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Packs what is queued, until there is nothing more.
    fn work(&self) {
        let mut ingest = ingest::Ingest::new(&self.rules);
        loop {
            let mut state = self.state();
            let Some((key, source)) = state.next() else {
                let last = if state.stop { None } else { state.progress.finish() };
                state.running = false;
                self.changed.notify_all();
                drop(state);
                last.inspect(|text| line(Level::Info, text));
                return;
            };
            drop(state);
            // A defect in here must not leave those waiting who want it.
            let packed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                self.stack(&mut ingest, &key, &source)
            }))
            .unwrap_or_else(|_| {
                line(Level::Warn, "a defect of this plugin was caught while it packed experts");
                Err(Absent::NoRoom)
            });
            let mut state = self.state();
            if let Err(Absent::Packing) = packed {
                // Not what it was any more: whoever asks for it again has it packed again.
                state.stacks.remove(&key);
            } else if let Some(entry) = state.stacks.get_mut(&key) {
                (entry.standing, entry.bytes) = match packed {
                    Ok(all) => {
                        let bytes = all.iter().map(|p| p.tiles.bytes()).sum();
                        (Standing::Ready(Arc::new(all)), bytes)
                    }
                    Err(absent) => (Standing::Absent(absent), 0),
                };
            }
            self.changed.notify_all();
        }
    }

    fn stack(
        &self,
        ingest: &mut ingest::Ingest<'_>,
        key: &WeightKey,
        source: &StackSource,
    ) -> Result<Vec<Packed>, Absent> {
        let npu = self.npu.get().ok_or(Absent::NoRoom)?;
        if let Err(why) = self.pressure.admits(key.packed_bytes()) {
            line(Level::Notice, &format!("a stack of experts is left to the CPU: {why}"));
            return Err(Absent::NoRoom);
        }
        let mut all = Vec::with_capacity(source.experts);
        for expert in 0..source.experts {
            let wanted = {
                let state = self.state();
                !state.stop && state.stacks.contains_key(key)
            };
            if !wanted {
                return Err(Absent::Packing);
            }
            let one = ingest.expert(npu, key, source, expert)?;
            let mut state = self.state();
            let due = state.progress.count(one.stored, &self.rules);
            state.packed += if one.stored { 0 } else { one.packed.tiles.bytes() };
            drop(state);
            due.inspect(|text| line(Level::Info, text));
            all.push(one.packed);
        }
        Ok(all)
    }
}
