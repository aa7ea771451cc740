//! Carrying out a plan.

use super::back::take_back;
use super::disk::{Disk, Real};
use super::effect::{Effect, State, Whole, effect, missing_folders};
use super::file::write_file;
use super::journal::{Begin, Deed, Record, SCHEMA, What};
use super::outcome::{End, Outcome, StepOutcome};
use super::place::{Place, parent};
use super::runs::Runs;
use super::undo::Undone;
use super::{Plan, Step, emit, show};
use anyhow::{Context, Result, anyhow, bail};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// How a plan is carried out.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Shows it and does nothing.
    pub dry_run: bool,
    /// Does not ask.
    pub yes: bool,
    /// Writes the files to this folder in place of the system, with the commands.
    pub emit: Option<PathBuf>,
}

/// Shows a plan, asks, and carries it out. A failure brings everything back.
///
/// # Errors
/// Why it failed, and whether the system is as it was.
pub fn carry_out(
    root: &Path,
    plan: &Plan,
    options: &Options,
    out: &mut dyn Write,
) -> Result<Outcome> {
    let place = Place::new(root)?;
    if !options.dry_run && options.emit.is_none() {
        show::needs_root(root)?;
    }
    carry_out_on(&mut Real, &place, plan, options, out)
}

pub fn carry_out_on(
    disk: &mut dyn Disk,
    place: &Place,
    plan: &Plan,
    options: &Options,
    out: &mut dyn Write,
) -> Result<Outcome> {
    let mut outcome = looked_at(disk, place, plan);
    show::plan(plan, &outcome, out)?;
    let to_do = |s: &StepOutcome| s.was == State::ToDo;
    let blocked = |s: &StepOutcome| matches!(s.was, State::Cannot(_)) && !s.optional;
    if let Some(dir) = &options.emit {
        if !options.dry_run {
            emit::files(disk, place, plan, dir, out)?;
            outcome.end = End::Emitted;
        }
        return Ok(outcome);
    }
    // Of another system's root commands are listed alone, and may have been run there since.
    let open = plan.steps.iter().zip(&outcome.steps).filter(|(_, s)| to_do(s));
    let open: Vec<&Step> = open.map(|(step, _)| step).collect();
    let only_listed = |step: &&Step| !place.is_live() && step.is_commands();
    outcome.end = match () {
        () if outcome.steps.iter().any(blocked) => End::Blocked,
        () if open.iter().all(only_listed) => End::NothingToDo,
        () if options.dry_run => End::DryRun,
        () => End::Done,
    };
    if outcome.end == End::NothingToDo {
        outcome.commands = open.iter().flat_map(|step| step.commands()).collect();
        listed(&outcome.commands, out);
    }
    if outcome.end != End::Done {
        return Ok(outcome);
    }
    if !show::confirmed(options.yes, "Go on?")? {
        outcome.end = End::Declined;
        return Ok(outcome);
    }
    outcome.commands = steps(disk, place, plan, out)?;
    listed(&outcome.commands, out);
    Ok(outcome)
}

fn listed(commands: &[String], out: &mut dyn Write) {
    for command in commands {
        // That nobody listens any more changes nothing.
        let _ = writeln!(out, "to run on that system: {command}");
    }
}

fn looked_at(disk: &mut dyn Disk, place: &Place, plan: &Plan) -> Outcome {
    let step = |step: &Step| {
        let was = step.state(disk, place);
        let changes = step.changes.iter().filter(|_| was == State::ToDo);
        let changes = changes.filter_map(|c| show::change(c, place.is_live())).collect();
        let (title, optional) = (step.title.clone(), step.optional);
        StepOutcome { id: step.id, title, was, optional, changes }
    };
    let steps = plan.steps.iter().map(step).collect();
    Outcome { plan: plan.name, end: End::DryRun, steps, commands: Vec::new() }
}

/// A run under way.
struct Run<'a> {
    place: &'a Place,
    journal: &'a Runs,
    number: u32,
    deeds: Vec<Deed>,
    commands: Vec<String>,
}

