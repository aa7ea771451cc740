//! Running an accepted MUL_MAT.

use super::backend::Instance;
use super::compute::redo_is_news;
use super::operands;
use super::plugin::Runner;
use crate::abi::tensor::Tensor;
use crate::exec::mul_mat::{self, Means};
use crate::exec::{OpRecord, Redo};
use crate::log::{Level, line};
use crate::route::Route;
use std::sync::PoisonError;

/// All products of the op, one after the other.
///
/// # Errors
/// Why the CPU has to do the op.
pub(super) fn run(
    instance: &Instance,
    runner: &Runner,
    node: &Tensor,
    name: &str,
    route: Route,
) -> Result<OpRecord, Redo> {
    let plugin = instance.plugin;
    let slices = operands::of(instance, node, name, route, None)?;
    match runner {
        Runner::Engine(engine) => {
            let mut scratch = instance.scratch.lock().unwrap_or_else(PoisonError::into_inner);
            let mut total: Option<OpRecord> = None;
            for operands in slices {
                let means = Means {
                    engine: &**engine,
                    verify: &plugin.verify,
                    threads: plugin.threads,
                    scratch: &mut scratch,
                };
                let record = mul_mat::run(means, operands).map_err(|(redo, error)| {
                    if let Some(e) = error
                        && redo_is_news(redo)
                    {
                        line(Level::Warn, &format!("{name}: {e}. Redone on the CPU."));
                        plugin.stats.live.event(crate::live::code(&e), &e.to_string());
                    }
                    redo
                })?;
                match &mut total {
                    Some(t) => t.add(&record),
                    none => *none = Some(record),
                }
            }
            total.ok_or(Redo::NotRouted)
        }
        #[cfg(feature = "test-engine")]
        Runner::HostCpu => {
            let mut scratch = instance.scratch.lock().unwrap_or_else(PoisonError::into_inner);
            for o in &slices {
                scratch.fill(&o.activation, o.numerics, 1)?;
            }
            drop(slices);
            super::compute::on_cpu(instance, node).map_err(|_| Redo::EngineError)?;
            let macs = route.macs();
            Ok(OpRecord { macs, ..OpRecord::default() })
        }
    }
}
