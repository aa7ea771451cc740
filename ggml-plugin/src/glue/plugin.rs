//! What one loaded plugin is: the host, the settings, the device, the counters, and the two
//! records the host keeps pointers to.

use super::{device, reg};
use crate::abi::host::Host;
use crate::board::{self, Absent, Found};
use crate::exec::mul_mat::Checked;
use crate::exec::{Engine, Meter, engine};
use crate::knobs::Knobs;
use crate::log::{Level, line};
use crate::route::Policy;
use crate::stats::{Stats, Subject};
use std::ffi::CString;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// A device that is offered to the host.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) runner: Runner,
    pub(super) description: CString,
    /// Name and value pairs for `ggml_backend_get_features`.
    pub(super) features: Features,
    pub(super) simulated: bool,
    /// What the board executed, where it can tell.
    pub(super) meter: Option<Arc<dyn Meter>>,
}

/// Strings and the NULL-terminated array of pointers to them, in the host's form.
#[derive(Debug)]
pub(super) struct Features {
    _text: Vec<(CString, CString)>,
    words: Vec<usize>,
}

impl Features {
    fn new(pairs: &[(&str, &str)]) -> Features {
        let c = |s: &str| CString::new(s).unwrap_or_default();
        let text: Vec<_> = pairs.iter().map(|(k, v)| (c(k), c(v))).collect();
        // The strings live on the heap: moving the vector does not move them.
        let pointers = text.iter().flat_map(|(k, v)| [k.as_ptr() as usize, v.as_ptr() as usize]);
        let words = pointers.chain([0, 0]).collect();
        Features { _text: text, words }
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
    pub(super) checked: Checked,
    /// The process that computed first: a forked child must not use its NPU.
    pid: OnceLock<u32>,
    /// Backend instances that are not freed yet.
    instances: AtomicUsize,
    records: OnceLock<Records>,
}

impl Plugin {
    /// Builds the plugin and its records. The host is told of no device if there is none.
    pub(super) fn start(host: Host, knobs: Knobs) -> &'static Plugin {
        for warning in &knobs.warnings {
            line(Level::Warn, warning);
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
        let stats = Stats::new(knobs.report.is_some());
        let plugin: &'static Plugin = Box::leak(Box::new(Plugin {
            host,
            knobs,
            unit,
            stats,
            checked: Checked::default(),
            pid,
            instances: AtomicUsize::new(0),
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

    /// One more instance lives.
    pub(super) fn enter(&self) {
        self.instances.fetch_add(1, Ordering::SeqCst);
    }

    /// One instance is freed. With the last one the weights leave the NPU: no context is left
    /// that could use them, and their model may be next.
    pub(super) fn leave(&self) {
        if self.instances.fetch_sub(1, Ordering::SeqCst) == 1
            && let Some(Runner::Engine(engine)) = self.unit.as_ref().map(|u| &u.runner)
        {
            engine.release();
            self.checked.clear();
        }
    }

    pub(super) fn policy(&self) -> Policy {
        let engine = self.unit.as_ref().is_some_and(|unit| match &unit.runner {
            Runner::Engine(engine) => engine.available(),
            #[cfg(feature = "test-engine")]
            Runner::HostCpu => true,
        });
        Policy { engine, min_m: self.knobs.min_m }
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
            meter: None,
        }
    }
}
