//! Where readings come from. Each source fills its part of a [`Sample`]; which one a figure is made of is decided
//! later, from what both samples have.

mod clients;
mod cores;
mod hosts;
mod machine;
mod trace;

use crate::sample::{Raw, Sample};
use anyhow::{Context, Result};
use rocket_runtime::board::Root;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// One place to read.
pub trait Source: std::fmt::Debug {
    /// Fills its part. What cannot be read says why.
    fn fill(&mut self, root: &Root, sample: &mut Sample);
}

/// What to look at.
#[derive(Debug, Clone)]
pub struct Places {
    /// The board: `/`, a tree, or a simulated board's.
    pub root: PathBuf,
    /// Below which processes and their counters are: `/` with a simulated board.
    pub processes: PathBuf,
    /// Folders in which counters are as well.
    pub counters: Vec<PathBuf>,
    /// Trace jobs (a private instance of the kernel's tracing, as root).
    pub trace: bool,
}

/// Reads samples.
#[derive(Debug)]
pub struct Collector {
    root: Root,
    sources: Vec<Box<dyn Source>>,
}

impl Collector {
    /// Nothing is read yet.
    ///
    /// # Errors
    /// A root that is not there.
    pub fn new(places: &Places) -> Result<Collector> {
        let root =
            Root::open(&places.root).with_context(|| format!("{}", places.root.display()))?;
        let mut sources: Vec<Box<dyn Source>> = vec![
            Box::new(machine::Machine::default()),
            Box::new(cores::Cores),
            Box::new(hosts::Hosts::new(&places.processes, &places.counters)),
        ];
        // A simulated board's files are sockets of another program, and not in /proc.
        if places.root == places.processes {
            sources.push(Box::new(clients::Clients::below(&places.processes)));
        }
        if places.trace {
            sources.push(Box::new(trace::Trace::start(&places.root)?));
        }
        Ok(Collector { root, sources })
    }

    /// One moment.
    pub fn sample(&mut self) -> Sample {
        let clients = Raw::Why("a simulated board is not in /proc".into());
        let mut sample = Sample { boot: boot(&self.root), clients, ..clocks() };
        for source in &mut self.sources {
            source.fill(&self.root, &mut sample);
        }
        sample
    }
}

fn boot(root: &Root) -> String {
    root.text("proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// The clocks of this machine, whatever tree is looked at.
fn clocks() -> Sample {
    use rustix::time::{ClockId, clock_gettime};
    let ns = |clock| {
        let t = clock_gettime(clock);
        t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
    };
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Sample {
        boottime_ns: ns(ClockId::Boottime),
        monotonic_ns: ns(ClockId::Monotonic),
        wall_ms: wall.as_millis() as u64,
        ..Sample::default()
    }
}

/// A small file's text without the line end, at most `most` bytes of it.
fn small(path: &Path, most: u64) -> std::io::Result<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}
