//! The counters of hosts that use the plugin (docs/counters.md).

use super::Source;
use crate::sample::{Event, Host, Row, Sample};
use rocket_runtime::board::Root;
use rocket_runtime::telemetry::{self, Keep, Life, Place, Snapshot};
use std::path::{Path, PathBuf};

/// Ticks between two times that left-over files of the dead are removed.
const SWEEP: u32 = 30;

/// See the module.
#[derive(Debug)]
pub struct Hosts {
    root: PathBuf,
    more: Vec<PathBuf>,
    ticks: u32,
}

impl Hosts {
    /// Of the processes below a root, and in these folders.
    pub fn new(root: &Path, more: &[PathBuf]) -> Hosts {
        Hosts { root: root.into(), more: more.to_vec(), ticks: 0 }
    }
}

impl Source for Hosts {
    fn fill(&mut self, _root: &Root, sample: &mut Sample) {
        let live = self.root == Path::new("/");
        let own = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| live).map(PathBuf::from);
        let mut directories = telemetry::directories(&self.root, own.as_deref());
        directories.extend(self.more.iter().cloned());
        if live && self.ticks.is_multiple_of(SWEEP) {
            telemetry::clean(&directories, &Keep::default());
        }
        self.ticks = self.ticks.wrapping_add(1);
        for found in telemetry::scan(&directories) {
            match found.figures {
                Ok(figures) => sample.hosts.push(host(figures)),
                Err(why) => {
                    sample.refused.push((found.path.display().to_string(), why.to_string()))
                }
            }
        }
    }
}

fn host(s: Snapshot) -> Host {
    let place = |p: Place| match p {
        Place::Npu => "npu",
        Place::Redone => "redone",
        Place::Declined => "declined",
        Place::Other => "other",
    };
    Host {
        id: s.process.id.iter().map(|b| format!("{b:02x}")).collect(),
        pid: s.process.pid,
        alive: match s.life {
            Life::Alive => Some(true),
            Life::Dead => Some(false),
            Life::Unknown(_) => None,
        },
        updated_ns: s.updated,
        facts: s.facts.into_iter().collect(),
        totals: s.totals.into_iter().map(|t| (t.name, t.value)).collect(),
        rows: s
            .rows
            .into_iter()
            .map(|r| Row {
                place: place(r.place).into(),
                op: r.op,
                weight: r.weight,
                outcome: r.outcome,
                k: r.k,
                n: r.n,
                rows: r.rows,
                calls: r.calls,
                macs: r.macs,
                ns: r.ns,
            })
            .collect(),
        events: s
            .events
            .into_iter()
            .map(|e| Event { number: e.number, time_ns: e.time, code: e.code, text: e.text })
            .collect(),
    }
}
