//! Which NPU `selftest` and `bench` run on: this machine's, or a simulated one.

use crate::doctor::finding::{Finding, Report};
use crate::sim::BoardOptions;
use crate::ui::Globals;
use anyhow::{Result, bail};
use clap::Args;
use rocket_runtime::Error;
use rocket_runtime::device::{Board, KernelBoard};
use rocket_sim::SimBoard;
use std::path::{Path, PathBuf};

/// The finding about it.
pub const BOARD: &str = "selftest.board";

/// Where to run.
#[derive(Debug, Clone, Args)]
pub struct Choice {
    /// Run on a simulated board, in this process.
    #[arg(long, conflicts_with = "node")]
    pub sim: bool,
    /// The accel node. Without this the one whose driver is rocket.
    #[arg(long, value_name = "PATH")]
    pub node: Option<PathBuf>,
    #[command(flatten, next_help_heading = "The simulated board (with --sim)")]
    pub options: BoardOptions,
}

/// A board that was opened.
#[derive(Debug)]
pub enum Npu {
    Kernel(KernelBoard),
    Sim(SimBoard),
}

impl Npu {
    pub fn board(&self) -> &dyn Board {
        match self {
            Npu::Kernel(board) => board,
            Npu::Sim(board) => board,
        }
    }

    pub fn sim(&self) -> Option<&SimBoard> {
        match self {
            Npu::Kernel(_) => None,
            Npu::Sim(board) => Some(board),
        }
    }
}

impl Choice {
    /// The board, or why there is none that can be used.
    ///
    /// # Errors
    /// Options that do not belong together.
    pub fn open(&self, globals: &Globals) -> Result<std::result::Result<Npu, Error>> {
        if !self.sim && self.options.as_arguments() != BoardOptions::default().as_arguments() {
            bail!(
                "options of the simulated board need --sim: nothing can be injected into a real one"
            );
        }
        if self.sim {
            return Ok(Ok(Npu::Sim(SimBoard::new(self.options.config()))));
        }
        if globals.root != Path::new("/") {
            bail!(
                "--root {} holds files of a machine, not its NPU; run it there, or with --sim",
                globals.root.display()
            );
        }
        let found = match &self.node {
            Some(path) => KernelBoard::at(path),
            None => KernelBoard::find(),
        };
        Ok(found.map(Npu::Kernel))
    }
}

/// The report of a command that has no NPU to run on.
pub fn missing(why: &Error, command: &str) -> Report {
    let finding = Finding::fail(BOARD, "there is no NPU that can be used")
        .cause(format!("{why}. The same runs on a simulated board: rocketctl {command} --sim"))
        .fix("rocketctl doctor", format!("rocketctl {command}"), "nothing was changed");
    let report = Report::new(vec![finding], &[BOARD]);
    Report { verdict: "nothing was run".into(), ..report }
}
