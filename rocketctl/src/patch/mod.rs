//! `rocketctl patch`: the series for the kernel's driver, and which of it a driver's source has.

pub mod catalog;
mod source;

use crate::ui::{Globals, print};
use anyhow::Result;
use catalog::{Patch, Tier, catalog};
use clap::{Args, Subcommand};
use serde::Serialize;
use source::Source;
use std::path::PathBuf;
use std::process::ExitCode;

/// See [`Command`].
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the patches, what each gives and how much it matters.
    List,
    /// Tell which patches a driver's source has, by what it says and not by who said it.
    ///
    /// Exit status: 0 when it has all that are required, 1 when it has not, 2 for an error.
    Status {
        /// A kernel tree, or a folder with the driver's files.
        dir: PathBuf,
    },
}

/// What a source shows of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// It has what the patch gives.
    There,
    /// It has none of it.
    Missing,
    /// It has a part: worse than either, as nobody has tested it.
    Half,
    /// A function that tells is not there, or cannot be read.
    Unknown,
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    id: &'a str,
    alias: Option<&'a str>,
    tier: Tier,
    title: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State>,
    needs: &'a [String],
    tunables: &'a [String],
    upstream: Option<&'a str>,
    in_series: bool,
}

/// Runs a subcommand.
///
/// # Errors
/// What cannot be read, with its name.
pub fn run(arguments: Arguments, globals: &Globals) -> Result<ExitCode> {
    let (all, json) = (catalog()?, globals.json);
    match arguments.command {
        Command::List => {
            let lines: Vec<Line<'_>> = all.iter().map(|p| line(p, None)).collect();
            print(&if json { json_of(&lines)? } else { table(&lines) })?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Status { dir } => {
            let source = Source::open(&dir)?;
            let lines: Vec<Line<'_>> =
                all.iter().map(|p| line(p, Some(state(p, &source)))).collect();
            let lacking: Vec<&str> = lines
                .iter()
                .filter(|l| l.tier == Tier::Required && l.state != Some(State::There))
                .map(|l| l.id)
                .collect();
            let mut out = match json {
                true => json_of(&lines)?,
                false => format!("{}\n{}", source.dir.display(), table(&lines)),
            };
            if !json && !lacking.is_empty() {
                out += &format!(
                    "\nrequired, and not there: {}\n\
                     kernel-patches/README.md says how to install the series\n",
                    lacking.join(", ")
                );
            }
            print(&out)?;
            Ok(ExitCode::from(u8::from(!lacking.is_empty())))
        }
    }
}

fn line(patch: &Patch, state: Option<State>) -> Line<'_> {
    Line {
        id: &patch.id,
        alias: patch.alias.as_deref(),
        tier: patch.tier,
        title: &patch.title,
        state,
        needs: &patch.needs,
        tunables: &patch.tunables,
        upstream: patch.upstream.as_deref(),
        in_series: patch.in_series(),
    }
}

fn state(patch: &Patch, source: &Source) -> State {
    let mut held = Vec::new();
    for condition in &patch.probe {
        match source.text(&condition.place) {
            Some(text) => held.push(condition.holds(&text)),
            None => return State::Unknown,
        }
    }
    match held.iter().filter(|h| **h).count() {
        n if n == held.len() => State::There,
        0 => State::Missing,
        _ => State::Half,
    }
}

