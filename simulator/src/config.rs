use crate::assumptions::Assumptions;
use crate::{DriverProfile, Fault};
use std::time::Duration;

/// How results are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arithmetic {
    /// fp64 products and sums in increasing k, one rounding to fp32 (npu-rk3588 5.2). Integers
    /// are summed as such.
    #[default]
    Exact,
    /// An fp32 matrix product in any order: within fp32 rounding of `Exact`, and much faster.
    /// Integers stay exact: fp32 holds the partial sums they are cut into.
    Fast,
    /// No results: every sum is one. Programs are checked, operands fetched and results stored as
    /// ever, so that rules, counters and modelled times are those of the other two.
    Count,
}

/// What kind of board to simulate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The driver.
    pub profile: DriverProfile,
    /// The arithmetic.
    pub arithmetic: Arithmetic,
    /// Faults that are there from the start; more can be added with
    /// [`SimBoard::inject`](crate::SimBoard::inject).
    pub faults: Vec<Fault>,
    /// NPU clock for the cost model, in Hz (npu-rk3588 8.1).
    pub clock_hz: u64,
    /// Real time after which a hanging job is failed and its core reset (500 ms in the driver,
    /// kernel-and-uapi B.5). Tests shorten it.
    pub timeout: Duration,
    /// Modelled time one job may take before the driver times it out. This follows from the same
    /// 500 ms, but is counted on the cost model, so that a slow host changes nothing.
    pub job_limit: Duration,
    /// Cores in use, 1 to [`CORES`](crate::CORES).
    pub cores: usize,
    /// Trap 4: a wrong operand configuration wedges its core across jobs, until
    /// [`SimBoard::reload`](crate::SimBoard::reload).
    pub sticky_wedge: bool,
    /// A deadline that expires while the core computes is put off: silicon would have been done
    /// long ago, so a program's patience is not to be judged by this machine's speed. A job that
    /// hangs exhausts it as ever.
    pub patient: bool,
    /// Fills what a task will store, as its registers say, with this byte before it runs, so that
    /// an output which was not written shows.
    pub poison: Option<u8>,
    /// What silicon is assumed to do where the spec leaves it open.
    pub assumptions: Assumptions,
    /// No core threads: jobs stay queued until [`SimBoard::step`](crate::SimBoard::step) runs
    /// them, so that what happens does not depend on time. A hang then ends at once.
    pub stepped: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            profile: DriverProfile::Stock,
            arithmetic: Arithmetic::Exact,
            faults: Vec::new(),
            clock_hz: 600_000_000,
            timeout: Duration::from_millis(500),
            job_limit: Duration::from_millis(500),
            cores: crate::CORES,
            sticky_wedge: false,
            patient: false,
            poison: None,
            assumptions: Assumptions::default(),
            stepped: false,
        }
    }
}
