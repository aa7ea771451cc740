//! `sim board`, `sim status`, `sim inject`: what boards there are, and what one does.

use crate::ui::print_json;
use anyhow::Context;
use clap::Args;
use rocket_sim::serve::{Client, Status};
use rocket_sim::{DriverProfile, Fault};
use std::process::ExitCode;

/// A board that runs.
#[derive(Debug, Args)]
pub struct Named {
    /// The board's name.
    #[arg(long, value_name = "NAME")]
    board: String,
}

#[derive(Debug, Args)]
pub struct Inject {
    /// The board's name.
    #[arg(long, value_name = "NAME")]
    board: String,
    /// Take all faults away first.
    #[arg(long)]
    clear: bool,
    /// What goes wrong, e.g. hang-job:3: see `rocketctl sim board`.
    faults: Vec<Fault>,
}

fn connect(name: &str) -> anyhow::Result<Client> {
    let place = super::place(name)?;
    Client::connect(&place.node()).with_context(|| {
        format!("no board '{name}' is running; start one with: rocketctl sim serve --board {name}")
    })
}

pub fn status(arguments: &Named, json: bool) -> anyhow::Result<ExitCode> {
    let status = connect(&arguments.board)?.status()?;
    if json {
        print_json(&status)?;
    } else {
        print!("{}", text(&status));
    }
    Ok(ExitCode::SUCCESS)
}

fn text(s: &Status) -> String {
    let c = &s.counters;
    let busy: u64 = c.modelled_ns.iter().sum();
    let calls: Vec<_> = s.calls.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
    let lines = [
        ("driver", s.driver.clone()),
        ("clock", format!("{} MHz", s.clock_hz / 1_000_000)),
        (
            "now",
            format!(
                "{} files, {} buffers of {} bytes, {} jobs in flight",
                s.alive.files, s.alive.buffers, s.alive.bytes, s.alive.jobs
            ),
        ),
        (
            "jobs",
            format!(
                "{} (by core {:?}), {} dropped, {} timed out",
                c.jobs, c.jobs_by_core, c.jobs_dropped, c.jobs_timed_out
            ),
        ),
        ("tasks", format!("{} in {} kicks, {} submits", c.tasks, c.kicks, c.submits)),
        ("macs", c.macs.to_string()),
        (
            "dma",
            format!(
                "{} bytes read, {} written",
                c.dma_read_feature + c.dma_read_weight + c.dma_read_operand + c.dma_read_regcmd,
                c.dma_write
            ),
        ),
        ("calls", calls.join(", ")),
        ("cache sync", format!("{} bytes", c.cpu_sync)),
        ("fences", format!("{} signalled, {} waited for", c.fences, c.waits)),
        ("NPU time", format!("{:.3} ms (modelled)", busy as f64 / 1e6)),
        ("told", format!("{} explanations, {} faults met", s.explanations, c.faults)),
    ];
    lines.iter().map(|(name, value)| format!("{name:<12}{value}\n")).collect()
}

pub fn inject(arguments: &Inject) -> anyhow::Result<ExitCode> {
    let client = connect(&arguments.board)?;
    if arguments.clear {
        client.clear_faults()?;
    } else if arguments.faults.is_empty() {
        anyhow::bail!("name a fault, or --clear; `rocketctl sim board` lists them");
    }
    for fault in &arguments.faults {
        client.inject(&fault.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

pub fn list(json: bool) -> anyhow::Result<ExitCode> {
    if json {
        let profiles: Vec<_> = DriverProfile::ALL
            .iter()
            .map(|p| {
                let (major, minor) = p.version();
                serde_json::json!({
                    "name": p.name(), "version": format!("{major}.{minor}"), "about": p.describe(),
                })
            })
            .collect();
        let faults: Vec<_> = Fault::FORMS
            .iter()
            .map(|(form, about)| serde_json::json!({ "form": form, "about": about }))
            .collect();
        let all = serde_json::json!({ "drivers": profiles, "faults": faults });
        print_json(&all)?;
        return Ok(ExitCode::SUCCESS);
    }
    println!("Drivers (--driver NAME), on an RK3588:");
    for p in DriverProfile::ALL {
        let (major, minor) = p.version();
        println!("  {:<12}{major}.{minor}  {}", p.name(), p.describe());
    }
    println!("\nFaults (--fault FORM); jobs, tasks and calls count from 0 over the whole board:");
    for (form, about) in Fault::FORMS {
        println!("  {form:<32}{about}");
    }
    println!(
        "\nCALL is one of open, version, create-bo, mmap, submit, prep-bo, fini-bo, close-bo."
    );
    Ok(ExitCode::SUCCESS)
}
