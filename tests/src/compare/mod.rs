//! Ours against the reference, product by product, by the simulator's exact counters.
//!
//! A [`Row`] is one product; [`measure`] runs both sides of it on boards of their own.
//! [`ours`] says how each kind is called; [`table`] prints.

pub mod ours;
pub mod prefill;
pub mod rows;
pub mod table;
pub mod wholes;

pub use rows::{Origin, Row};

use crate::meter::{Cost, Meter};
use crate::reference::{self, Residency, Share, Waits};
use rocket_runtime::Result;
use rocket_runtime::matmul::{Npu, Options};
use rocket_sim::{Arithmetic, Config, DriverProfile};

/// How both sides are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// When weights are packed.
    pub residency: Residency,
    /// How the reference waits for K steps.
    pub waits: Waits,
    /// Ours' driver; the reference runs on a stock one.
    pub driver: DriverProfile,
    /// Ours' worker files. The reference's are its default, or the row's.
    pub workers: usize,
}

/// The reference's default of worker files (npu-rk3588 7.4).
pub const REFERENCE_WORKERS: usize = 5;

impl Default for Setting {
    fn default() -> Setting {
        Setting {
            residency: Residency::Resident,
            waits: Waits::Each,
            driver: DriverProfile::Stock,
            workers: REFERENCE_WORKERS,
        }
    }
}

/// What both sides cost. Ours is missing where the runtime has no such product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// The reference.
    pub reference: Cost,
    /// Ours.
    pub ours: Option<Cost>,
}

/// Runs both sides of a row without multiplying. None when the reference refuses the product.
///
/// # Errors
/// What the runtime or the board says; a board that found anything wrong with a program is an
/// error too.
pub fn measure(row: &Row, setting: Setting) -> std::result::Result<Option<Pair>, String> {
    // What was recorded are calls that pack their weights.
    let residency = match row.origin {
        Origin::Recorded(_) => Residency::Streaming,
        Origin::Reconstructed => setting.residency,
    };
    let setting = Setting { residency, ..setting };
    let workers = |default| row.workers().unwrap_or(default);
    let Some(shares) = row.shares(workers(REFERENCE_WORKERS), setting.residency) else {
        return Ok(None);
    };
    let reference = reference_cost(&shares, setting).map_err(|e| format!("{row}: {e}"))?;
    let ours = ours_cost(row, workers(setting.workers), setting)?;
    Ok(Some(Pair { reference, ours }))
}

fn counting(profile: DriverProfile) -> Meter {
    Meter::new(Config { profile, arithmetic: Arithmetic::Count, ..Config::default() })
}

/// Whether every job of a measured call ran, and as it should.
fn sound(meter: &Meter, who: &str) -> std::result::Result<(), String> {
    let told = meter.board().explanations();
    let counters = meter.board().counters();
    if told.is_empty() && counters.jobs_dropped == 0 {
        return Ok(());
    }
    let first = told.first().map_or_else(String::new, ToString::to_string);
    Err(format!("{who}: {} job(s) dropped; {first}", counters.jobs_dropped))
}

fn reference_cost(shares: &[Share], s: Setting) -> std::result::Result<Cost, String> {
    let meter = counting(DriverProfile::Stock);
    let run = |begin: &mut dyn FnMut()| reference::replay(&meter, shares, s.waits, None, begin);
    let (_, cost) = meter.measure(run).map_err(|e| e.to_string())?;
    sound(&meter, "reference")?;
    Ok(cost)
}

fn ours_cost(row: &Row, workers: usize, s: Setting) -> std::result::Result<Option<Cost>, String> {
    let meter = counting(s.driver);
    let options = Options { workers, budget: None, drain_on_signals: false, ..Options::default() };
    let run = |begin: &mut dyn FnMut()| -> Result<(bool, Npu)> {
        let npu = Npu::open(&meter, options)?;
        Ok((ours::run(&npu, row.kind, row.shape, s.residency, begin)?, npu))
    };
    let ((known, _npu), cost) = meter.measure(run).map_err(|e| format!("ours, {row}: {e}"))?;
    sound(&meter, "ours")?;
    Ok(known.then_some(cost))
}
