//! What one loaded plugin is: the host, the settings, the device, the counters, and the two
//! records the host keeps pointers to.

use super::{device, reg};
use crate::abi::host::Host;
use crate::board::{self, Absent, Found};
use crate::exec::crossover::{Class, Store, Thresholds};
use crate::exec::experts::ledger::{Budgets, Charge, Ledger, StackId};
use crate::exec::image::Image;
use crate::exec::verify::{Mode, Verify};
use crate::exec::{Engine, Holdings, Meter, engine};
use crate::knobs::{self, Calibrate, Knobs};
use crate::live::Live;
use crate::log::{self, Level, line};
use crate::route::{Policy, Wanted};
use crate::stats::{Stats, Subject};
use crate::watch::Watch;
use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What runs accepted ops.
#[derive(Debug, Clone)]
pub(super) enum Runner {
    /// The NPU.
    Engine(Arc<dyn Engine>),
    /// The host's CPU, to test everything around an engine without one.
    #[cfg(feature = "test-engine")]
    HostCpu,
}

impl Runner {
    /// The NPU, if this is one.
    pub(super) fn engine(&self) -> Option<&dyn Engine> {
        match self {
            Runner::Engine(engine) => Some(&**engine),
            #[cfg(feature = "test-engine")]
            Runner::HostCpu => None,
        }
    }
}

/// A device that is offered to the host.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) runner: Runner,
    pub(super) description: CString,
    /// Name and value pairs for `ggml_backend_get_features`.
    pub(super) features: Features,
    pub(super) simulated: bool,
    /// Tells this machine's measurements from others'.
    pub(super) machine: String,
    /// What the board executed, where it can tell.
    pub(super) meter: Option<Arc<dyn Meter>>,
}

/// Strings and the NULL-terminated array of pointers to them, in the host's form.
#[derive(Debug)]
pub(super) struct Features {
    text: Vec<(CString, CString)>,
    words: Vec<usize>,
}

impl Features {
    fn new(pairs: &[(&str, &str)]) -> Features {
        let c = |s: &str| CString::new(s).unwrap_or_default();
        let text: Vec<_> = pairs.iter().map(|(k, v)| (c(k), c(v))).collect();
        // The strings live on the heap: moving the vector does not move them.
        let pointers = text.iter().flat_map(|(k, v)| [k.as_ptr() as usize, v.as_ptr() as usize]);
        let words = pointers.chain([0, 0]).collect();
        Features { text, words }
    }

    fn get(&self, name: &str) -> Option<String> {
        let found = self.text.iter().find(|(k, _)| k.to_bytes() == name.as_bytes());
        found.map(|(_, v)| v.to_string_lossy().into_owned())
    }

    pub(super) fn as_ptr(&self) -> *const usize {
        self.words.as_ptr()
    }
}

/// Addresses of the records handed to the host; never freed, never moved.
#[derive(Debug, Clone, Copy)]
pub(super) struct Records {
    pub(super) reg: usize,
    pub(super) device: usize,
}

#[derive(Debug)]
pub(super) struct Plugin {
    pub(super) host: Host,
    pub(super) knobs: Knobs,
    pub(super) unit: Option<Unit>,
    pub(super) stats: Stats,
    pub(super) verify: Verify,
    pub(super) image: Image,
    /// Which stacks of experts may become resident.
    pub(super) ledger: Ledger,
    /// For host work besides the NPU's workers.
    pub(super) threads: usize,
    pub(super) watch: Watch,
    pub(super) crossovers: Store,
    /// What the store held when this process began: answers must not change (ggml-abi 6).
    measured: Thresholds,
    /// Classes whose crossover is still to be measured: float, quantized.
    wanted: [AtomicBool; 2],
    /// The process that computed first: a forked child must not use its NPU.
    pid: OnceLock<u32>,
    /// Backend instances made so far.
    instances: AtomicU64,
    /// Those that are not freed.
    open: AtomicU64,
    records: OnceLock<Records>,
}

