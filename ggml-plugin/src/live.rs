//! The live counters: what is told to [`Stats`](crate::stats::Stats), for tools that look while the
//! host runs (`docs/counters.md`). The file is made with the first thing that is told and not before:
//! a host that only lists devices leaves no trace.

use crate::exec::{Holdings, OpRecord, Redo};
use crate::knobs::Counters;
use crate::log::{Level, line};
use crate::route::{Label, OpFacts, Reason, Route};
use rocket_runtime::telemetry::{
    Directory, Image, Place, RowKey, Slot, TotalKind, Writer, writer_directories,
};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How often what an engine holds is asked for at most: it counts weights.
const EVERY: Duration = Duration::from_millis(100);

/// An op as far as counters tell ops apart.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// `None` for what nobody expects on an NPU.
    pub label: Option<Label>,
    /// Rows of activation.
    pub rows: i64,
    /// Multiply-accumulates.
    pub macs: u64,
}

impl Seen {
    /// Of an op's facts.
    pub fn of(facts: &OpFacts) -> Seen {
        Seen { label: facts.label(), rows: facts.rows(), macs: macs(facts) }
    }
}

/// Multiply-accumulates of an op, whoever computes it.
fn macs(facts: &OpFacts) -> u64 {
    let product = |all: &[i64]| all.iter().fold(1u64, |p, &n| p.saturating_mul(n.max(0) as u64));
    match facts {
        OpFacts::Nothing | OpFacts::Bias(_) | OpFacts::Copy(_) | OpFacts::Other => 0,
        OpFacts::MulMat(p) => product(&[p.weight.ne[0], p.weight.ne[1], facts.rows()]),
        // Every token meets as many experts as it has ids.
        OpFacts::MulMatId(e) => {
            let w = &e.product.weight;
            product(&[w.ne[0], w.ne[1], e.ids.ne[0], e.ids.ne[1]])
        }
        OpFacts::FlashAttn(a) => {
            let heads = [a.q.ne[1], a.q.ne[2], a.q.ne[3], a.k.ne[1]];
            product(&heads).saturating_mul((a.k.ne[0].max(0) + a.v.ne[0].max(0)) as u64)
        }
    }
}

