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
/// The same when a context has ended and nothing more will come.
const AT_THE_END: u64 = 64;
/// Per cent of them that must be declined. Products are counted and not their multiplications: a
/// scheduler that reserves memory asks for the output head over all rows, which no prompt needs.
const MOST: u64 = 90;

/// Why, and in which buffer type where that is the reason.
type Cause = (Reason, Option<String>);

/// What passed by so far.
#[derive(Debug, Default)]
pub struct Watch {
    taken: AtomicU64,
    declined: Mutex<HashMap<Cause, u64>>,
    said: AtomicBool,
}

impl Watch {
    /// A large product was accepted.
    pub fn accept(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// One was declined. Returns the line, once in a process.
    pub fn decline(&self, reason: Reason, buffer: Option<String>) -> Option<String> {
        if self.said.load(Ordering::Relaxed) {
            return None;
        }
        let mut declined = self.declined.lock().unwrap_or_else(PoisonError::into_inner);
        *declined.entry((reason, buffer)).or_default() += 1;
        self.line(&declined, ENOUGH)
    }

    /// A context has ended. Returns the line if few products were enough for it.
    pub fn end(&self) -> Option<String> {
        if self.said.load(Ordering::Relaxed) {
            return None;
        }
        let declined = self.declined.lock().unwrap_or_else(PoisonError::into_inner);
        self.line(&declined, AT_THE_END)
    }

    fn line(&self, declined: &HashMap<Cause, u64>, enough: u64) -> Option<String> {
        let text = verdict(declined, self.taken.load(Ordering::Relaxed), enough)?;
        (!self.said.swap(true, Ordering::Relaxed)).then_some(text)
    }
}

fn verdict(declined: &HashMap<Cause, u64>, taken: u64, enough: u64) -> Option<String> {
    let count: u64 = declined.values().sum();
    if count < enough || count * 100 < (count + taken) * MOST {
        return None;
    }
    let ((reason, buffer), _) = declined.iter().max_by_key(|(_, count)| **count)?;
    let share = match taken {
        0 => "nothing of this model's matrix products runs on the NPU",
        _ => "less than a tenth of this model's matrix products runs on the NPU",
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

    fn repeat(w: &Watch, n: u64, reason: Reason, buffer: Option<&str>) -> Vec<String> {
        (0..n).filter_map(|_| w.decline(reason, buffer.map(str::to_owned))).collect()
    }

    #[test]
    fn the_cause_is_named_once() {
        let w = Watch::default();
        assert!(
            repeat(&w, ENOUGH - 1, Reason::WeightNotInHostMemory, Some("CPU_REPACK")).is_empty()
        );
        let said = repeat(&w, 9, Reason::WeightNotInHostMemory, Some("CPU_REPACK"));
        assert_eq!(said.len(), 1);
        assert_eq!(w.end(), None, "said before");
        let short = Watch::default();
        for enough in [false, true] {
            assert_eq!(short.end().is_some(), enough);
            let n = AT_THE_END;
            assert!(repeat(&short, n, Reason::WeightNotInHostMemory, Some("AMX")).is_empty());
        }
        assert_eq!(short.end(), None, "once");
        for word in ["nothing", "CPU_REPACK", "-nr", "--repack 0"] {
            assert!(said[0].contains(word), "{said:?}");
        }
        assert!(repeat(&w, 999, Reason::WeightType, None).is_empty());
    }

    #[test]
    fn the_largest_cause_wins() {
        let w = Watch::default();
        assert!(repeat(&w, 100, Reason::NTooSmall, None).is_empty());
        let said = repeat(&w, 200, Reason::TooFewRows, None);
        assert!(said.len() == 1 && said[0].contains("ROCKET_MIN_M"), "{said:?}");
    }

    #[test]
    fn a_model_that_runs_is_left_in_peace() {
        let w = Watch::default();
        (0..112).for_each(|_| w.accept());
        assert!(repeat(&w, 1000, Reason::WeightType, None).is_empty());
        let w = Watch::default();
        // The head of a model whose blocks are out of reach.
        w.accept();
        let said = repeat(&w, 1000, Reason::WeightNotInHostMemory, Some("CUDA0"));
        assert!(said.len() == 1 && said[0].contains("a tenth") && said[0].contains("CUDA0"));
    }
}
