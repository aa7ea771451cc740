//! The plan for a board.

use super::module::{self, Seen};
use super::plugin;
use crate::change::{Plan, State, Step};
use crate::clock::{self, rate::VALIDATED};
use anyhow::Result;
use rocket_runtime::board::{Facts, Root};
use std::path::{Path, PathBuf};

/// What was named on the command line.
#[derive(Debug, Clone, Default)]
pub struct Named {
    pub plugin: Option<PathBuf>,
    pub driver: Option<PathBuf>,
    pub user: Option<String>,
    /// Whether it is for another system than the one that is looked at, as an image.
    pub elsewhere: bool,
}

/// The plan, and the path of the plugin where there will be one.
pub fn plan(root: &Root, facts: &Facts, named: &Named) -> Result<(Plan, Option<&'static str>)> {
    let mut plan = Plan::new(
        "setup",
        "From this board as it is to a working NPU",
        "sudo rocketctl setup --undo",
    );
    let package = module::package(named.driver.as_deref())?;
    // Boards are Arm machines, whatever the files are made on.
    let arm = facts.machine_is_arm() || named.elsewhere;
    let (mut driver, takes_rates) = module::step(&Seen::read(root, facts, package));
    driver.optional |= named.elsewhere;
    let (plugin, path) = plugin::step(root, arm, named.plugin.as_deref());
    // The group before the rules that name it; the option before the driver that reads it.
    plan = plan.step(group(root, facts, named.user.as_deref()));
    plan.steps.extend(crate::udev::steps(root, facts, named.elsewhere));
    plan = plan
        .step(kept_clock(root, facts, takes_rates || named.elsewhere))
        .step(early(root, facts))
        .step(driver);
    if facts.wanted_hz.is_ok() {
        plan = plan.step(
            Step::new(
                "clock-now",
                "The clock at 600 MHz now",
                "It is what boards have been run at.",
            )
            .set(clock::parameter_path(), VALIDATED.to_string()),
        );
    }
    Ok((plan.step(plugin), path))
}

fn kept_clock(root: &Root, facts: &Facts, takes_rates: bool) -> Step {
    let mut step = match clock::keep_step(root, facts, VALIDATED) {
        Ok(step) => step,
        Err(e) => Step::new("clock-keep", "", "").given(State::Cannot(format!("{e:#}"))).optional(),
    };
    step.title = "The clock at 600 MHz from the next start on".into();
    step.why = "The NPU boots at 200 MHz; at 600 prefill is about 1.4 times as fast (reported), at the stock voltage."
        .into();
    match takes_rates {
        true => step.optional(),
        false => {
            let why = "only the patched driver can raise it";
            step.given(State::Cannot(why.into())).optional()
        }
    }
}

/// The group of the node, and who is in it.
fn group(root: &Root, facts: &Facts, named: Option<&str>) -> Step {
    let step = Step::new(
        "group",
        "The group render",
        "Who is in it may use the NPU, from the next login on.",
    );
    let groups = match &facts.groups {
        Ok(groups) => groups,
        Err(absent) => return step.given(State::Cannot(absent.to_string())).optional(),
    };
    let line = groups.lines().find(|l| l.split(':').next() == Some("render"));
    let make = |step: Step| match line {
        None => step.run(&["groupadd", "--system", "render"], Some(&["groupdel", "render"])),
        Some(_) => step,
    };
    let sudo = root.environment().ok().and_then(|e| e.get("SUDO_USER").cloned());
    let user = named.map(str::to_owned).or(sudo).filter(|u| u != "root");
    let Some(user) = user else {
        return match line {
            Some(_) => Step { title: "The group render (no user named: --user)".into(), ..step }
                .given(State::Done),
            None => make(step),
        };
    };
    let users = root.text("etc/passwd").unwrap_or_default();
    if !users.lines().any(|l| l.split(':').next() == Some(user.as_str())) {
        return step.given(State::Cannot(format!("there is no user '{user}'")));
    }
    let members = line.and_then(|l| l.rsplit(':').next()).unwrap_or_default();
    let listed = members.split(',').any(|u| u == user);
    let step = Step { title: format!("{user} in the group render"), ..step };
    match listed {
        true => step.given(State::Done),
        false => make(step)
            .run(&["usermod", "-aG", "render", &user], Some(&["gpasswd", "-d", &user, "render"])),
    }
}

/// On boards where the driver comes after its rail was switched off as unused (case A5).
fn early(root: &Root, facts: &Facts) -> Step {
    const MODULES: &str = "/etc/initramfs-tools/modules";
    const LOADED: &str = "/etc/modules-load.d/rocket-npu.conf";
    let step = Step::new(
        "load-order",
        "The driver before its rail is switched off",
        "The kernel switches off rails that nobody uses some 30 s after the start, and here the driver came later.",
    );
    if !crate::doctor::is_late(facts) {
        return step.given(State::Done);
    }
    let add = |old: Option<&str>| {
        let old = old.unwrap_or_default();
        let has = old.lines().any(|l| l.trim() == "rocket");
        let end = if old.is_empty() || old.ends_with('\n') { "" } else { "\n" };
        Ok(if has { old.to_owned() } else { format!("{old}{end}rocket\n") })
    };
    let update = clock::UPDATE_INITRAMFS;
    match root.exists(MODULES) {
        Ok(true) => step.at_undo(update).edit(MODULES, add).run(update, None),
        _ => step.write(LOADED, "# Of rocketctl setup: see docs/setup.md.\nrocket\n", 0o644),
    }
}

/// What to give hosts.
pub fn hosts_line(path: &Path) -> String {
    format!("export GGML_BACKEND_PATH={}", path.display())
}
