//! A forecast for people.

use super::advice::Advice;
use super::groups::{Group, by_op, by_type};
use super::plan::{Forecast, Place, Settings, percent};
use crate::doctor::finding::wrapped;
use crate::model::{Format, Header};
use ggml_rocket::route::REASONS;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

/// All that there is to say.
#[derive(Debug)]
pub struct View<'a> {
    pub path: &'a Path,
    pub header: &'a Header,
    pub settings: &'a Settings,
    pub forecast: &'a Forecast,
    pub advice: &'a Advice,
    /// Where the memory's figure comes from.
    pub source: &'static str,
}

const WIDTH: usize = 80;

pub fn of(view: &View, quiet: bool) -> String {
    let mut out = String::new();
    let f = view.forecast;
    if !quiet {
        head(&mut out, view);
        table(&mut out, "type", &by_type(view.header, f), f);
        table(&mut out, "op", &by_op(f), f);
        reasons(&mut out, f);
        residency(&mut out, view);
        for a in &f.assumed {
            paragraph(&mut out, &format!("assumed: {a}"), 0);
        }
        if !f.assumed.is_empty() {
            out.push('\n');
        }
    }
    verdict(&mut out, view);
    out
}

fn paragraph(out: &mut String, text: &str, indent: usize) {
    for line in wrapped(text, WIDTH - indent) {
        let _ = writeln!(out, "{:indent$}{line}", "");
    }
}

/// Bytes, in the largest unit of which there is one.
pub fn bytes(n: u64) -> String {
    let (value, unit) = match n {
        0..0x400 => return format!("{n} B"),
        0x400..0x10_0000 => (n as f64 / 1024.0, "KiB"),
        0x10_0000..0x4000_0000 => (n as f64 / f64::from(1 << 20), "MiB"),
        _ => (n as f64 / f64::from(1 << 30), "GiB"),
    };
    format!("{value:.1} {unit}")
}

fn head(out: &mut String, view: &View) {
    let View { header: h, settings: s, .. } = view;
    let format = match h.format {
        Format::Gguf(version) => format!("GGUF {version}, {}", h.architecture),
        Format::Whisper => "whisper.cpp".to_owned(),
    };
    let parts = if h.parts > 1 { format!(" in {} parts", h.parts) } else { String::new() };
    let name = view.path.file_name().unwrap_or_default().to_string_lossy();
    let size = bytes(h.bytes);
    paragraph(out, &format!("{name}: {format}, {} tensors, {size}{parts}", h.tensors.len()), 0);
    let on = |b: bool| if b { "on" } else { "off" };
    let memory = match s.memory {
        Some(m) => {
            format!("{} of {} available ({})", bytes(m.available), bytes(m.total), view.source)
        }
        None => "memory unknown (no usable /proc/meminfo; give --ram)".to_owned(),
    };
    let rows = match view.forecast.unit {
        "tokens" => format!("prompt of {} tokens, -ub {}", s.cut.prompt, s.cut.ubatch),
        unit => format!("{} {unit}", view.forecast.rows),
    };
    let text = format!(
        "{rows}, -fa {}, repack {} ({}), {}, {memory}",
        on(s.cut.flash),
        on(s.repack),
        s.cpu.words(),
        s.soc.name()
    );
    paragraph(out, &text, 0);
    out.push('\n');
}

