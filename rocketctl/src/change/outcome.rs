//! What becomes of a plan, in words and as an exit status.

use super::effect::State;
use serde::Serialize;

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    Done,
    NothingToDo,
    /// It was shown alone.
    DryRun,
    /// Files are in the folder.
    Emitted,
    /// Who was asked did not want it.
    Declined,
    /// A step that must be done cannot.
    Blocked,
}

/// What became of a plan and each of its steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    pub plan: &'static str,
    pub end: End,
    pub steps: Vec<StepOutcome>,
    /// What is to be run once the system is up, where it is not this one.
    pub commands: Vec<String>,
}

/// How far a step was before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepOutcome {
    pub id: &'static str,
    pub title: String,
    #[serde(flatten)]
    pub was: State,
    pub optional: bool,
    /// What was to change.
    pub changes: Vec<String>,
}

impl Outcome {
    /// In a line.
    pub fn words(&self) -> String {
        match self.end {
            End::Done => "Done.".to_owned(),
            End::NothingToDo => "Nothing to do: all of it is as it should be.".to_owned(),
            End::DryRun => "Nothing was changed (--dry-run).".to_owned(),
            End::Emitted => "Nothing of this system was changed.".to_owned(),
            End::Declined => "Nothing was changed.".to_owned(),
            End::Blocked => {
                let blocked = self.steps.iter().find_map(|s| match &s.was {
                    State::Cannot(why) if !s.optional => Some(format!("{}: {why}", s.id)),
                    _ => None,
                });
                format!("Nothing was changed; {}", blocked.unwrap_or_default())
            }
        }
    }

    /// The exit status by the rules for every answer (operator-tools).
    pub fn exit(&self) -> u8 {
        match self.end {
            End::Blocked | End::Declined => 1,
            End::Done | End::NothingToDo | End::DryRun | End::Emitted => 0,
        }
    }
}
