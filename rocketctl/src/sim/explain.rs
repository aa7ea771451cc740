//! `sim explain`, `sim rules`, `sim fit`: what the simulator knows about programs.

use crate::ui::print;
use anyhow::{Context, bail};
use clap::Args;
use rocket_sim::listing::{self, Listing};
use rocket_sim::{Class, Rule, register_name, timing};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Args)]
pub struct Arguments {
    /// The program: raw little-endian 64-bit words, hex text with a word a line, or JSON with the
    /// words in it. "-" is standard input.
    file: PathBuf,
    /// Only the broken rules, not the words.
    #[arg(long)]
    brief: bool,
}

#[derive(Debug, Args)]
pub struct Rules {
    /// All that is known of this rule.
    id: Option<String>,
}

/// Largest file that is read; a program of a batched job has a few thousand words.
const LARGEST: u64 = 64 << 20;

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().take(LARGEST + 1).read_to_end(&mut bytes)?;
    } else {
        let file =
            std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        file.take(LARGEST + 1)
            .read_to_end(&mut bytes)
            .with_context(|| format!("cannot read {}", path.display()))?;
    }
    if bytes.len() as u64 > LARGEST {
        bail!("{} is larger than {} MiB; no program is", path.display(), LARGEST >> 20);
    }
    Ok(bytes)
}

/// Exit status 1 when a rule is broken that is more than a note.
pub fn run(arguments: &Arguments, json: bool) -> anyhow::Result<ExitCode> {
    let bytes = read(&arguments.file)?;
    let programs = listing::parse(&bytes).with_context(|| arguments.file.display().to_string())?;
    let listings: Vec<Listing> = programs.iter().map(listing::list).collect();
    let broken = listings.iter().flat_map(|l| &l.findings).any(|f| f.rule.class() != Class::Note);
    let text = if json {
        serde_json::to_string_pretty(&listings)? + "\n"
    } else if arguments.brief {
        listings.iter().map(brief).collect()
    } else {
        listings.iter().map(|l| format!("{l}\n")).collect()
    };
    print(&text)?;
    Ok(ExitCode::from(u8::from(broken)))
}

fn brief(listing: &Listing) -> String {
    if listing.findings.is_empty() {
        return format!("{}: breaks no rule\n", listing.name);
    }
    let lines = listing.findings.iter().map(|f| {
        let (class, section) = (f.rule.class(), f.rule.section());
        format!("{}: {}: {class}: {} ({section})\n", listing.name, f.rule.id(), f.message)
    });
    lines.collect()
}

pub fn rules(arguments: &Rules, json: bool) -> anyhow::Result<ExitCode> {
    let wanted: Vec<Rule> = match &arguments.id {
        None => Rule::ALL.to_vec(),
        Some(id) => {
            let rule = Rule::from_id(id)
                .with_context(|| format!("no rule is called '{id}'; see `rocketctl sim rules`"))?;
            vec![rule]
        }
    };
    let text = if json {
        let list: Vec<_> = wanted.iter().map(|r| as_json(*r)).collect();
        serde_json::to_string_pretty(&list)? + "\n"
    } else if arguments.id.is_some() {
        wanted.iter().map(|r| in_full(*r)).collect()
    } else {
        wanted
            .iter()
            .map(|r| format!("{:<28}{:<16}{}\n", r.id(), r.class().to_string(), r.title()))
            .collect()
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn registers(rule: Rule) -> Vec<String> {
    let name = |o: &u16| format!("{} (0x{o:04x})", register_name(*o).unwrap_or("?"));
    rule.registers().iter().map(name).collect()
}

fn as_json(rule: Rule) -> serde_json::Value {
    serde_json::json!({
        "id": rule.id(),
        "number": rule.number(),
        "class": rule.class().to_string(),
        "title": rule.title(),
        "sentence": rule.sentence(),
        "registers": registers(rule),
        "section": rule.section(),
    })
}

fn in_full(rule: Rule) -> String {
    let registers = registers(rule);
    let about = if registers.is_empty() { "none".to_owned() } else { registers.join(", ") };
    format!(
        "{}: {}\n{}\nleads to:  {}\nregisters: {about}\nsource:    {}\n",
        rule.id(),
        rule.title(),
        rule.sentence(),
        rule.class(),
        rule.section()
    )
}

/// How well the modelled time fits what was published.
pub fn fit() -> anyhow::Result<ExitCode> {
    print(&timing::table(&timing::fit()))?;
    Ok(ExitCode::SUCCESS)
}
