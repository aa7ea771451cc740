//! `rocket-top`: a terminal monitor that says what the NPU does, and why an op is not on it.
//!
//! [`source`] reads [`sample`]s below a root path, [`rate`] makes figures of two of them, [`frame`] is what is shown,
//! [`screen`] draws it, [`app`] is what the keys do, [`output`] is the same without a screen.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod app;
pub mod frame;
mod generate;
mod live;
pub mod output;
pub mod rate;
pub mod record;
pub mod sample;
pub mod screen;
pub mod source;

use anyhow::{Context, Result, bail};
use clap::Parser;
use frame::Frame;
use record::{Recorder, Replay};
use sample::Sample;
use source::{Collector, Places};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Terminal monitor for Rockchip NPUs on mainline Linux.
///
/// Shows how busy each core is and by which source that is known, clock and heat, the processes that use the NPU, and
/// for every kind of op where it ran and why. Keys: ? in the program.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Arguments {
    /// Look at a tree or a report in place of this machine.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// The simulated board of that root, as `rocketctl sim serve` prints it; processes are this machine's.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["root", "trace"])]
    sim: Option<PathBuf>,
    /// Also look for counters in this folder: where ROCKET_COUNTERS puts them.
    #[arg(long, value_name = "DIR")]
    counters: Vec<PathBuf>,
    /// This process alone.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Time between samples, in ms.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    interval: u64,
    /// Print what there is to see as text, and end. Takes two samples, an interval apart.
    #[arg(long)]
    once: bool,
    /// Print a JSON object a sample; with --once one.
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,
    /// Print Prometheus's text format, and end.
    #[arg(long)]
    prometheus: bool,
    /// Also write every sample to a new file.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Show a recording.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["record", "root", "sim", "trace"])]
    replay: Option<PathBuf>,
    /// True busy time on an unpatched driver, by a tracing instance of the kernel's that is removed at the end. As root.
    #[arg(long)]
    trace: bool,
    /// No colours, as with NO_COLOR.
    #[arg(long)]
    monochrome: bool,
}

/// Where samples come from.
#[derive(Debug)]
enum Feed {
    Live(Box<Collector>, Option<Recorder>),
    Replay(Replay),
}

impl Feed {
    fn open(a: &Arguments) -> Result<Feed> {
        if let Some(path) = &a.replay {
            return Ok(Feed::Replay(Replay::open(path)?));
        }
        let (root, processes) = match &a.sim {
            Some(board) => (board.clone(), PathBuf::from("/")),
            None => (a.root.clone(), a.root.clone()),
        };
        let recorder = a.record.as_deref().map(Recorder::create).transpose()?;
        Ok(Feed::Live(
            Box::new(Collector::new(&Places {
                root,
                processes,
                counters: a.counters.clone(),
                trace: a.trace,
            })?),
            recorder,
        ))
    }

    /// None at the end of a recording.
    fn sample(&mut self) -> Result<Option<Sample>> {
        match self {
            Feed::Replay(replay) => replay.sample(),
            Feed::Live(collector, recorder) => {
                let sample = collector.sample();
                if let Some(recorder) = recorder {
                    recorder.write(&sample)?;
                }
                Ok(Some(sample))
            }
        }
    }

    fn is_live(&self) -> bool {
        matches!(self, Feed::Live(..))
    }
}

/// The program.
pub fn main() -> ExitCode {
    let (arguments, generated) = match generate::parse() {
        Ok(parsed) => parsed,
        Err(e) => {
            // Nobody to tell when that is closed as well.
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { 2 } else { 0 });
        }
    };
    let done = match generated {
        Some(what) => generate::text(what).and_then(|text| print(&text).map(|_| ())),
        None => run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("rocket-top: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn run(a: &Arguments) -> Result<()> {
    let mut feed = Feed::open(a)?;
    let interval = Duration::from_millis(a.interval);
    if a.once || a.prometheus {
        return once(a, &mut feed, interval);
    }
    if a.json {
        return stream(a, &mut feed, interval);
    }
    let no_color = a.monochrome || std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    live::run(&mut feed, interval, a.pid, no_color)
}

fn once(a: &Arguments, feed: &mut Feed, interval: Duration) -> Result<()> {
    let mut last = (None, feed.sample()?.context("the recording has no sample")?);
    if feed.is_live() {
        std::thread::sleep(interval);
    }
    while let Some(sample) = feed.sample()? {
        last = (Some(last.1), sample);
        if feed.is_live() {
            break;
        }
    }
    let frame = Frame::new(last.0.as_ref(), &last.1, a.pid);
    if let Some(pid) = a.pid
        && frame.processes.is_empty()
    {
        bail!("no process {pid} uses the NPU or counts; leave --pid out to see which do");
    }
    let text = match () {
        () if a.prometheus => output::prometheus(&frame),
        () if a.json => serde_json::to_string(&frame)? + "\n",
        () => {
            let lines = 16 + frame.cores.len() + 2 * frame.processes.len() + frame.routing.len();
            output::text(frame, (120, lines.clamp(24, 200) as u16))?
        }
    };
    print(&text)?;
    Ok(())
}

fn stream(a: &Arguments, feed: &mut Feed, interval: Duration) -> Result<()> {
    let mut before = None;
    loop {
        let begun = Instant::now();
        let Some(sample) = feed.sample()? else { return Ok(()) };
        let frame = Frame::new(before.as_ref(), &sample, a.pid);
        if !print(&(serde_json::to_string(&frame)? + "\n"))? {
            return Ok(());
        }
        before = Some(sample);
        if feed.is_live() {
            std::thread::sleep(interval.saturating_sub(begun.elapsed()));
        }
    }
}

/// False when the reader has seen enough.
fn print(text: &str) -> Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        done => Ok(done.map(|()| true)?),
    }
}
