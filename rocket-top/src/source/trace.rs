//! True busy time without any patch: the kernel's `gpu_scheduler` events, in a tracing instance of our own
//! (kernel-and-uapi D.7). As root, and only where it was asked for: making an instance changes the kernel's state until
//! it is removed again.

use super::Source;
use crate::sample::{Raw, Sample, TimeSource};
use anyhow::{Context, Result, bail};
use rocket_runtime::board::Root;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Most that is read of the pipe in one tick, and most jobs that are waited for.
const MOST: usize = 4 << 20;
const MOST_OPEN: usize = 4096;

/// An instance, removed when this is dropped.
#[derive(Debug)]
pub struct Trace {
    instance: PathBuf,
    pipe: File,
    rest: Vec<u8>,
    pairs: Pairs,
}

impl Trace {
    /// Makes the instance and turns the events on.
    ///
    /// # Errors
    /// What the kernel says, and what is needed.
    pub fn start(root: &Path) -> Result<Trace> {
        let tracing = root.join("sys/kernel/tracing");
        if !tracing.join("events/gpu_scheduler").is_dir() {
            bail!(
                "{}: the kernel has no gpu_scheduler events there, or this is not root",
                tracing.display()
            );
        }
        let instance = tracing.join(format!("instances/rocket-top-{}", std::process::id()));
        fs::create_dir(&instance)
            .with_context(|| format!("{}: a tracing instance", instance.display()))?;
        let set_up = || -> Result<File> {
            let write = |file: &str, text: &str| {
                fs::write(instance.join(file), text)
                    .with_context(|| format!("{file} of a tracing instance"))
            };
            write("trace_clock", "mono")?;
            write("events/gpu_scheduler/drm_sched_job_run/enable", "1")?;
            write("events/gpu_scheduler/drm_sched_job_done/enable", "1")?;
            let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
            let pipe = instance.join("trace_pipe");
            OpenOptions::new().read(true).custom_flags(flags).open(pipe).context("trace_pipe")
        };
        match set_up() {
            Ok(pipe) => Ok(Trace { instance, pipe, rest: Vec::new(), pairs: Pairs::default() }),
            Err(e) => {
                let _ = fs::remove_dir(&instance);
                Err(e)
            }
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // What stays is said by the kernel's own files; there is nobody left to tell.
        let _ = fs::remove_dir(&self.instance);
    }
}

impl Source for Trace {
    fn fill(&mut self, _root: &Root, sample: &mut Sample) {
        let mut block = vec![0; 64 << 10];
        let mut read = 0;
        while read < MOST {
            match self.pipe.read(&mut block) {
                Ok(0) => break,
                Ok(n) => {
                    read += n;
                    self.rest.extend_from_slice(&block[..n]);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        while let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            self.pairs.line(&String::from_utf8_lossy(&line));
        }
        self.rest.truncate(1 << 16);
        for core in &mut sample.cores {
            let busy = self.pairs.busy(&core.name, sample.monotonic_ns);
            core.time.insert(TimeSource::Trace, Raw::Value(busy));
        }
    }
}

/// Jobs that run, and the busy time of cores so far.
#[derive(Debug, Default)]
pub struct Pairs {
    /// By fence: the core and when the job was dispatched, ns.
    running: BTreeMap<String, (String, u64)>,
    busy: BTreeMap<String, u64>,
}

impl Pairs {
    /// One line of the trace. Fields are found by their names: their order and number change between releases.
    pub fn line(&mut self, line: &str) {
        let field = |name: &str| {
            let at =
                line.match_indices(name).find(|(i, _)| line[..*i].ends_with([' ', ',', ':']))?.0;
            let value = &line[at + name.len()..];
            Some(value.split([',', ' ', '\n']).next().unwrap_or(value).to_owned())
        };
        let Some(fence) = field("fence=") else { return };
        let Some(at) = seconds(line) else { return };
        if line.contains("drm_sched_job_run:") || line.contains("drm_run_job:") {
            let Some(core) = field("dev=").filter(|d| d.ends_with(".npu")) else { return };
            if self.running.len() < MOST_OPEN {
                self.running.insert(fence, (core, at));
            }
        } else if (line.contains("drm_sched_job_done:") || line.contains("drm_sched_process_job:"))
            && let Some((core, since)) = self.running.remove(&fence)
        {
            *self.busy.entry(core).or_default() += at.saturating_sub(since);
        }
    }

    /// ns that a core was busy, those of what runs now included.
    pub fn busy(&self, core: &str, now: u64) -> u64 {
        let running = self
            .running
            .values()
            .filter(|(c, _)| c == core)
            .map(|(_, since)| now.saturating_sub(*since));
        // Jobs are dispatched before the one in front has ended: a core is busy once.
        self.busy.get(core).copied().unwrap_or(0) + running.max().unwrap_or(0)
    }
}

/// `… [001] ..... 12.345678: drm_…` in ns.
fn seconds(line: &str) -> Option<u64> {
    let word = line.split_whitespace().find(|w| {
        w.strip_suffix(':')
            .is_some_and(|t| t.contains('.') && t.chars().all(|c| c.is_ascii_digit() || c == '.'))
    })?;
    let (whole, part) = word.trim_end_matches(':').split_once('.')?;
    let nanos: u64 = format!("{part:0<9}").get(..9)?.parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = " rocket-12 [001] ..... 10.500000: drm_sched_job_run: dev=fdab0000.npu, fence=7:3, ring=fdab0000.npu, job count:1, hw job count:0, client_id:5\n";
    const DONE: &str = " irq/35-1 [000] d.h1. 10.740000: drm_sched_job_done: fence=7:3 signaled\n";

    #[test]
    fn jobs_are_paired_by_fence() {
        let mut pairs = Pairs::default();
        pairs.line(RUN);
        assert_eq!(pairs.busy("fdab0000.npu", 10_600_000_000), 100_000_000, "it runs");
        pairs.line(DONE);
        pairs.line(DONE);
        assert_eq!(pairs.busy("fdab0000.npu", 11_000_000_000), 240_000_000);
        assert_eq!(pairs.busy("fdac0000.npu", 11_000_000_000), 0);
        // Another driver's, another order of fields, and noise.
        pairs.line(&RUN.replace("dev=fdab0000.npu", "dev=fb000000.gpu"));
        pairs.line(" x [0] . 11.0: drm_sched_job_run: fence=8:1, client_id:2, dev=fdac0000.npu\n");
        pairs.line(" x [0] . 11.25: drm_sched_job_done: fence=8:1 signaled\n");
        pairs.line("CPU:0 [LOST 12 EVENTS]\n");
        pairs.line(": . drm_sched_job_done: fence=");
        assert_eq!(pairs.busy("fdac0000.npu", 12_000_000_000), 250_000_000);
        assert_eq!(pairs.busy("fdab0000.npu", 12_000_000_000), 240_000_000);
    }

    #[test]
    fn times() {
        assert_eq!(seconds(" a [0] 1.5: x"), Some(1_500_000_000));
        assert_eq!(seconds(" a [0] 1.000001234567: x"), Some(1_000_001_234));
        assert_eq!(seconds("nothing here"), None);
    }
}
