//! Whether large products pass by and none is taken: then the user gets one line with the cause,
//! instead of an evening of wondering.

use crate::route::Reason;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Products of fewer rows are decode or its batches, which nobody expects here.
pub const LARGE_ROWS: i64 = 32;
/// Large products declined before the line is written: more than one graph of a small model.
const ENOUGH: u64 = 256;
/// Per cent of the multiply-accumulates that must be declined.
const MOST: u128 = 90;

/// Why, and in which buffer type where that is the reason.
type Cause = (Reason, Option<String>);

/// What passed by so far.
#[derive(Debug, Default)]
pub struct Watch {
    taken: AtomicU64,
    declined: Mutex<HashMap<Cause, (u64, u64)>>,
    said: AtomicBool,
}

impl Watch {
    /// A large product of so many multiply-accumulates was accepted.
    pub fn accept(&self, macs: u64) {
        // Saturates after centuries; nothing but a share is made of it.
        self.taken.fetch_add(macs, Ordering::Relaxed);
    }

    /// One was declined. Returns the line, once in a process.
    pub fn decline(&self, reason: Reason, buffer: Option<String>, macs: u64) -> Option<String> {
        if self.said.load(Ordering::Relaxed) {
            return None;
        }
        let mut declined = self.declined.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = declined.entry((reason, buffer)).or_default();
        *entry = (entry.0 + 1, entry.1.saturating_add(macs));
        let taken = self.taken.load(Ordering::Relaxed);
        let text = verdict(&declined, taken)?;
        (!self.said.swap(true, Ordering::Relaxed)).then_some(text)
    }
}

fn verdict(declined: &HashMap<Cause, (u64, u64)>, taken: u64) -> Option<String> {
    let count: u64 = declined.values().map(|(count, _)| count).sum();
    let macs: u128 = declined.values().map(|(_, macs)| u128::from(*macs)).sum();
    if count < ENOUGH || macs * 100 < (macs + u128::from(taken)) * MOST {
        return None;
    }
    let ((reason, buffer), _) = declined.iter().max_by_key(|(_, (_, macs))| *macs)?;
    let share = match taken {
        0 => "nothing of this model's prefill runs on the NPU",
        _ => "less than a tenth of this model's prefill runs on the NPU",
    };
    Some(format!("{share}: {}", cause(*reason, buffer.as_deref())))
}

fn cause(reason: Reason, buffer: Option<&str>) -> String {
    match (reason, buffer) {
        (Reason::WeightNotInHostMemory, Some(name)) if name.starts_with("CPU") => format!(
            "its weights are in {name}, a layout that only the CPU reads. llama.cpp: add -nr \
             (llama-bench: --repack 0; or set LLAMA_ARG_REPACK=0). whisper.cpp has no such switch: \
             use an F16 or Q5_1 model"
        ),
        (Reason::WeightNotInHostMemory, Some(name)) => format!("its weights are in {name} memory"),
        _ => format!("{} ({})", reason.sentence().trim_end_matches('.'), reason.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeat(w: &Watch, n: u64, reason: Reason, buffer: Option<&str>, macs: u64) -> Vec<String> {
        (0..n).filter_map(|_| w.decline(reason, buffer.map(str::to_owned), macs)).collect()
    }

    #[test]
    fn the_cause_is_named_once() {
        let w = Watch::default();
        assert!(
            repeat(&w, ENOUGH - 1, Reason::WeightNotInHostMemory, Some("CPU_REPACK"), 9).is_empty()
        );
        let said = repeat(&w, 9, Reason::WeightNotInHostMemory, Some("CPU_REPACK"), 9);
        assert_eq!(said.len(), 1);
        for word in ["nothing", "CPU_REPACK", "-nr", "--repack 0"] {
            assert!(said[0].contains(word), "{said:?}");
        }
        assert!(repeat(&w, 999, Reason::WeightType, None, 9).is_empty());
    }

    #[test]
    fn the_largest_cause_wins() {
        let w = Watch::default();
        assert!(repeat(&w, 200, Reason::NTooSmall, None, 1).is_empty());
        let said = repeat(&w, 100, Reason::TooFewRows, None, 1000);
        assert!(said.len() == 1 && said[0].contains("ROCKET_MIN_M"), "{said:?}");
    }

    #[test]
    fn a_model_that_runs_is_left_in_peace() {
        let w = Watch::default();
        w.accept(1000 * 11);
        assert!(repeat(&w, 1000, Reason::WeightType, None, 90).is_empty());
        let w = Watch::default();
        w.accept(90);
        let said = repeat(&w, 1000, Reason::WeightNotInHostMemory, Some("CUDA0"), 90);
        assert!(said.len() == 1 && said[0].contains("a tenth") && said[0].contains("CUDA0"));
    }
}
