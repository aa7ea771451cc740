//! `rocketctl unit`: what a server's unit or container needs to use the NPU.

mod container;
mod dropin;
pub mod files;
pub mod parse;
#[cfg(test)]
mod tests;

use crate::change::{End, How, Options, Plan, Step, carry_out};
use crate::doctor::wrapped;
use crate::ui::{Globals, print, print_json};
use crate::withdraw::{Withdrawn, by_journal, by_plan};
use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use container::Container;
use dropin::{DropIn, Wish};
use rocket_runtime::board::{Absent, Root, Why};
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;

/// See [`run`].
#[derive(Debug, Args)]
pub struct Arguments {
    /// The unit.
    #[arg(long = "for", global = true, value_name = "UNIT", default_value = "llama-server")]
    unit: String,
    /// The plugin's file; without it the installed one.
    #[arg(long, global = true, value_name = "FILE")]
    plugin: Option<String>,
    /// The node, in place of all accel nodes.
    #[arg(long, global = true, value_name = "NODE")]
    device: Option<String>,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print the drop-in; changes nothing.
    Show,
    /// Write the drop-in to /etc/systemd/system/UNIT.service.d.
    Install(How),
    /// Take the drop-in away.
    Remove(How),
    /// Print a service for docker compose or podman compose.
    Compose,
    /// Print a Container Device Interface specification, for /etc/cdi.
    Cdi,
}

impl Arguments {
    /// Whether the system is to be changed.
    pub fn changes(&self) -> bool {
        match &self.what {
            Some(What::Install(how) | What::Remove(how)) => how.changes(None),
            Some(What::Show | What::Compose | What::Cdi) | None => false,
        }
    }
}

/// Where the package has the plugin, and where setup puts it without one.
const PLUGINS: [&str; 2] =
    ["/usr/lib/ggml-rocket/libggml-rocket.so", "/usr/local/lib/ggml-rocket/libggml-rocket.so"];
const RELOAD: [&str; 2] = ["systemctl", "daemon-reload"];

