//! `extlinux.conf`, as U-Boot reads it: `fdtoverlays` of the label that is booted by default. Keywords know no case; a
//! label lasts to the next one.

use super::lines;
use anyhow::{Result, bail};
use std::ops::Range;

const OVERLAYS: [&str; 2] = ["fdtoverlays", "devicetree-overlay"];
const TREES: [&str; 4] = ["fdt", "devicetree", "fdtdir", "devicetreedir"];
const KERNELS: [&str; 4] = ["linux", "kernel", "fit", "localboot"];

/// The file with an overlay in the default label. `path` is what the boot loader calls it.
///
/// # Errors
/// There is no default label, or U-Boot would not apply an overlay to it.
pub fn add(text: &str, path: &str) -> Result<String> {
    let mut all = lines::split(text);
    let label = default_label(&all)?;
    if let Some(at) = find(&all, label.clone(), &OVERLAYS) {
        let (_, list) = keyword(&all[at]).unwrap_or_default();
        if !lines::has_word(list, path) {
            let list = list.to_owned();
            replace(&mut all, at, &lines::with_word(&list, path));
        }
        return Ok(all.concat());
    }
    let Some(tree) = find(&all, label, &TREES) else {
        bail!(
            "the default label has no fdt or fdtdir line: U-Boot then takes the firmware's own device tree, \
             and applies no overlay to it. Add the line 'fdtdir' with the folder of the kernel's device trees \
             to that label"
        );
    };
    let body = lines::cut(&all[tree]).0;
    let indent = body[..body.len() - body.trim_start().len()].to_owned();
    lines::insert(&mut all, tree + 1, &format!("{indent}{} {path}", OVERLAYS[0]));
    Ok(all.concat())
}

/// The file with the overlay in no label: another may be the default by now. A list that is empty after that goes as
/// well.
pub fn remove(text: &str, path: &str) -> String {
    let mut all = lines::split(text);
    for at in (0..all.len()).rev() {
        let Some((word, list)) = keyword(&all[at]) else { continue };
        if !is(word, &OVERLAYS) || !lines::has_word(list, path) {
            continue;
        }
        let rest = lines::without_word(list, path);
        match rest.trim().is_empty() {
            true => lines::remove(&mut all, at),
            false => replace(&mut all, at, &rest),
        }
    }
    all.concat()
}

/// Whether the default label has it.
pub fn has(text: &str, path: &str) -> bool {
    let all = lines::split(text);
    let at = default_label(&all).ok().and_then(|label| find(&all, label, &OVERLAYS));
    at.and_then(|at| keyword(&all[at])).is_some_and(|(_, list)| lines::has_word(list, path))
}

/// What the default label boots, by which the root of its paths can be told.
pub fn kernel(text: &str) -> Option<String> {
    let all = lines::split(text);
    let at = find(&all, default_label(&all).ok()?, &KERNELS)?;
    Some(keyword(&all[at])?.1.trim().to_owned())
}

/// A line's keyword and what stands behind it, blanks included; nothing of an empty line or a comment.
fn keyword(line: &str) -> Option<(&str, &str)> {
    let body = lines::cut(line).0.trim_start();
    let end = body.find(char::is_whitespace).unwrap_or(body.len());
    (end > 0 && !body.starts_with('#')).then(|| body.split_at(end))
}

fn is(word: &str, known: &[&str]) -> bool {
    known.iter().any(|k| word.eq_ignore_ascii_case(k))
}

/// The first line of a range with one of these keywords: U-Boot keeps the first of a label.
fn find(all: &[String], range: Range<usize>, known: &[&str]) -> Option<usize> {
    range.into_iter().find(|at| keyword(&all[*at]).is_some_and(|(word, _)| is(word, known)))
}

/// Lines of the label that `default` names, else that says `menu default`, else of the first one, which U-Boot tries
/// first.
fn default_label(all: &[String]) -> Result<Range<usize>> {
    let is_label = |at: &usize| keyword(&all[*at]).is_some_and(|(word, _)| is(word, &["label"]));
    let starts: Vec<usize> = (0..all.len()).filter(is_label).collect();
    let ends = starts.iter().skip(1).copied().chain([all.len()]);
    let labels: Vec<Range<usize>> = starts.iter().copied().zip(ends).map(|(s, e)| s..e).collect();
    let name = |label: &Range<usize>| keyword(&all[label.start]).map_or("", |(_, n)| n.trim());
    let head = 0..starts.first().copied().unwrap_or(all.len());
    let named = head.rev().filter_map(|at| keyword(&all[at]));
    let named =
        named.filter(|(word, _)| is(word, &["default", "ontimeout"])).map(|(_, n)| n.trim());
    if let Some(wanted) = named.into_iter().next() {
        let found = labels.iter().find(|l| name(l) == wanted);
        let names = labels.iter().map(name).collect::<Vec<_>>().join(", ");
        let Some(found) = found else {
            bail!("default names '{wanted}', and the labels are: {names}")
        };
        return Ok(found.clone());
    }
    let says = |label: &&Range<usize>| {
        let menu = |at: usize| {
            let (word, rest) = keyword(&all[at])?;
            Some(is(word, &["menu"]) && is(rest.trim(), &["default"]))
        };
        (*label).clone().any(|at| menu(at) == Some(true))
    };
    match labels.iter().find(says).or(labels.first()) {
        Some(label) => Ok(label.clone()),
        None => bail!("it has no label"),
    }
}

fn replace(all: &mut [String], at: usize, list: &str) {
    let (body, end) = lines::cut(&all[at]);
    let list_length = keyword(&all[at]).map_or(0, |(_, l)| l.len());
    let head = &body[..body.len() - list_length];
    // A list that was empty had no blank before it.
    let blank = if list.starts_with(char::is_whitespace) { "" } else { " " };
    all[at] = format!("{head}{blank}{list}{end}");
}
