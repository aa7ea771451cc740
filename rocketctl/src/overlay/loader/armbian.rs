//! Armbian's `/boot/armbianEnv.txt`: `user_overlays=` lists files of `/boot/overlay-user` without their ending. U-Boot
//! takes the last line of a name.

use super::lines;
use anyhow::{Result, bail};

const KEY: &str = "user_overlays";

/// The file with an overlay in the list.
///
/// # Errors
/// It is no such file.
pub fn add(text: &str, name: &str) -> Result<String> {
    if text.contains('\0') {
        bail!("this is no text");
    }
    let mut all = lines::split(text);
    match last(&all) {
        Some((_, value)) if lines::has_word(&value, name) => {}
        Some((at, value)) => replace(&mut all, at, &lines::with_word(&value, name)),
        None => {
            let end = all.len();
            lines::insert(&mut all, end, &format!("{KEY}={name}"));
        }
    }
    Ok(all.concat())
}

/// The file with the overlay in no list; a list that is empty after that goes as well.
pub fn remove(text: &str, name: &str) -> String {
    let mut all = lines::split(text);
    for at in (0..all.len()).rev() {
        let Some(value) = value(&all[at]).filter(|v| lines::has_word(v, name)) else { continue };
        let rest = lines::without_word(&value, name);
        match rest.trim().is_empty() {
            true => lines::remove(&mut all, at),
            false => replace(&mut all, at, &rest),
        }
    }
    all.concat()
}

/// Whether the boot loader is told of it.
pub fn has(text: &str, name: &str) -> bool {
    last(&lines::split(text)).is_some_and(|(_, value)| lines::has_word(&value, name))
}

fn value(line: &str) -> Option<String> {
    let (key, value) = lines::cut(line).0.split_once('=')?;
    (key.trim() == KEY).then(|| value.to_owned())
}

fn last(all: &[String]) -> Option<(usize, String)> {
    all.iter().enumerate().rev().find_map(|(at, line)| Some((at, value(line)?)))
}

fn replace(all: &mut [String], at: usize, value: &str) {
    let (body, end) = lines::cut(&all[at]);
    let key = body.split_once('=').map_or(KEY, |(key, _)| key);
    all[at] = format!("{key}={value}{end}");
}