fn table(lines: &[Line<'_>]) -> String {
    let mut out = String::new();
    for l in lines {
        let tier = match l.tier {
            Tier::Required => "required",
            Tier::Recommended => "recommended",
            Tier::Optional => "optional",
        };
        let state = match l.state {
            Some(State::There) => "there    ",
            Some(State::Missing) => "missing  ",
            Some(State::Half) => "HALF     ",
            Some(State::Unknown) => "unknown  ",
            None => "",
        };
        let alias = l.alias.unwrap_or("");
        out += &format!("{state}{:<20} {alias:<3} {tier:<12} {}\n", l.id, l.title);
    }
    out
}

fn json_of(lines: &[Line<'_>]) -> Result<String> {
    Ok(serde_json::to_string_pretty(lines)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn states(dir: &Path) -> Vec<(String, State)> {
        let source = Source::open(dir).unwrap();
        catalog().unwrap().iter().map(|p| (p.id.clone(), state(p, &source))).collect()
    }

    fn of(dir: &Path, id: &str) -> State {
        states(dir).into_iter().find(|(i, _)| i == id).unwrap().1
    }

    /// Whole, half and unreadable sources of two functions; a comment or a string decides nothing.
    #[test]
    fn what_a_source_shows() {
        let dir = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(dir.path().join("rocket_job.c"), text).unwrap();
        let tasks = |body: &str| format!("static int\nrocket_copy_tasks(void)\n{{ {body} }}\n");
        let submit = |body: &str| format!("int rocket_ioctl_submit(void) {{ {body} }}\n");
        let (bare, good) = ("copy_from_user(a);", "copy_struct_from_user (a);");
        let call = "ret = rocket_ioctl_submit_job(a);";
        for (first, second, want) in [
            (tasks(bare), submit("rocket_ioctl_submit_job(a);"), State::Missing),
            (tasks(good), submit(&format!("{good} {call}")), State::There),
            (
                tasks(&format!("/* x */ {good}\n")),
                submit(&format!("\t{good}\n\n{call}")),
                State::There,
            ),
            (tasks(good), submit("rocket_ioctl_submit_job(a);"), State::Half),
            (tasks(&format!("// {good}\n{bare}")), submit(&format!("{good} {call}")), State::Half),
            (tasks(good), String::new(), State::Unknown),
            (tasks(good), "int rocket_ioctl_submit(void) { if (a) {".to_owned(), State::Unknown),
        ] {
            write(&format!("{first}{second}"));
            assert_eq!(of(dir.path(), "extensible-submit"), want, "{first}{second}");
        }
    }

    /// The mechanisms that the public series is described by (kernel-and-uapi C.2), in other words than
    /// ours; and mainline's.
    #[test]
    fn the_same_matter_by_other_hands() {
        let run =
            |body: &str| format!("static struct dma_fence *rocket_job_run(void) {{ {body} }}\n");
        let irq = |body: &str| format!("static void rocket_job_handle_irq(void) {{ {body} }}\n");
        let attach = "ret = iommu_attach_group(job->domain->domain, core->iommu_group);";
        let detach = "iommu_detach_group(NULL, iommu_group_get(core->dev));";
        let kept = format!(
            "if (core->mapped != job->domain) {{ if (core->mapped) {{ {detach} put(core->mapped); }} {attach} }}"
        );
        let reset = |body: &str| format!("static void\nrocket_reset(int a)\n{{\n{body}\n}}\n");
        let stop = "rocket_pc_writel(core, OPERATION_ENABLE, 0x0);";
        let guarded = "scoped_guard(mutex, &core->job_lock) { done(core); }";
        let kick = |n: &str| {
            format!("static void rocket_job_hw_submit(void) {{ PC_TASK_CON_TASK_NUMBER({n}); }}\n")
        };
        let job = |field: &str| format!("struct drm_rocket_job {{ __u64 tasks; {field} }};\n");
        let file = |field: &str| format!("struct rocket_file_priv {{ {field} }};\n");
        let free = |body: &str| format!("void rocket_gem_bo_free(void) {{ {body} }}\n");
        let tasks = |body: &str| format!("static int rocket_copy_tasks(void) {{ {body} }}\n");
        for (id, source, want) in [
            ("keep-attached", run(&kept) + &irq("signal();"), State::There),
            ("keep-attached", run(attach) + &irq(detach), State::Missing),
            ("keep-attached", run(attach) + &irq("signal();"), State::Half),
            (
                "domain-allocator",
                file("int domain;") + &free("drm_mm_remove_node(a);"),
                State::There,
            ),
            (
                "domain-allocator",
                file("struct drm_mm mm;") + &free("bo->driver_priv->mm;"),
                State::Missing,
            ),
            ("task-array", tasks("fail: return ret;"), State::There),
            ("task-array", tasks("fail: kvfree(rjob->tasks); return ret;"), State::Missing),
            ("batched-submit", kick("job->batched ? n : 1") + &job("__u32 flags;"), State::There),
            ("batched-submit", kick("1") + &job(""), State::Missing),
            ("batched-submit", kick("1") + &job("__u32 flags;"), State::Half),
            (
                "reset-before-detach",
                reset(&format!("rocket_core_reset(core);\n{detach}")),
                State::There,
            ),
            (
                "reset-before-detach",
                reset(&format!("{detach}\nrocket_core_reset(core);")),
                State::Missing,
            ),
            (
                "completion-lock",
                irq(&format!("mutex_lock(&core->job_lock); {stop} next();")),
                State::There,
            ),
            ("completion-lock", irq(&format!("{stop} {guarded}")), State::Missing),
            (
                "clocks-by-name",
                "static const char * const ids[] = { \"aclk\", \"hclk\" };".to_owned(),
                State::There,
            ),
            ("clocks-by-name", "// \"aclk\"\n".to_owned(), State::Missing),
            ("clock-lever", "static ulong rocket_npu_clk_hz;".to_owned(), State::There),
            ("voltage", "err = regulator_set_voltage (r, lo, hi);".to_owned(), State::There),
        ] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("rocket_job.c"), &source).unwrap();
            assert_eq!(of(dir.path(), id), want, "{id}: {source}");
        }
    }

    #[test]
    fn a_folder_without_a_driver_is_an_error_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let error = Source::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains(&dir.path().display().to_string()) && error.contains("kernel tree"));
    }
}
