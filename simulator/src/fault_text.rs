//! Faults as people write them: a kind and numbers, joined by colons.

use crate::fault::Call;
use crate::{Errno, Fault};
use std::fmt;
use std::str::FromStr;

/// Every form with an example's meaning: what help texts list.
pub(crate) const FORMS: &[(&str, &str)] = &[
    ("drop-job:JOB", "the job is accepted but never runs"),
    ("reject-job:JOB", "SUBMIT finds the job malformed"),
    ("hang-job:JOB", "the job hangs before its first task"),
    ("lose-interrupt:JOB", "the job runs, its completion interrupt is lost"),
    ("iommu-fault:JOB", "the job's first transfer meets an unmapped address"),
    ("slow-job:JOB:TIMES", "the job takes so many times its modelled time"),
    ("park-clock:JOB", "from the middle of the job on the clock is 200 MHz"),
    ("hang-task:JOB:TASK", "one task of the job hangs"),
    ("partial-task:JOB:TASK:SURFACES", "the task stores its first surfaces only, then hangs"),
    ("short-task:JOB:TASK:SURFACES", "the task stores its first surfaces only, then completes"),
    ("fail:CALL:N:ERRNO", "the N-th call of that kind fails, e.g. fail:create-bo:2:ENOMEM"),
    ("refuse:CALL:ERRNO", "every call of that kind fails, e.g. refuse:open:EACCES"),
    ("vanish:N", "from the N-th driver call on the node is gone"),
    ("struct-skew", "the driver refuses jobs of the original 40 bytes"),
    ("seeded:SEED:ONE_IN", "one call or job in ONE_IN fails, picked by the seed"),
];

impl Fault {
    /// The forms that [`FromStr`] takes, each with its meaning. Jobs, tasks and calls count from
    /// zero over the whole board.
    pub const FORMS: &[(&str, &str)] = FORMS;
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Fault::DropJob(n) => write!(f, "drop-job:{n}"),
            Fault::RejectJob(n) => write!(f, "reject-job:{n}"),
            Fault::HangJob(n) => write!(f, "hang-job:{n}"),
            Fault::LoseInterrupt(n) => write!(f, "lose-interrupt:{n}"),
            Fault::IommuFault(n) => write!(f, "iommu-fault:{n}"),
            Fault::SlowJob { job, times } => write!(f, "slow-job:{job}:{times}"),
            Fault::ParkClock(n) => write!(f, "park-clock:{n}"),
            Fault::HangTask { job, task } => write!(f, "hang-task:{job}:{task}"),
            Fault::PartialTask { job, task, surfaces } => {
                write!(f, "partial-task:{job}:{task}:{surfaces}")
            }
            Fault::ShortTask { job, task, surfaces } => {
                write!(f, "short-task:{job}:{task}:{surfaces}")
            }
            Fault::Fail { call, n, errno } => write!(f, "fail:{}:{n}:{errno:?}", call.name()),
            Fault::Refuse { call, errno } => write!(f, "refuse:{}:{errno:?}", call.name()),
            Fault::Vanish(n) => write!(f, "vanish:{n}"),
            Fault::StructSkew => f.write_str("struct-skew"),
            Fault::Seeded { seed, one_in } => write!(f, "seeded:{seed}:{one_in}"),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        parse(text).ok_or_else(|| {
            let forms: Vec<&str> = FORMS.iter().map(|(form, _)| *form).collect();
            format!("'{text}' is not a fault; write one of {}", forms.join(", "))
        })
    }
}

fn parse(text: &str) -> Option<Fault> {
    let parts: Vec<&str> = text.split(':').collect();
    Some(match parts[..] {
        ["drop-job", n] => Fault::DropJob(n.parse().ok()?),
        ["reject-job", n] => Fault::RejectJob(n.parse().ok()?),
        ["hang-job", n] => Fault::HangJob(n.parse().ok()?),
        ["lose-interrupt", n] => Fault::LoseInterrupt(n.parse().ok()?),
        ["iommu-fault", n] => Fault::IommuFault(n.parse().ok()?),
        ["slow-job", job, times] => {
            Fault::SlowJob { job: job.parse().ok()?, times: times.parse().ok()? }
        }
        ["park-clock", n] => Fault::ParkClock(n.parse().ok()?),
        ["hang-task", job, task] => {
            Fault::HangTask { job: job.parse().ok()?, task: task.parse().ok()? }
        }
        ["partial-task", job, task, surfaces] => Fault::PartialTask {
            job: job.parse().ok()?,
            task: task.parse().ok()?,
            surfaces: surfaces.parse().ok()?,
        },
        ["short-task", job, task, surfaces] => Fault::ShortTask {
            job: job.parse().ok()?,
            task: task.parse().ok()?,
            surfaces: surfaces.parse().ok()?,
        },
        ["fail", c, n, errno] => {
            Fault::Fail { call: call(c)?, n: n.parse().ok()?, errno: errno_of(errno)? }
        }
        ["refuse", c, errno] => Fault::Refuse { call: call(c)?, errno: errno_of(errno)? },
        ["vanish", n] => Fault::Vanish(n.parse().ok()?),
        ["struct-skew"] => Fault::StructSkew,
        ["seeded", seed, one_in] => Fault::Seeded {
            seed: seed.parse().ok()?,
            one_in: one_in.parse().ok().filter(|n| *n > 0)?,
        },
        _ => return None,
    })
}

fn call(name: &str) -> Option<Call> {
    Call::ALL.into_iter().find(|c| c.name() == name)
}

fn errno_of(name: &str) -> Option<Errno> {
    // The numbers of every Linux errno.
    (1..=133).map(Errno::from_raw).find(|e| format!("{e:?}") == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_reads_back() {
        for (form, _) in FORMS {
            let text = form
                .replace("ERRNO", "ENOMEM")
                .replace("CALL", "prep-bo")
                .replace("ONE_IN", "9")
                .replace("SURFACES", "3");
            let number = ["JOB", "TASK", "TIMES", "SEED", "N"];
            let text = number.iter().fold(text, |t, name| t.replace(name, "7"));
            // ENOMEM has lost its N by now.
            let text = text.replace("E7OMEM", "ENOMEM");
            let fault: Fault = text.parse().unwrap();
            assert_eq!(fault.to_string(), text);
        }
        for bad in ["", "hang-job", "hang-job:x", "fail:open:1:ENOSUCH", "seeded:1:0", "vanish:-1"]
        {
            let said = bad.parse::<Fault>().unwrap_err();
            assert!(said.contains("hang-job:JOB"), "{said}");
        }
    }
}
