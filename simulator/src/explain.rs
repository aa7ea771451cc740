use crate::Rule;
use std::collections::VecDeque;
use std::fmt;

/// Why something did not happen as the caller may have meant it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The rule that was broken.
    pub rule: Rule,
    /// The file it happened on, numbered from zero in the order of opening.
    pub file: u64,
    /// The job, in the numbering of [`Fault`](crate::Fault); absent for events outside a job.
    pub job: Option<u64>,
    /// The task within the job.
    pub task: Option<usize>,
    /// What was found, with registers and values.
    pub message: String,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {}", self.file)?;
        if let Some(job) = self.job {
            write!(f, ", job {job}")?;
        }
        if let Some(task) = self.task {
            write!(f, ", task {task}")?;
        }
        let rule = self.rule;
        let (class, id, title, section) = (rule.class(), rule.id(), rule.title(), rule.section());
        write!(f, ": {class}: {id}: {title} ({section}): {}", self.message)
    }
}

/// The latest explanations and how many there were in all.
#[derive(Debug, Default)]
pub(crate) struct Log {
    latest: VecDeque<Explanation>,
    total: u64,
}

impl Log {
    const KEPT: usize = 256;

    pub fn push(&mut self, e: Explanation) {
        tracing::debug!("{e}");
        if self.latest.len() == Self::KEPT {
            self.latest.pop_front();
        }
        self.latest.push_back(e);
        self.total += 1;
    }

    pub fn latest(&self) -> Vec<Explanation> {
        self.latest.iter().cloned().collect()
    }

    pub fn total(&self) -> u64 {
        self.total
    }
}
