//! Sequences that were recorded: the `rk3588-jobs/1` vectors (npu-rk3588 Appendix D).

use super::{Job, Place, Sequence, Task};
use rocket_runtime::dtype::DType;
use rocket_runtime::plan::{Shape, TilePlan};
use rocket_runtime::program::Reuse;
use serde_json::Value;

impl Sequence {
    /// A recorded run. Outputs become places in one of two buffers: a run has the addresses of
    /// both, and their distance means nothing (Appendix D).
    ///
    /// # Errors
    /// Says which field is not as the schema has it.
    pub fn recorded(v: &Value) -> Result<Sequence, String> {
        let name = text(v, "dtype")?;
        let dtype = DType::from_name(name).ok_or_else(|| format!("dtype '{name}' is unknown"))?;
        let shape = Shape { m: number(v, "M")?, k: number(v, "K")?, n: number(v, "N")? };
        let tiles = &v["plan"];
        let (mt, kt, nt) =
            (number(tiles, "Mtile")?, number(tiles, "Ktile")?, number(tiles, "Ntile")?);
        let [n_mt, n_kt, n_nt] =
            [(shape.m, mt), (shape.k, kt), (shape.n, nt)].map(|(all, tile)| all.div_ceil(tile));
        let plan = TilePlan { mt, kt, nt, n_mt, n_kt, n_nt };
        let mut jobs: Vec<Job> = Vec::new();
        // Where the buffer of the job before starts, in the run's own counting.
        let mut before = 0;
        for job in list(v, "jobs")? {
            let tasks = list(job, "tasks")?;
            let outputs: Vec<usize> =
                tasks.iter().map(|t| number(t, "out")).collect::<Result<_, _>>()?;
            let base = outputs.iter().copied().min().ok_or("a job without tasks")?;
            let accumulates = number(&tasks[0], "acc")? == 1;
            let last = jobs.last().map_or(0, |j| j.tasks[0].output.buffer);
            let buffer = if accumulates { 1 - last } else { 0 };
            let tasks = tasks.iter().map(|t| task(t, Place { buffer, offset: base }, before));
            jobs.push(Job { tasks: tasks.collect::<Result<_, _>>()? });
            before = base;
        }
        Ok(Sequence { dtype, shape, plan, jobs })
    }
}

fn task(t: &Value, base: Place, before: usize) -> Result<Task, String> {
    let flag = |key| Ok::<_, String>(number(t, key)? == 1);
    let within = |at: usize, start: usize| {
        at.checked_sub(start).ok_or_else(|| format!("{at} lies before its buffer"))
    };
    let add = if flag("acc")? {
        let offset = within(number(t, "add")?, before)?;
        Some(Place { buffer: 1 - base.buffer, offset })
    } else {
        None
    };
    Ok(Task {
        extent: Shape { m: number(t, "M")?, k: number(t, "K")?, n: number(t, "N")? },
        input: number(t, "in")?,
        weights: number(t, "wt")?,
        output: Place { offset: within(number(t, "out")?, base.offset)?, ..base },
        add,
        reuse: match (flag("dreuse")?, flag("wreuse")?) {
            (false, false) => Reuse::None,
            (true, false) => Reuse::Data,
            (false, true) => Reuse::Weights,
            (true, true) => return Err("both reuse bits".into()),
        },
    })
}

fn number(v: &Value, key: &str) -> Result<usize, String> {
    let n = v[key].as_u64().and_then(|n| usize::try_from(n).ok());
    n.ok_or_else(|| format!("{key} is {}, not a number", v[key]))
}

fn text<'v>(v: &'v Value, key: &str) -> Result<&'v str, String> {
    v[key].as_str().ok_or_else(|| format!("{key} is {}, not a text", v[key]))
}

fn list<'v>(v: &'v Value, key: &str) -> Result<&'v [Value], String> {
    v[key].as_array().map(Vec::as_slice).ok_or_else(|| format!("{key} is {}, not a list", v[key]))
}
