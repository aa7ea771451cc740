//! Debian's u-boot-menu: shell assignments in `/etc/default/u-boot` and fragments that are read after it. An empty
//! `U_BOOT_FDT_OVERLAYS` takes every file of the folder; one that is set takes those it lists.

use super::lines;
use anyhow::{Result, bail};

pub const OVERLAYS: &str = "U_BOOT_FDT_OVERLAYS";
pub const FOLDER: &str = "U_BOOT_FDT_OVERLAYS_DIR";

/// What the last assignment of a variable in a file gives it; nothing where there is none.
///
/// # Errors
/// The value is an expression of the shell, which is not evaluated here.
pub fn value(text: &str, name: &str) -> Result<Option<String>> {
    let all = lines::split(text);
    let Some(assigned) = last(&all, name) else { return Ok(None) };
    Ok(Some(plain(&assigned)?.1.to_owned()))
}

/// The file with an overlay in the list, which must not be empty: an empty one takes all there are.
///
/// # Errors
/// The list is an expression of the shell.
pub fn add(text: &str, name: &str) -> Result<String> {
    let mut all = lines::split(text);
    let Some(assigned) = last(&all, OVERLAYS) else { return Ok(text.to_owned()) };
    let (_, list) = plain(&assigned)?;
    if !list.trim().is_empty() && !lines::has_word(list, name) {
        let list = lines::with_word(list, name);
        replace(&mut all, &assigned, &list);
    }
    Ok(all.concat())
}

/// The file with the overlay in no list.
pub fn remove(text: &str, name: &str) -> String {
    let mut all = lines::split(text);
    for at in 0..all.len() {
        let Some(assigned) = assignment(&all, at, OVERLAYS) else { continue };
        let Ok((_, list)) = plain(&assigned) else { continue };
        if lines::has_word(list, name) {
            let list = lines::without_word(list, name);
            replace(&mut all, &assigned, &list);
        }
    }
    all.concat()
}

/// Whether the list has it.
pub fn has(text: &str, name: &str) -> bool {
    value(text, OVERLAYS).is_ok_and(|list| list.is_some_and(|l| lines::has_word(&l, name)))
}

/// `NAME=value` in a file.
struct Assignment {
    at: usize,
    /// Up to and with the equals sign.
    head: String,
    /// Quotes included.
    value: String,
    /// Blanks, a comment, the line's end.
    tail: String,
}

fn last(all: &[String], name: &str) -> Option<Assignment> {
    (0..all.len()).rev().find_map(|at| assignment(all, at, name))
}

fn assignment(all: &[String], at: usize, name: &str) -> Option<Assignment> {
    let body = lines::cut(&all[at]).0;
    let start = body.trim_start();
    let start = start.strip_prefix("export ").unwrap_or(start).trim_start();
    let rest = start.strip_prefix(name)?.strip_prefix('=')?;
    let length = match rest.chars().next() {
        Some(quote @ ('"' | '\'')) => rest[1..].find(quote).map_or(rest.len(), |end| end + 2),
        _ => rest.find(char::is_whitespace).unwrap_or(rest.len()),
    };
    let head = &all[at][..body.len() - rest.len()];
    let (value, tail) = all[at][head.len()..].split_at(length);
    Some(Assignment { at, head: head.to_owned(), value: value.to_owned(), tail: tail.to_owned() })
}

/// The quote of a value and what is in it.
fn plain(assigned: &Assignment) -> Result<(&str, &str)> {
    let value = assigned.value.as_str();
    let tail = assigned.tail.trim_start();
    let quote = value.get(..1).filter(|q| ["\"", "'"].contains(q)).unwrap_or("");
    let inner = match quote {
        "" => Some(value),
        quote => value[1..].strip_suffix(quote),
    };
    let special = |c: char| "$`\\\"';&|<>()".contains(c);
    match inner {
        Some(inner) if !inner.contains(special) && (tail.is_empty() || tail.starts_with('#')) => {
            Ok((quote, inner))
        }
        _ => bail!("line {} is more than a list of names: {}", assigned.at + 1, value),
    }
}

fn replace(all: &mut [String], assigned: &Assignment, list: &str) {
    let quote = match plain(assigned) {
        Ok(("", _)) if list.contains(char::is_whitespace) => "\"",
        Ok((quote, _)) => quote,
        Err(_) => return,
    };
    all[assigned.at] = format!("{}{quote}{list}{quote}{}", assigned.head, assigned.tail);
}