/// Prints, installs or removes what a unit needs.
///
/// # Errors
/// A name that no unit has, a plugin's path that is not absolute; what cannot be read or written.
pub fn run(arguments: &Arguments, globals: &Globals) -> Result<ExitCode> {
    let root = Root::open(&globals.root).with_context(|| format!("{}", globals.root.display()))?;
    let case = Case::new(&root, arguments)?;
    match &arguments.what {
        None | Some(What::Show) => case.show(globals),
        Some(What::Install(how)) => case.install(how, globals),
        Some(What::Remove(how)) => case.remove(how, globals),
        Some(What::Compose) => {
            let stem = case.unit.split(['.', '@']).next().unwrap_or_default();
            let text = container::compose(&case.container, stem);
            match globals.json {
                true => print_json(&serde_json::json!({"text": text}))?,
                false => print(&text)?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(What::Cdi) => {
            print_json(&container::cdi(&case.container))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// A unit, and what it is to be given.
#[derive(Debug)]
struct Case {
    unit: String,
    /// Whether there is such a unit; what cannot be read is no missing one.
    there: Result<bool, String>,
    dropin: DropIn,
    container: Container,
}

#[derive(Debug, Serialize)]
struct Shown<'a> {
    schema: u32,
    tool: &'static str,
    version: &'static str,
    unit: &'a str,
    path: String,
    text: String,
    notes: &'a [String],
}

impl Case {
    fn new(root: &Root, asked: &Arguments) -> Result<Case> {
        let unit = files::full_name(&asked.unit).map_err(|e| anyhow!("{e}"))?;
        let printable = |t: &str| t.starts_with('/') && !t.chars().any(char::is_control);
        let installed = || PLUGINS.into_iter().find(|p| root.exists(p) == Ok(true));
        let plugin = asked.plugin.clone();
        let plugin = plugin.unwrap_or_else(|| installed().unwrap_or(PLUGINS[0]).to_owned());
        if !printable(&plugin) {
            bail!("--plugin '{plugin}' is no absolute path; a unit has no folder to start from");
        }
        if let Some(device) = asked.device.as_ref().filter(|d| !printable(d)) {
            bail!("--device '{device}' is no absolute path");
        }
        let (group, gid, mut notes) = group(root);
        let device = asked.device.clone();
        let nodes = device.clone().map_or_else(|| nodes(root), |d| vec![d]);
        let device = device.unwrap_or("char-accel".to_owned());
        let wish = Wish { plugin, device, group };
        // What our own drop-in says is no reason to leave it out.
        let loaded = files::load_without(root, &unit, Some(&path(&unit)));
        let mut dropin = dropin::for_unit(loaded.as_ref().ok().map(|l| &l.unit), &wish);
        if root.exists(&wish.plugin) == Ok(false) {
            notes.push(format!("there is no {} on this system", wish.plugin));
        }
        let there = match &loaded {
            Ok(loaded) => {
                notes.extend(loaded.unread.iter().map(|a| format!("not taken into account: {a}")));
                Ok(true)
            }
            Err(Absent { why: Why::Missing, .. }) => {
                notes.push(format!(
                    "there is no {unit} on this system, so this is for any server's"
                ));
                Ok(false)
            }
            Err(absent) => Err(absent.to_string()),
        };
        dropin.notes.extend(notes);
        Ok(Case { unit, there, dropin, container: Container { wish, nodes, gid } })
    }

    fn path(&self) -> String {
        path(&self.unit)
    }

    fn stem(&self) -> &str {
        self.unit.strip_suffix(".service").unwrap_or(&self.unit)
    }

    fn notes(&self) -> String {
        let note = |n: &String| wrapped(&format!("note: {n}"), 80).join("\n      ") + "\n";
        self.dropin.notes.iter().map(note).collect()
    }

    fn show(&self, globals: &Globals) -> Result<ExitCode> {
        let text = self.dropin.text(&self.unit);
        match globals.json {
            true => print_json(&Shown {
                schema: crate::doctor::SCHEMA,
                tool: "rocketctl",
                version: env!("CARGO_PKG_VERSION"),
                unit: &self.unit,
                path: self.path(),
                text,
                notes: &self.dropin.notes,
            })?,
            false => {
                print(&text)?;
                eprint!("{}", self.notes());
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The name of the plan: one for each unit, so that each is taken back alone.
    fn plan(&self) -> String {
        format!("unit {}", self.unit)
    }

    fn install(&self, how: &How, globals: &Globals) -> Result<ExitCode> {
        let why = match &self.there {
            Ok(true) => None,
            Ok(false) => Some(format!(
                "there is no {}: a drop-in alone does nothing. --for names another unit",
                self.unit
            )),
            Err(why) => Some(why.clone()),
        };
        if let Some(why) = why {
            return self.said(globals, 1, &wrapped(&why, 80).join("\n"), &[]);
        }
        let dir = format!("/etc/systemd/system/{}.d", self.unit);
        let title = format!("Give {} the NPU", self.unit);
        let undo = format!("sudo rocketctl unit remove --for {}", self.stem());
        // A plan's name lives as long as the program, and there is one a run.
        let name: &'static str = Box::leak(self.plan().into_boxed_str());
        let lines: Vec<String> = self.dropin.lines.iter().map(|(line, _)| line.clone()).collect();
        let step = Step::new("unit", format!("a drop-in in {dir}"), lines.join("; "))
            .at_undo(&RELOAD)
            .write(self.path(), self.dropin.text(&self.unit), 0o644)
            .run(&RELOAD, Some(&RELOAD));
        let plan = Plan::new(name, title, undo).step(step);
        let outcome = carry_out(&globals.root, &plan, &options(how), &mut how.said(globals))?;
        let next = match outcome.end {
            End::Done | End::NothingToDo => self.next(),
            _ => Vec::new(),
        };
        let text = wrapped(&outcome.words(), 80).join("\n") + "\n" + &self.notes();
        self.said(globals, outcome.exit(), &text, &next)
    }

    fn next(&self) -> Vec<String> {
        let stem = self.stem();
        vec![
            format!("sudo systemctl restart {stem}"),
            format!("rocketctl doctor --as-service {stem}"),
        ]
    }

    fn remove(&self, how: &How, globals: &Globals) -> Result<ExitCode> {
        let done = self.take_away(&options(how), globals, &mut how.said(globals))?;
        let next = match done {
            Withdrawn::Gone => vec![format!("sudo systemctl restart {}", self.stem())],
            Withdrawn::Nothing | Withdrawn::Not => Vec::new(),
        };
        self.said(globals, done.exit(), "", &next)
    }

    fn take_away(
        &self,
        options: &Options,
        globals: &Globals,
        out: &mut dyn Write,
    ) -> Result<Withdrawn> {
        if let Some(done) = by_journal(&globals.root, &self.plan(), options, out)? {
            return Ok(done);
        }
        let step = Step::new("unit", format!("{} goes", self.path()), "It is no more wanted.")
            .at_undo(&RELOAD)
            .remove(self.path())
            .run(&RELOAD, Some(&RELOAD));
        let undo = format!("sudo rocketctl unit install --for {}", self.stem());
        let title = format!("Take the NPU from {}", self.unit);
        by_plan(&globals.root, &Plan::new("unit-remove", title, undo).step(step), options, out)
    }

    /// The last words, in the form that was asked for.
    fn said(&self, globals: &Globals, exit: u8, text: &str, next: &[String]) -> Result<ExitCode> {
        if globals.json {
            let version = env!("CARGO_PKG_VERSION");
            let schema = crate::doctor::SCHEMA;
            print_json(
                &serde_json::json!({"schema": schema, "tool": "rocketctl", "version": version,
                "exit": exit, "unit": self.unit, "path": self.path(), "text": text, "next": next}),
            )?;
        } else {
            let text = if text.is_empty() || text.ends_with('\n') {
                text.to_owned()
            } else {
                format!("{text}\n")
            };
            let next: String = next.iter().map(|n| format!("next: {n}\n")).collect();
            print(&(text + &next))?;
        }
        Ok(ExitCode::from(exit))
    }
}

/// Where a unit's drop-in is.
fn path(unit: &str) -> String {
    format!("/etc/systemd/system/{unit}.d/50-rocket-npu.conf")
}

fn options(how: &How) -> Options {
    Options { dry_run: how.dry_run, yes: how.yes, emit: None }
}

/// Accel nodes of this system's driver, or the usual one.
fn nodes(root: &Root) -> Vec<String> {
    let names = root.names("sys/class/accel").unwrap_or_default();
    let ours = |n: &String| {
        root.link(&format!("sys/class/accel/{n}/device/driver")).as_deref() == Ok("rocket")
    };
    let found: Vec<String> =
        names.iter().filter(|n| ours(n)).map(|n| format!("/dev/accel/{n}")).collect();
    match found.is_empty() {
        true => vec!["/dev/accel/accel0".to_owned()],
        false => found,
    }
}

/// The node's group with its number, if a unit may have it: one that is not there keeps the unit from starting.
fn group(root: &Root) -> (Option<String>, Option<u32>, Vec<String>) {
    let of_node = nodes(root).first().and_then(|n| root.stat(n).ok()).map(|s| s.group);
    let name = of_node.filter(|g| g != "root" && g != "0").unwrap_or("render".to_owned());
    let Ok(groups) = root.text("etc/group") else { return (Some(name), None, Vec::new()) };
    let line = groups.lines().find(|l| l.split(':').next() == Some(name.as_str()));
    let gid = line.and_then(|l| l.split(':').nth(2)?.parse().ok());
    match line {
        Some(_) => (Some(name), gid, Vec::new()),
        None => {
            let note = format!(
                "there is no group {name} on this system, so the unit is given none: sudo groupadd -r {name}"
            );
            (None, None, vec![note])
        }
    }
}
