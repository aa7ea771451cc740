//! From text to a value of its knob's kind.

use super::table::{Kind, Knob, MAX_CPU, MAX_MB};
use std::ffi::OsStr;
use std::path::PathBuf;

/// What a variable was found to hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Of the kinds `Int`, `IntOr` and `Residency`, always in range.
    Int(u64),
    /// Always in range.
    Real(f64),
    /// Of the kinds `Flag`, `Presence` and `Folder`.
    Flag(bool),
    /// As the table spells it.
    Word(&'static str),
    /// Ascending, each once, none empty.
    Cores(Vec<usize>),
    /// Not empty; also of the kind `Folder`.
    Path(PathBuf),
    /// Not empty.
    Name(String),
}

/// Text that could not be taken as it is.
#[derive(Debug, Clone, PartialEq)]
pub enum Bad {
    /// A number beyond the range: the nearest bound.
    Clamped(Value),
    /// Nothing that this kind can hold.
    Malformed,
}

/// Reads `given` as what `knob` holds. Space around it does not count; `None` for an empty text,
/// which is as good as unset.
///
/// # Errors
/// Why it cannot be taken as it is.
pub fn parse(knob: &Knob, given: &OsStr) -> Result<Option<Value>, Bad> {
    if knob.kind == Kind::Presence {
        return Ok(Some(Value::Flag(true)));
    }
    // What is not UTF-8 is no number and no word, and stays so.
    let text = given.to_string_lossy();
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    match knob.kind {
        Kind::Int { min, max } => int(text, min, max),
        Kind::IntOr { word, .. } if text.eq_ignore_ascii_case(word) => Ok(Value::Word(word)),
        Kind::IntOr { min, max, .. } => int(text, min, max),
        Kind::Real { min, max } => real(text, min, max),
        Kind::Flag => flag(text).map(Value::Flag).ok_or(Bad::Malformed),
        Kind::Word(words) => word(text, words).ok_or(Bad::Malformed),
        Kind::Residency => match (text.eq_ignore_ascii_case("auto"), flag(text)) {
            (true, _) => Ok(Value::Word("auto")),
            (_, Some(on)) => Ok(Value::Int(on.into())),
            _ => int(text, 0, MAX_MB),
        },
        Kind::Cores => cores(text).ok_or(Bad::Malformed),
        Kind::Name => Ok(Value::Name(text.to_owned())),
        Kind::Path => Ok(Value::Path(PathBuf::from(given))),
        Kind::Folder => Ok(flag(text).map_or(Value::Path(PathBuf::from(given)), Value::Flag)),
        Kind::Presence => Ok(Value::Flag(true)),
    }
    .map(Some)
}

fn int(text: &str, min: u64, max: u64) -> Result<Value, Bad> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Bad::Malformed);
    }
    // Too many digits for any type are still a number, and beyond the range.
    let beyond = if text.starts_with('-') { i128::MIN } else { i128::MAX };
    let n = text.parse::<i128>().unwrap_or(beyond);
    let taken = n.clamp(min.into(), max.into());
    let value = Value::Int(taken as u64);
    if taken == n { Ok(value) } else { Err(Bad::Clamped(value)) }
}

fn real(text: &str, min: f64, max: f64) -> Result<Value, Bad> {
    match text.parse::<f64>() {
        Ok(x) if (min..=max).contains(&x) => Ok(Value::Real(x)),
        Ok(x) if x.is_finite() => Err(Bad::Clamped(Value::Real(x.clamp(min, max)))),
        _ => Err(Bad::Malformed),
    }
}

fn flag(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "on" | "yes" | "true" => Some(true),
        "0" | "off" | "no" | "false" => Some(false),
        _ => None,
    }
}

fn word(text: &str, words: &'static [&'static str]) -> Option<Value> {
    let find = |text: &str| words.iter().find(|w| w.eq_ignore_ascii_case(text));
    // A file's `true` is the 1 of a variable.
    let found = find(text).or_else(|| find(if flag(text)? { "1" } else { "0" }))?;
    Some(Value::Word(found))
}

fn cores(text: &str) -> Option<Value> {
    if text.eq_ignore_ascii_case("auto") {
        return Some(Value::Word("auto"));
    }
    if flag(text) == Some(false) && text != "0" {
        return Some(Value::Word("off"));
    }
    let number = |s: &str| s.trim().parse::<usize>().ok().filter(|&n| n <= MAX_CPU);
    let mut cores = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then(|| cores.extend(first..=last))?;
            }
            None => cores.push(number(part)?),
        }
    }
    cores.sort_unstable();
    cores.dedup();
    Some(Value::Cores(cores))
}

impl Value {
    /// As one would write it.
    pub fn text(&self) -> String {
        match self {
            Value::Int(n) => n.to_string(),
            Value::Real(x) => x.to_string(),
            Value::Flag(on) => u8::from(*on).to_string(),
            Value::Word(word) => (*word).to_owned(),
            Value::Cores(cores) => cores.iter().map(usize::to_string).collect::<Vec<_>>().join(","),
            Value::Path(path) => path.display().to_string(),
            Value::Name(name) => name.clone(),
        }
    }
}
