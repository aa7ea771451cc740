//! `faults`: every driver call of a small graph fails once, and every job goes wrong once, each in
//! a process of its own on a simulated board of its own. The result stays right, or an error says
//! so; never a crash, a hang or wrong numbers.

use crate::ggml::{Backend, Type};
use crate::model::{Model, Place, Shape};
use crate::{Setup, attention, experts, report};
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The tool that serves the board.
    #[arg(long, value_name = "FILE")]
    rocketctl: PathBuf,
    /// The library that puts a program on it, if it does not lie beside the tool.
    #[arg(long, value_name = "FILE")]
    preload: Option<PathBuf>,
    /// Only faults whose text begins so.
    #[arg(long, default_value = "")]
    only: String,
    /// A graph of products with experts.
    #[arg(long)]
    experts: bool,
    /// Runs at once.
    #[arg(long, default_value_t = 4)]
    jobs: usize,
    /// Seconds after which a run counts as hanging.
    #[arg(long, default_value_t = 60)]
    patience: u64,
}

/// What a run on a faulty board came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// Right, by the NPU alone.
    Npu,
    /// Right, some of it by the CPU.
    Cpu,
    /// The plugin offered no device, with a reason, and the host went on.
    NoDevice,
    /// Anything else.
    Bad,
}

/// What `once` prints for each of them but the last.
const SAID: &[(&str, Outcome)] = &[
    ("once: right on the NPU", Outcome::Npu),
    ("once: right with the CPU", Outcome::Cpu),
    ("once: right without a device", Outcome::NoDevice),
];

/// Faults by number, until a run no longer meets one.
const KINDS: &[(&str, &str)] = &[
    ("fail:open:", ":EMFILE"),
    ("fail:version:", ":ENODEV"),
    ("fail:create-bo:", ":ENOMEM"),
    ("fail:mmap:", ":ENOMEM"),
    ("fail:submit:", ":EINVAL"),
    ("fail:submit:", ":ENOMEM"),
    ("fail:prep-bo:", ":EINTR"),
    ("fail:prep-bo:", ":EBUSY"),
    ("fail:fini-bo:", ":EINVAL"),
    ("fail:close-bo:", ":ENODEV"),
    ("reject-job:", ""),
    ("drop-job:", ""),
    ("hang-job:", ""),
    ("lose-interrupt:", ""),
    ("iommu-fault:", ""),
    ("vanish:", ""),
];

/// Two weights, and one of them twice: resident, streamed and reused.
const SHAPE: Shape = Shape { m: 9, k: 96, n: 80, weights: 2 };

/// The graph on whatever NPU there is, or on the CPU if there is none.
///
/// # Errors
/// Those of the host.
pub fn once(setup: &Setup, expect_npu: bool) -> Result<bool> {
    let host = setup.host;
    let models = [Model::new(host, Type::F16, SHAPE, 1)?, Model::new(host, Type::F16, SHAPE, 2)?];
    let mut right = true;
    let device = setup.device.unwrap_or(host.cpu());
    for (own, other) in [(&models[0], &models[1]), (&models[1], &models[0])] {
        let results = own.loaded(host, Place::Anywhere, |loaded| {
            let backend = Backend::new(host, device)?;
            loaded.compute(&backend)?;
            loaded.compute(&backend)
        })?;
        right &= own.deviation(&results).passes() && !other.deviation(&results).passes();
    }
    right &= attention::small(host, device)?;
    if !right {
        return Ok(false);
    }
    let said = said(setup, &["fp16", "attention"])?;
    Ok(!expect_npu || said == Outcome::Npu)
}

/// Products with experts, as [`once`].
///
/// # Errors
/// Those of the host.
pub fn once_with_experts(setup: &Setup) -> Result<bool> {
    let right = experts::small(setup.host, setup.device.unwrap_or(setup.host.cpu()))?;
    if right {
        said(setup, &["experts-int8", "experts-fp16"])?;
    }
    Ok(right)
}

/// Says by what the right result came; without a fault, by all of these routes.
fn said(setup: &Setup, routes: &[&str]) -> Result<Outcome> {
    let said = match setup.device {
        None => Outcome::NoDevice,
        Some(_) => {
            let report = report::read(&setup.report)?;
            let of = |route: &str| report.routes.get(route).copied().unwrap_or(0);
            let (cpu, npu) = (of("cpu"), routes.iter().map(|r| (*r, of(r))).collect::<Vec<_>>());
            println!("by the NPU {npu:?}, {cpu} by the CPU {:?}", report.redos);
            if let Some((route, _)) = npu.iter().find(|(_, count)| cpu == 0 && *count == 0) {
                bail!("nothing went by {route}");
            }
            if cpu == 0 { Outcome::Npu } else { Outcome::Cpu }
        }
    };
    SAID.iter().filter(|(_, o)| *o == said).for_each(|(text, _)| println!("{text}"));
    Ok(said)
}

struct Run {
    outcome: Outcome,
    /// Faults that the board met.
    met: u64,
    text: String,
    took: Duration,
}