fn table(out: &mut String, what: &str, groups: &[Group], f: &Forecast) {
    let [all, _] = f.totals();
    // What is no tensor has none to count.
    let files = groups.iter().any(|g| g.tensors > 0);
    let columns = |name: &str, tensors: &str, size: &str| match files {
        true => format!("{name:<9}{tensors:>8}{size:>10}"),
        false => format!("{name:<27}"),
    };
    let first = columns(&format!("by {what}"), "tensors", "bytes");
    let _ = writeln!(out, "{first}{:>7}{:>8}{:>8}  route, or why not", "ops", "work", "on NPU");
    for g in groups {
        let size = match (g.tensors, g.bytes) {
            (0, _) => "-".to_owned(),
            (_, Some(n)) => bytes(n),
            (_, None) => "unknown".to_owned(),
        };
        let (work, npu) = match g.all.ops {
            0 => ("-".to_owned(), "-".to_owned()),
            _ => (
                format!("{:.1} %", percent(g.all.macs, all.macs)),
                format!("{:.1} %", percent(g.npu.macs, g.all.macs)),
            ),
        };
        let tensors = if g.tensors > 0 { g.tensors.to_string() } else { "-".to_owned() };
        let name: String = g.name.chars().take(if files { 9 } else { 27 }).collect();
        let row = format!("{}{:>7}{work:>8}{npu:>8}", columns(&name, &tensors, &size), g.all.ops);
        let mut outcomes: Vec<_> = g.outcomes.iter().collect();
        outcomes.sort_by_key(|(_, ops)| std::cmp::Reverse(**ops));
        let mut first = true;
        for (name, ops) in outcomes {
            let cell =
                if g.outcomes.len() > 1 { format!("{name} {ops}") } else { (*name).to_owned() };
            for part in wrapped(&cell, WIDTH - row.len() - 2) {
                let _ = match first {
                    true => writeln!(out, "{row}  {part}"),
                    false => writeln!(out, "{:w$}  {part}", "", w = row.len()),
                };
                first = false;
            }
        }
        if first {
            let _ = writeln!(out, "{row}  no products");
        }
    }
    out.push('\n');
}

/// What the reasons mean.
fn reasons(out: &mut String, f: &Forecast) {
    let names: BTreeSet<&str> =
        f.prefill.keys().filter(|s| s.place == Place::Cpu).map(|s| s.outcome).collect();
    for reason in REASONS.iter().filter(|r| names.contains(r.name())) {
        paragraph(out, &format!("{}: {}", reason.name(), reason.sentence()), 0);
    }
    if !names.is_empty() {
        out.push('\n');
    }
}

fn residency(out: &mut String, view: &View) {
    let p = &view.forecast.plan;
    if p.weights + p.stacks == 0 {
        return;
    }
    let mut text = String::new();
    if p.weights > 0 {
        let numbers = if p.int8 { ", quantized ones in int8 for want of room" } else { "" };
        let (have, all) = (bytes(p.resident_bytes), bytes(p.bytes));
        text =
            format!("resident: {} of {} weights, {have} of {all}{numbers}", p.resident, p.weights);
    }
    if p.stacks > 0 {
        let share = percent(p.stacks_resident_bytes, p.stacks_bytes);
        let sep = if text.is_empty() { "resident: " } else { "; " };
        let _ = write!(
            text,
            "{sep}{} of {} stacks of experts have room ({share:.0} % of {})",
            p.stacks_resident,
            p.stacks,
            bytes(p.stacks_bytes)
        );
    }
    let _ = write!(
        text,
        "; {} of {} of the workers' address windows (modelled)",
        bytes(p.window_taken),
        bytes(p.window_bytes)
    );
    paragraph(out, &text, 0);
    if let Some(why) = &p.why {
        paragraph(out, &format!("the others are packed for every micro-batch: {why}"), 2);
    }
    if let Some(m) = view.settings.memory
        && view.header.bytes > m.available
    {
        let (file, have) = (bytes(view.header.bytes), bytes(m.available));
        paragraph(
            out,
            &format!(
                "the file itself ({file}) is larger than the memory ({have}): it is read again and again"
            ),
            2,
        );
    }
    out.push('\n');
}

fn verdict(out: &mut String, view: &View) {
    let (f, a) = (view.forecast, view.advice);
    let share = f.share();
    let mut text = format!("modelled: {share:.1} % of the prefill's multiplications on the NPU");
    if f.repacked > 0 {
        let _ = write!(text, "; the host packs {} weights for its CPU, out of reach", f.repacked);
    }
    if !f.decode.is_empty() && f.decode.keys().all(|s| s.place == Place::Cpu) {
        text += "; decoding stays on the CPU, which is faster at it";
    }
    paragraph(out, &text, 0);
    for note in &a.notes {
        paragraph(out, note, 2);
    }
    let _ = writeln!(out, "recommended, {:.1} % (modelled):", a.npu_share);
    // A command is one line, so that it can be pasted.
    let set = a.environment.iter().map(|(name, value)| format!("{name}={value}"));
    let mut line = String::from("   ");
    for word in set.chain(a.words.iter().cloned()) {
        if line.len() + 1 + word.len() > WIDTH - 2 && line.trim() != "" {
            let _ = writeln!(out, "{line} \\");
            line = String::from("     ");
        }
        line.push(' ');
        line.push_str(&word);
    }
    let _ = writeln!(out, "{line}");
}