/// The counters of one process, or none.
#[derive(Debug, Default)]
pub struct Live {
    place: Option<Vec<Directory>>,
    /// The user named the place.
    named: bool,
    facts: Vec<(&'static str, String)>,
    open: OnceLock<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    writer: Writer,
    slots: Slots,
    engine: Mutex<Engine>,
}

/// What was last known of the engine.
#[derive(Debug, Default)]
struct Engine {
    asked: Option<Instant>,
    shed: u64,
    experts: u64,
    given_up: bool,
}

/// Totals that every op adds to.
#[derive(Debug)]
struct Slots {
    macs: Slot,
    padding: Slot,
    submits: Slot,
    jobs: Slot,
    tasks: Slot,
    retries: Slot,
    packed: Slot,
    times: [Slot; 4],
    asked: [[Slot; 2]; 2],
}

impl Slots {
    fn claim(image: &mut Image) -> Slots {
        let mut counter = |name, unit| image.total(name, unit, TotalKind::Counter);
        Slots {
            macs: counter("npu.macs", "MAC"),
            padding: counter("npu.padding_macs", "MAC"),
            submits: counter("npu.submits", "1"),
            jobs: counter("npu.jobs", "1"),
            tasks: counter("npu.tasks", "1"),
            retries: counter("npu.retries", "1"),
            packed: counter("bytes.packed", "B"),
            times: ["time.pack", "time.convert", "time.npu", "time.results"]
                .map(|name| counter(name, "ns")),
            asked: [
                ["asked.accepted", "asked.accepted_macs"],
                ["asked.declined", "asked.declined_macs"],
            ]
            .map(|[ops, macs]| [counter(ops, "1"), counter(macs, "MAC")]),
        }
    }
}

impl Live {
    /// As the setting says; `facts` are about the process.
    pub fn new(setting: &Counters, facts: Vec<(&'static str, String)>) -> Live {
        let place = match setting {
            Counters::Off => None,
            Counters::On => Some(writer_directories(|name| std::env::var_os(name))),
            Counters::In(path) => Some(vec![Directory::existing(path)]),
        };
        let named = matches!(setting, Counters::In(_));
        Live { place, named, facts, open: OnceLock::new() }
    }

    /// Makes the file if there is to be one. False when there is none.
    pub fn begin(&self) -> bool {
        self.open().is_some()
    }

    fn open(&self) -> Option<&Open> {
        let open = || {
            let facts: Vec<_> = self.facts.iter().map(|(k, v)| (*k, v.as_str())).collect();
            let writer = match Writer::create(self.place.as_ref()?, &facts) {
                Ok(writer) => writer,
                Err(why) => {
                    // Nobody asked for the usual ones.
                    let level = if self.named { Level::Warn } else { Level::Debug };
                    line(level, &why.to_string());
                    return None;
                }
            };
            let slots = writer.update(Slots::claim)?;
            Some(Open { writer, slots, engine: Mutex::default() })
        };
        self.open.get_or_init(open).as_ref()
    }

    /// An op was computed, in so many nanoseconds.
    pub fn computed(&self, seen: &Seen, route: Route, done: Result<&OpRecord, Redo>, ns: u64) {
        let Some(Open { writer, slots, .. }) = self.open() else { return };
        writer.update(|image| {
            let (place, outcome) = match done {
                Ok(_) => (Place::Npu, route.name()),
                Err(redo) => (Place::Redone, redo.name()),
            };
            row(image, seen, place, outcome, ns);
            let (family, name) = if done.is_ok() { ("ops.", outcome) } else { ("redo.", outcome) };
            let so_far = one(image, family, name);
            let r = match done {
                Ok(record) => record,
                Err(redo) => {
                    one(image, "ops.", "cpu");
                    // A broken board must not drive out every other event.
                    if so_far == 1 {
                        image.event_now(redo.name(), redo.sentence());
                    }
                    return;
                }
            };
            let t = &r.times;
            let times = [t.pack_ns, t.convert_ns, t.npu_ns, t.results_ns];
            for (slot, more) in [
                (slots.macs, r.macs),
                (slots.padding, r.padding_macs),
                (slots.submits, r.submits),
                (slots.jobs, r.jobs),
                (slots.tasks, r.tasks),
                (slots.retries, r.retries),
                (slots.packed, r.packed_bytes),
            ]
            .into_iter()
            .chain(slots.times.into_iter().zip(times))
            {
                image.add(slot, more);
            }
            if let Some(board) = &r.board {
                let dma = image.total("bytes.dma", "B", TotalKind::Counter);
                image.add(dma, board.dma_bytes);
            }
            if r.retries > 0 {
                image.event_now("job_lost", "a lost job was run again, and then ran");
            }
        });
    }

    /// A node that was no product ran on the CPU.
    pub fn foreign(&self, redo: Redo) {
        self.update(|image| {
            one(image, "redo.", redo.name());
            one(image, "ops.", "cpu");
        });
    }

    /// The host asked for an op, and was told where it goes.
    pub fn asked(&self, seen: &Seen, declined: Option<Reason>) {
        if seen.label.is_none() {
            return;
        }
        let Some(Open { writer, slots, .. }) = self.open() else { return };
        writer.update(|image| {
            let [ops, macs] = slots.asked[usize::from(declined.is_some())];
            image.add(ops, 1);
            image.add(macs, seen.macs);
            if let Some(reason) = declined {
                row(image, seen, Place::Declined, reason.name(), 0);
            }
        });
        writer.publish_if_due();
    }

    /// Something that people want to know of.
    pub fn event(&self, code: &str, text: &str) {
        self.update(|image| image.event_now(code, text));
    }

    /// Something ended: writes what was counted, with what the engine holds. `now`: whatever that
    /// costs, for it is the last time.
    pub fn publish(&self, now: bool, engine: Option<&dyn crate::exec::Engine>) {
        let Some(open) = self.open.get().and_then(Option::as_ref) else { return };
        if let (Some(engine), Ok(mut last)) = (engine, open.engine.try_lock()) {
            open.look(&mut last, now, engine);
        }
        if now {
            open.writer.publish();
        } else {
            open.writer.publish_if_due();
        }
    }

    fn update(&self, f: impl FnOnce(&mut Image)) {
        if let Some(open) = self.open() {
            open.writer.update(f);
        }
    }
}

impl Open {
    fn look(&self, last: &mut Engine, now: bool, engine: &dyn crate::exec::Engine) {
        if !now && last.asked.is_some_and(|t| t.elapsed() < EVERY) {
            return;
        }
        last.asked = Some(Instant::now());
        let Holdings {
            resident_bytes,
            resident,
            offered,
            experts,
            experts_offered,
            experts_streamed: _,
            shed_bytes,
            workers,
        } = engine.holdings();
        let given_up = !engine.available();
        self.writer.update(|image| {
            for (name, unit, value) in [
                ("bytes.resident", "B", resident_bytes),
                ("weights.resident", "1", resident),
                ("weights.offered", "1", offered),
                ("experts.resident", "1", experts),
                ("experts.offered", "1", experts_offered),
                ("workers", "1", workers),
            ] {
                if let Some(value) = value {
                    let slot = image.total(name, unit, TotalKind::Gauge);
                    image.set(slot, value);
                }
            }
            let shed = shed_bytes.unwrap_or(0);
            if shed > last.shed {
                let text = format!("{} MB of weights given back", (shed - last.shed) >> 20);
                image.event_now("memory_pressure", &text);
            }
            let [packed, all] = [experts, experts_offered].map(|n| n.unwrap_or(0));
            if packed > last.experts {
                image.event_now("experts_packed", &format!("{packed} of {all} experts resident"));
            }
            last.experts = packed;
            if given_up && !last.given_up {
                image.event_now("npu_given_up", "it is left alone until this process ends");
            }
            (last.shed, last.given_up) = (shed, given_up);
        });
    }
}

/// The code of an engine's error.
pub(crate) fn code(e: &rocket_runtime::Error) -> &'static str {
    use rocket_runtime::Error as E;
    match e {
        E::Timeout { .. } => "job_timeout",
        E::JobLost { .. } => "job_lost",
        E::Memory { .. } => "no_memory",
        E::Driver { .. } => "driver_error",
        _ => "error",
    }
}

/// Counts one; the sum.
fn one(image: &mut Image, family: &str, name: &str) -> u64 {
    let slot = image.named(family, name, "1", TotalKind::Counter);
    image.add(slot, 1);
    image.value(slot)
}

fn row(image: &mut Image, seen: &Seen, place: Place, outcome: &str, ns: u64) {
    let Some(Label { op, dtype, shape: [k, n] }) = seen.label else { return };
    let weight = dtype.name();
    let wide = |x: i64| x.max(0) as u64;
    let key = RowKey {
        place,
        op,
        weight: &weight,
        k: wide(k),
        n: wide(n),
        rows: wide(seen.rows),
        outcome,
    };
    image.count(&key, 1, seen.macs, ns);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::{Done, Engine as Npu, MatMul};
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// Holds as many experts of 8 as is said, and has given so many MB back.
    #[derive(Debug, Default)]
    struct Fake {
        experts: AtomicU64,
        shed: AtomicU64,
    }

    impl Npu for Fake {
        fn mul_mat(&self, job: MatMul<'_>) -> Result<Done, rocket_runtime::Error> {
            panic!("{job:?}")
        }

        fn holdings(&self) -> Holdings {
            Holdings {
                experts: Some(self.experts.load(Relaxed)),
                experts_offered: Some(8),
                shed_bytes: Some(self.shed.load(Relaxed) << 20),
                ..Holdings::default()
            }
        }
    }

    /// Each step of what an engine holds once, and nothing when nothing happened.
    #[test]
    fn what_becomes_of_weights_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let live = Live::new(&Counters::In(dir.path().to_owned()), vec![]);
        assert!(live.begin());
        let fake = Fake::default();
        for (experts, shed) in [(0, 0), (4, 0), (4, 0), (8, 0), (8, 3), (4, 3), (8, 3)] {
            fake.experts.store(experts, Relaxed);
            fake.shed.store(shed, Relaxed);
            live.publish(true, Some(&fake));
        }
        let file = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
        let s = rocket_runtime::telemetry::read(&file).unwrap();
        let told: Vec<_> = s.events.iter().map(|e| format!("{}: {}", e.code, e.text)).collect();
        let (half, whole) =
            ("experts_packed: 4 of 8 experts resident", "experts_packed: 8 of 8 experts resident");
        assert_eq!(told, [half, whole, "memory_pressure: 3 MB of weights given back", whole]);
    }
}
