//! `sim explain` and `sim rules`.

use clap::Args;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub struct Arguments {}

#[derive(Debug, Args)]
pub struct Rules {}

pub fn run(_: &Arguments) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not there yet")
}

pub fn rules(_: &Rules) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not there yet")
}