fn steps(
    disk: &mut dyn Disk,
    place: &Place,
    plan: &Plan,
    out: &mut dyn Write,
) -> Result<Vec<String>> {
    let unwritten = "the journal cannot be written, so nothing was changed; on a system that is \
                     read-only, --emit DIR writes the files elsewhere";
    let journal =
        Runs::open(disk, place, true).map_err(|e| match e.downcast_ref::<io::Error>() {
            Some(_) => e.context(unwritten),
            None => e,
        })?;
    let journal = journal.ok_or_else(|| anyhow!("no journal"))?;
    let earlier = match journal.all(disk) {
        Ok(earlier) => earlier,
        Err(e) => {
            let made = journal.made.clone();
            return Err(journal.leave(disk, place, &made).err().unwrap_or(e));
        }
    };
    if let Some((_, left)) = earlier.iter().find(|(_, j)| !j.ended) {
        bail!(
            "an earlier run of '{}' was interrupted; first bring back what was there before it: {}",
            left.begin.plan,
            left.begin.undo
        );
    }
    let number = earlier.last().map_or(0, |(n, _)| *n) + 1;
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let begin = Begin {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        plan: plan.name.to_owned(),
        undo: plan.undo.clone(),
        time,
        made: journal.made.clone(),
    };
    let mut run = Run { place, journal: &journal, number, deeds: Vec::new(), commands: Vec::new() };
    let done = run.all(disk, plan, begin, out);
    let Run { deeds, commands, .. } = run;
    let Err(mut e) = done else { return Ok(commands) };
    let read_only = |c: &(dyn std::error::Error + 'static)| {
        c.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::ReadOnlyFilesystem)
    };
    if e.chain().any(read_only) {
        e = e.context("this system is read-only there; --emit DIR writes the files elsewhere");
    }
    let mut undone = Undone::default();
    let made = journal.made.clone();
    let back = take_back(disk, place, &journal, number, &deeds, &mut undone)
        .and_then(|()| journal.forget(disk, number))
        .and_then(|()| match earlier.is_empty() {
            true => journal.leave(disk, place, &made),
            false => Ok(()),
        });
    Err(match back {
        Ok(()) if undone.left.is_empty() && undone.failed.is_empty() => {
            e.context("failed; the system is as it was")
        }
        Ok(()) => {
            let but = [undone.left, undone.failed].concat().join("; ");
            e.context(format!("failed; the system is as it was, but for: {but}"))
        }
        Err(back) => e.context(format!(
            "failed, and the system could not be brought back ({back:#}); try: {}",
            plan.undo
        )),
    })
}

impl Run<'_> {
    fn all(
        &mut self,
        disk: &mut dyn Disk,
        plan: &Plan,
        begin: Begin,
        out: &mut dyn Write,
    ) -> Result<()> {
        self.journal.begin(disk, self.number, begin)?;
        for (at, step) in plan.steps.iter().enumerate() {
            if step.state(disk, self.place) == State::ToDo {
                // That nobody listens any more is no reason to stop half way.
                let _ = writeln!(out, "[{}/{}] {}", at + 1, plan.steps.len(), step.title);
                let _ = out.flush();
                self.step(disk, step).with_context(|| format!("step {}", step.id))?;
            }
        }
        self.journal.record(disk, self.number, &Record::End)
    }

    fn step(&mut self, disk: &mut dyn Disk, step: &Step) -> Result<()> {
        for change in &step.changes {
            let Some(found) = effect(disk, self.place, change)? else { continue };
            if let Effect::File { path, new: Some(_), .. } | Effect::Folder { path, .. } = &found {
                for path in missing_folders(disk, self.place, path)? {
                    self.make(disk, step, Effect::Folder { path, mode: 0o755 })?;
                }
            }
            self.make(disk, step, found)?;
        }
        Ok(())
    }

    /// Writes a change down, and makes it.
    fn make(&mut self, disk: &mut dyn Disk, step: &Step, found: Effect) -> Result<()> {
        if let Effect::Run { argv, .. } = &found
            && !self.place.is_live()
        {
            if !argv.is_empty() {
                self.commands.push(super::command::quoted(argv));
            }
            return Ok(());
        }
        let n = self.deeds.len() as u32 + 1;
        let deed = Deed { n, step: step.id.to_owned(), what: what(&found) };
        self.deeds.push(deed.clone());
        let old = match &found {
            Effect::File { old: Some(old), .. } => Some(old.bytes.as_slice()),
            _ => None,
        };
        self.journal.note(disk, self.number, &deed, old)?;
        match &found {
            Effect::File { path, new: Some(new), .. } => {
                write_file(disk, self.place, path, new).with_context(|| path.clone())
            }
            Effect::File { path, new: None, .. } => {
                disk.unlink(&self.place.real(path)).with_context(|| path.clone())?;
                Ok(disk.sync(&self.place.real(parent(path)))?)
            }
            Effect::Folder { path, mode } => {
                disk.mkdir(&self.place.real(path), *mode).with_context(|| path.clone())?;
                Ok(disk.sync(&self.place.real(parent(path)))?)
            }
            Effect::Set { path, new, .. } => disk
                .set(&self.place.real(path), format!("{new}\n").as_bytes())
                .with_context(|| path.clone()),
            Effect::Run { argv, .. } if argv.is_empty() => Ok(()),
            Effect::Run { argv, .. } => {
                disk.run(argv).with_context(|| super::command::quoted(argv))
            }
        }
    }
}

fn what(found: &Effect) -> What {
    match found {
        Effect::File { path, old, new } => What::File {
            path: path.clone(),
            old: old.as_ref().map(Whole::print),
            new: new.as_ref().map(Whole::print),
        },
        Effect::Folder { path, .. } => What::Folder { path: path.clone() },
        Effect::Set { path, old, new } => {
            What::Set { path: path.clone(), old: old.clone(), new: new.clone() }
        }
        Effect::Run { argv, undo } => What::Run { argv: argv.clone(), undo: undo.clone() },
    }
}
