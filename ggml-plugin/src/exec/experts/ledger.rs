//! Which stacks of experts may become resident: decided whole and once, when the host first asks,
//! before anything is packed (ggml-plugin-behaviour 8.5).

use crate::exec::residency::WINDOW_BYTES;
use crate::knobs::{Budget, Knobs};
use crate::log::{Level, line};
use crate::route::{Dtype, ExpertsShape, Numerics};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// A stack, as the host describes it before it is computed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StackId {
    /// First byte.
    pub address: usize,
    /// Its type.
    pub dtype: Dtype,
    /// K, N and experts.
    pub shape: [usize; 3],
}

/// What a stack takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charge {
    /// Of memory: packed weights, their scales, and the source, which decode reads from the page
    /// cache.
    pub ram: u64,
    /// Of the workers' address windows.
    pub window: u64,
}

impl Charge {
    /// Of a stack whose experts are `source_bytes` each in the model's file.
    pub fn of(shape: &ExpertsShape, numerics: Numerics, source_bytes: u64) -> Charge {
        let (n, k) = (shape.n as u64, shape.k as u64);
        let elements = n.next_multiple_of(32) * k.next_multiple_of(32);
        let packed = elements * numerics.bits() as u64 / 8 + TAIL;
        let scales = numerics.codes().map_or(0, |c| 4 * n * k.div_ceil(c.group as u64));
        let experts = shape.experts as u64;
        Charge { ram: experts * (packed + scales + source_bytes), window: experts * packed }
    }
}

/// Beside each buffer (npu-rk3588 2).
const TAIL: u64 = rocket_runtime::device::TAIL_BYTES as u64;

/// How much there is; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budgets {
    /// Of memory.
    pub ram: Option<u64>,
    /// Of all windows together.
    pub window: u64,
}

impl Budgets {
    /// As the settings say, with so many bytes of memory available now.
    pub fn of(knobs: &Knobs, available: Option<u64>) -> Budgets {
        let ram = match knobs.moe_cache {
            Budget::Unlimited => None,
            Budget::Bytes(bytes) => Some(bytes),
            // Flat: what is left out is for the host and for dense weights (ggml-plugin-behaviour 8.5).
            Budget::Auto => available.map(|a| a.saturating_sub(6 << 30)),
        };
        Budgets { ram, window: knobs.n_threads as u64 * WINDOW_BYTES }
    }

    /// Whether `all` fit: memory, and windows.
    pub fn hold(&self, all: Charge) -> [bool; 2] {
        [self.ram.is_none_or(|most| all.ram <= most), all.window <= self.window]
    }
}

#[derive(Debug, Default)]
struct State {
    budgets: Option<Budgets>,
    answers: HashMap<StackId, bool>,
    ram: u64,
    window: u64,
    full: bool,
}

/// The answers of one process.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<State>);

impl Ledger {
    /// Whether a stack may become resident. The first answer about a stack stays until
    /// [`Ledger::clear`]: a scheduler asks several times, and must always hear the same.
    pub fn reserve(&self, id: StackId, charge: Charge, budgets: impl FnOnce() -> Budgets) -> bool {
        let mut s = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = s.answers.get(&id) {
            return *answer;
        }
        let budgets = match s.budgets {
            Some(known) => known,
            None => {
                let found = budgets();
                s.budgets = Some(found);
                line(Level::Info, &format!("experts may take {}", words(&found)));
                found
            }
        };
        let (ram, window) = (s.ram + charge.ram, s.window + charge.window);
        let [fits_ram, fits_window] = budgets.hold(Charge { ram, window });
        let fits = fits_ram && fits_window;
        if fits {
            (s.ram, s.window) = (ram, window);
        } else if !s.full {
            s.full = true;
            let stacks = s.answers.values().filter(|a| **a).count();
            let bound = if fits_ram { "address space" } else { "memory (ROCKET_MOE_CACHE_MB)" };
            let text = format!(
                "{stacks} stacks of experts have room, with {} MB of memory and {} MB of address \
                 space; the next is left to the CPU for lack of {bound}",
                s.ram >> 20,
                s.window >> 20
            );
            line(Level::Notice, &text);
        }
        s.answers.insert(id, fits);
        fits
    }

    /// Bytes of memory that reserved stacks take besides their source, once all are packed.
    pub fn window_bytes(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).window
    }

    /// The last context has ended: addresses mean something else from now on.
    pub fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = State::default();
    }
}

fn words(b: &Budgets) -> String {
    let ram =
        b.ram.map_or("any amount of memory".to_owned(), |r| format!("{} MB of memory", r >> 20));
    format!("{ram} and {} MB of the NPU's address space", b.window >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Codes;

    fn id(address: usize) -> StackId {
        StackId { address, dtype: Dtype(12), shape: [2048, 512, 8] }
    }

    const SHAPE: ExpertsShape =
        ExpertsShape { k: 2880, n: 2880, experts: 32, used: 4, tokens: 512, rows: 1 };

    /// The factors of ggml-plugin-behaviour 8.5, over the codes.
    #[test]
    fn charges_are_the_contracts() {
        let numerics = Numerics::Native(Codes { group: 576, rotate: true });
        let elements = 2880.0 * 2880.0;
        for (bits, factor) in [(4.25, 1.54), (8.5, 2.07)] {
            let source = (elements * bits / 8.0) as u64;
            let c = Charge::of(&SHAPE, numerics, source);
            let got = c.ram as f64 / (32.0 * elements);
            assert!((got - factor).abs() < 0.01, "{got}");
            assert!((c.window as f64 / (32.0 * elements) - 1.0).abs() < 0.01);
        }
        let half = Charge::of(&SHAPE, Numerics::Fp16, 0);
        assert_eq!(half.ram, half.window);
        assert!((half.ram as f64 / (32.0 * elements) - 2.0).abs() < 0.01);
    }

    #[test]
    fn whole_stacks_first_come_first_served_and_one_answer_each() {
        let ledger = Ledger::default();
        let budgets = || Budgets { ram: Some(100), window: 50 };
        let charge = |ram, window| Charge { ram, window };
        assert!(ledger.reserve(id(1), charge(60, 10), budgets));
        assert!(!ledger.reserve(id(2), charge(41, 10), budgets), "memory");
        assert!(!ledger.reserve(id(3), charge(1, 41), budgets), "windows");
        assert!(ledger.reserve(id(4), charge(40, 40), budgets), "to the last byte");
        // What was said once stays, whatever is asked now.
        assert!(ledger.reserve(id(1), charge(1 << 40, 0), budgets));
        assert!(!ledger.reserve(id(2), charge(0, 0), budgets));
        assert_eq!(ledger.window_bytes(), 50);
        ledger.clear();
        let unlimited = || Budgets { ram: None, window: u64::MAX };
        assert!(ledger.reserve(id(2), charge(1 << 50, 1), unlimited));
        assert_eq!(ledger.window_bytes(), 1);
    }
}