impl Plugin {
    /// Builds the plugin and its records. The host is told of no device if there is none.
    pub(super) fn start(host: Host, knobs: Knobs) -> &'static Plugin {
        log::configure(knobs.log_level, knobs.log_stderr);
        for warning in &knobs.warnings {
            line(Level::Warn, warning);
        }
        for note in &knobs.notes {
            line(Level::Info, note);
        }
        let unit = match open(&knobs) {
            Ok(unit) => {
                let what = unit.description.to_string_lossy();
                let g = host.generation.name;
                line(Level::Info, &format!("{what}; {}, interface {g}", host.version));
                Some(unit)
            }
            Err(Absent::OnPurpose) => {
                line(Level::Info, "ROCKET_DEVICE=none: everything stays on the CPU");
                None
            }
            Err(Absent::Because(why)) => {
                line(Level::Warn, &format!("{why}; everything stays on the CPU"));
                None
            }
        };
        Plugin::with_unit(host, knobs, unit, OnceLock::new())
    }

    /// The same with a device at hand, used by process `pid` if that is set.
    pub(super) fn with_unit(
        host: Host,
        knobs: Knobs,
        unit: Option<Unit>,
        pid: OnceLock<u32>,
    ) -> &'static Plugin {
        let machine = unit.as_ref().map(|u| u.machine.clone()).unwrap_or_default();
        let crossovers = Store::of(|name| std::env::var_os(name), machine);
        Plugin::with_store(host, knobs, unit, pid, crossovers)
    }

    /// The same with a place for what is measured.
    pub(super) fn with_store(
        host: Host,
        knobs: Knobs,
        unit: Option<Unit>,
        pid: OnceLock<u32>,
        crossovers: Store,
    ) -> &'static Plugin {
        let live = Live::new(&knobs.counters, about(&host, unit.as_ref()));
        let stats = Stats::new(knobs.report.is_some(), live);
        let real = unit.as_ref().is_some_and(|u| !u.simulated);
        let verify = match knobs.verify {
            knobs::Verify::On => Mode::First,
            knobs::Verify::Auto if real => Mode::First,
            _ => Mode::Off,
        };
        let measured = if knobs.calibrate == Calibrate::Off {
            Thresholds::default()
        } else {
            crossovers.load()
        };
        let calibrates = match knobs.calibrate {
            Calibrate::Off => false,
            Calibrate::Auto => real,
            Calibrate::On | Calibrate::Force => unit.is_some(),
        };
        // Where the user gave a threshold a measured one would not be used.
        let known = |class| match knobs.calibrate {
            Calibrate::Force => false,
            _ => knobs.min_m_given || measured.get(class).is_some(),
        };
        let wanted =
            [Class::Float, Class::Quantized].map(|c| AtomicBool::new(calibrates && !known(c)));
        let threads = knobs.dequant_threads.unwrap_or_else(|| {
            let here = std::thread::available_parallelism().map_or(1, usize::from);
            engine::cores(&knobs).map_or(here, |c| c.len()).min(8)
        });
        let plugin: &'static Plugin = Box::leak(Box::new(Plugin {
            host,
            knobs,
            unit,
            stats,
            verify: Verify::new(verify),
            image: Image::default(),
            ledger: Ledger::default(),
            threads,
            watch: Watch::default(),
            crossovers,
            measured,
            wanted,
            pid,
            instances: AtomicU64::new(0),
            open: AtomicU64::new(0),
            records: OnceLock::new(),
        }));
        let reg = reg::record(plugin);
        let device = device::record(plugin, reg);
        let _ = plugin.records.set(Records { reg, device });
        plugin
    }

    /// Null until the records exist, which is before the host sees any of them.
    pub(super) fn records(&self) -> Records {
        self.records.get().copied().unwrap_or(Records { reg: 0, device: 0 })
    }

    /// False in a forked child of the process that computed first.
    pub(super) fn is_own_process(&self) -> bool {
        *self.pid.get_or_init(std::process::id) == std::process::id()
    }

    /// What the engine holds now.
    pub(super) fn holdings(&self) -> Holdings {
        let engine = self.unit.as_ref().and_then(|u| u.runner.engine());
        engine.map(|e| e.holdings()).unwrap_or_default()
    }

    /// A number for one more instance.
    pub(super) fn enter(&self) -> u64 {
        self.stats.live.begin();
        self.publish(true);
        self.open.fetch_add(1, Ordering::Relaxed);
        self.instances.fetch_add(1, Ordering::Relaxed)
    }

    /// Shows tools what was counted so far; `now` at the end of a context, else within a hundredth
    /// of the time.
    pub(super) fn publish(&self, now: bool) {
        let engine = self.unit.as_ref().and_then(|u| u.runner.engine());
        self.stats.live.publish(now, engine);
    }

    /// An instance is freed: the weights that no other one used leave the NPU.
    pub(super) fn leave(&self, instance: u64) {
        if let Some(engine) = self.unit.as_ref().and_then(|u| u.runner.engine()) {
            engine.release(instance);
        }
        if self.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.ledger.clear();
        }
    }

    /// Whether a stack of experts that is to stay may; the answer stays as long as a context lives.
    pub(super) fn reserve(&self, id: StackId, charge: Charge) -> bool {
        let budgets = || {
            let memory = rocket_runtime::board::memory(Path::new("/"));
            Budgets::of(&self.knobs, memory.map(|m| m.available))
        };
        let fits = self.ledger.reserve(id, charge, budgets);
        if let Some(engine) = self.unit.as_ref().and_then(|u| u.runner.engine()) {
            engine.promise(self.ledger.window_bytes());
        }
        fits
    }

    /// True once for each class that is to be measured.
    pub(super) fn wants_crossover(&self, class: Class) -> bool {
        let [float, quantized] = &self.wanted;
        let flag = if class == Class::Float { float } else { quantized };
        flag.swap(false, Ordering::Relaxed)
    }

    pub(super) fn policy(&self) -> Policy {
        let engine = self.unit.as_ref().is_some_and(|unit| match &unit.runner {
            Runner::Engine(engine) => engine.available(),
            #[cfg(feature = "test-engine")]
            Runner::HostCpu => true,
        });
        self.knobs.policy(engine, &self.measured)
    }

    /// The policy of products that run: what was accepted before the NPU was given up is still
    /// told apart, and it is decided in which numbers quantized weights are kept. Neither changes
    /// what is accepted.
    pub(super) fn running_policy(&self) -> Policy {
        let engine = self.unit.as_ref().and_then(|u| u.runner.engine());
        let room = || engine.and_then(|e| e.room());
        let policy = self.policy();
        let native = self.image.native(self.knobs.quant_int8, room);
        Policy { engine: true, wanted: Wanted { native, ..policy.wanted }, ..policy }
    }

    pub(super) fn subject(&self) -> Subject {
        Subject {
            host: self.host.version.clone(),
            device: self
                .unit
                .as_ref()
                .map(|u| u.description.to_string_lossy().into_owned())
                .unwrap_or_default(),
            simulated: self.unit.as_ref().is_some_and(|u| u.simulated),
            board: self.unit.as_ref().and_then(|u| u.meter.as_ref()).map(|m| m.read()),
        }
    }
}

