//! The C border: tables of words built at run time, and thin functions behind them. Nothing
//! unwinds across it, and nothing here decides anything.

mod attention;
mod backend;
mod bias;
mod buffer;
mod calibrate;
mod compute;
mod copy;
mod device;
mod entry;
mod experts;
mod exports;
mod facts;
mod fuse;
mod operands;
mod plugin;
mod product;
mod record;
mod reg;

use crate::log::{Level, line};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f`; a panic is logged and becomes `fallback`.
fn guard<R>(what: &str, fallback: R, f: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(r) => r,
        Err(panic) => {
            let why = panic
                .downcast_ref::<&str>()
                .map(|s| (*s).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            line(Level::Error, &format!("defect caught in {what}: {why}; please report it"));
            fallback
        }
    }
}

#[cfg(test)]
mod tests;