/// Waits, and ends what takes too long.
fn wait(child: &mut std::process::Child, patience: Duration) -> Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() > patience {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn one(host: &Path, plugin: &Path, arguments: &Arguments, fault: Option<&str>) -> Result<Run> {
    let scratch = tempfile::tempdir()?;
    let (status_file, log) = (scratch.path().join("status.json"), scratch.path().join("log"));
    let output = std::fs::File::create(&log)?;
    let begun = Instant::now();
    let mut command = Command::new(&arguments.rocketctl);
    command.args(["sim", "run", "--status"]).arg(&status_file);
    if let Some(fault) = fault {
        command.args(["--fault", fault]);
    }
    command.arg("--").arg(std::env::current_exe()?);
    command.arg("--host").arg(host).arg("--plugin").arg(plugin).arg("once");
    if arguments.experts {
        command.arg("--experts");
    }
    if let Some(preload) = &arguments.preload {
        command.env("ROCKET_SIM_PRELOAD", preload);
    }
    // Measuring the crossover belongs to boards that have a speed.
    command.env("ROCKET_N_THREADS", "2").env("ROCKET_CALIBRATE", "0");
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let mut child = command.spawn().context("cannot start rocketctl")?;
    let status = wait(&mut child, Duration::from_secs(arguments.patience))?;
    let took = begun.elapsed();
    let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
    let said = SAID.iter().find(|(words, _)| text.contains(words)).map(|(_, o)| *o);
    let outcome = match (status, said) {
        (Some(status), Some(said)) if status.success() => said,
        _ => Outcome::Bad,
    };
    let met = match std::fs::read(&status_file) {
        Ok(bytes) => {
            let v: serde_json::Value = serde_json::from_slice(&bytes)?;
            v["counters"]["faults"].as_u64().context("no counters.faults in the status")?
        }
        Err(_) => 0,
    };
    let text = match status {
        Some(status) => format!("{text}\n{status}"),
        None => format!("{text}\nended after {} s: it hangs", arguments.patience),
    };
    Ok(Run { outcome, met, text, took })
}

/// Most faults of one kind: a run that meets more is not the small graph of this file.
const MOST: u64 = 500;

/// The loop. True if every run ended well.
///
/// # Errors
/// A run could not be started.
pub fn run(host: &Path, plugin: &Path, arguments: &Arguments) -> Result<bool> {
    let begun = Instant::now();
    let healthy = one(host, plugin, arguments, None)?;
    if healthy.outcome != Outcome::Npu || healthy.met != 0 {
        bail!("without a fault it does not run on the NPU:\n{}", healthy.text);
    }
    println!("without a fault: right on the NPU, {} ms", healthy.took.as_millis());
    let kinds: Vec<_> = KINDS.iter().filter(|(k, _)| k.starts_with(&arguments.only)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let take = || kinds.get(next.fetch_add(1, Ordering::Relaxed));
        let mut done = Vec::new();
        while let Some(kind) = take() {
            done.push(each(host, plugin, arguments, kind)?);
        }
        anyhow::Ok(done)
    };
    // Hung jobs mostly wait.
    let done = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.jobs).map(|_| scope.spawn(work)).collect();
        let join = |w: std::thread::ScopedJoinHandle<'_, Result<Vec<Tally>>>| {
            w.join().unwrap_or_else(|_| bail!("a thread panicked"))
        };
        workers.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let mut all = Tally::default();
    done.iter().flatten().for_each(|t| all.add(t));
    println!("{} runs: {}; longest {} ms", all.runs, all.words(), all.longest.as_millis());
    println!("{:.0} s in all", begun.elapsed().as_secs_f64());
    Ok(all.bad == 0 && all.runs > 0)
}

/// Outcomes of many runs.
#[derive(Debug, Default)]
struct Tally {
    runs: u64,
    /// Of runs that met their fault.
    met: BTreeMap<Outcome, u64>,
    bad: u64,
    longest: Duration,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.runs += other.runs;
        self.bad += other.bad;
        self.longest = self.longest.max(other.longest);
        other.met.iter().for_each(|(o, n)| *self.met.entry(*o).or_default() += n);
    }

    fn words(&self) -> String {
        let each = self.met.iter().map(|(o, n)| format!("{o:?} {n}"));
        format!(
            "{} met a fault: {}",
            self.met.values().sum::<u64>(),
            each.collect::<Vec<_>>().join(", ")
        )
    }
}

/// One kind, for each n.
fn each(
    host: &Path,
    plugin: &Path,
    arguments: &Arguments,
    (before, after): &(&str, &str),
) -> Result<Tally> {
    let mut tally = Tally::default();
    for n in 0.. {
        let fault = format!("{before}{n}{after}");
        let run = one(host, plugin, arguments, Some(&fault))?;
        tally.runs += 1;
        tally.longest = tally.longest.max(run.took);
        if run.outcome == Outcome::Bad {
            tally.bad += 1;
            println!("!! {fault}:\n{}", run.text);
        } else if run.met == 0 {
            break;
        }
        *tally.met.entry(run.outcome).or_default() += 1;
        if n >= MOST || tally.bad >= 10 {
            bail!("{fault}: too many; something else is wrong");
        }
    }
    println!("{before}N{after}: {}", tally.words());
    if tally.met.is_empty() {
        println!("!! no run met it, so nothing was tried");
        tally.bad += 1;
    }
    Ok(tally)
}