/// Finds the board and puts an engine on it.
fn open(knobs: &Knobs) -> Result<Unit, Absent> {
    #[cfg(feature = "test-engine")]
    if let Ok(name) = std::env::var("ROCKET_TEST_ENGINE") {
        use crate::exec::test_engine::TestEngine;
        return match (name.as_str(), TestEngine::by_name(&name)) {
            ("cpu", _) => Ok(Unit::test(Runner::HostCpu, c"TEST NPU (host CPU)")),
            (_, Some(e)) => Ok(Unit::test(Runner::Engine(Arc::new(e)), c"TEST NPU (test engine)")),
            _ => Err(Absent::Because(format!("no test engine is called {name:?}"))),
        };
    }
    let found = board::find(&knobs.device)?;
    Ok(Unit::new(&found, Runner::Engine(engine::open(&found, knobs))))
}

/// What tools are told of this process besides its counters.
fn about(host: &Host, unit: Option<&Unit>) -> Vec<(&'static str, String)> {
    let words = knobs::command_line();
    let program = words.first().map(|w| std::path::Path::new(w).file_name().unwrap_or_default());
    let text = |t: &std::ffi::OsStr| t.to_string_lossy().into_owned();
    let mut facts = vec![
        ("plugin", env!("CARGO_PKG_VERSION").to_owned()),
        ("host", host.version.clone()),
        ("interface", host.generation.name.to_owned()),
        ("program", program.map(text).unwrap_or_default()),
        ("models", knobs::models(&words).join(", ")),
    ];
    if let Some(unit) = unit {
        let simulated = if unit.simulated { "1" } else { "0" };
        facts.push(("device", unit.description.to_string_lossy().into_owned()));
        facts.push(("driver", unit.features.get("DRIVER").unwrap_or_default()));
        facts.push(("simulated", simulated.to_owned()));
    }
    // What is not known is not stated.
    facts.retain(|(_, value)| !value.is_empty());
    facts
}

/// Part, driver and CPU: what a crossover depends on and does not change from day to day.
fn machine(found: &Found) -> String {
    let model = std::fs::read_to_string("/proc/device-tree/model");
    let model = model.map(|m| m.trim_end_matches('\0').to_owned()).unwrap_or_else(|_| {
        let cpus = std::thread::available_parallelism().map_or(0, usize::from);
        format!("{} with {cpus} CPUs", std::env::consts::ARCH)
    });
    format!("{}, {model}", found.description())
}

impl Unit {
    fn new(found: &Found, runner: Runner) -> Unit {
        let profile = found.board.profile();
        Unit {
            runner,
            description: CString::new(found.description()).unwrap_or_default(),
            features: Features::new(&[
                ("DRIVER", found.driver()),
                ("PART", profile.name),
                ("CORES", &profile.cores.to_string()),
                ("SIMULATED", if found.simulated { "1" } else { "0" }),
            ]),
            simulated: found.simulated,
            machine: machine(found),
            meter: found.meter.clone(),
        }
    }

    #[cfg(any(test, feature = "test-engine"))]
    pub(super) fn test(runner: Runner, description: &std::ffi::CStr) -> Unit {
        Unit {
            runner,
            description: description.to_owned(),
            features: Features::new(&[("DRIVER", "test"), ("SIMULATED", "1")]),
            simulated: true,
            machine: "test".to_owned(),
            meter: None,
        }
    }
}
