//! From what was given, in ascending order of precedence, to one value for each knob.

use super::entries::{CONFIG, DEVICE, KNOBS, PROFILE};
use super::suggest;
use super::table::{Kind, Knob, PREFIX, Status};
use super::value::{Bad, Value, parse};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::rc::Rc;

/// Where a setting was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    Environment,
    /// A file, and perhaps a profile in it, in words.
    File(Rc<str>),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Environment => f.write_str("environment"),
            Origin::File(words) => f.write_str(words),
        }
    }
}

/// One setting as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) text: OsString,
    pub(super) origin: Origin,
}

impl Given {
    /// `ROCKET_MIN_M="7" (environment)`.
    pub(super) fn named(&self, knob: &Knob) -> String {
        format!("{}={:?} ({})", knob.name, self.text.to_string_lossy(), self.origin)
    }

    /// A setting that says nothing, so that one of less precedence may.
    fn is_empty(&self, knob: &Knob) -> bool {
        knob.kind != Kind::Presence && self.text.to_string_lossy().trim().is_empty()
    }
}

/// The variables of an environment that are settings. One warning for each `ROCKET_*` that
/// nothing knows.
pub(super) fn environment(
    variables: &[(OsString, OsString)],
    warnings: &mut Vec<String>,
) -> Vec<(&'static Knob, Given)> {
    let mut given = Vec::new();
    for (name, text) in variables {
        let name = name.to_string_lossy();
        if !name.starts_with(PREFIX) || suggest::is_elsewhere(&name) {
            continue;
        }
        match KNOBS.iter().find(|k| k.name == name) {
            Some(knob) => {
                given.push((knob, Given { text: text.clone(), origin: Origin::Environment }));
            }
            None => warnings.push(format!("{name} is not known{}", suggest::did_you_mean(&name))),
        }
    }
    given
}

/// The setting of `knob` that counts.
pub(super) fn last<'a>(given: &'a [(&'static Knob, Given)], knob: &Knob) -> Option<&'a Given> {
    let of_knob = |(k, g): &&(&'static Knob, Given)| k.name == knob.name && !g.is_empty(knob);
    given.iter().rev().find(of_knob).map(|(_, g)| g)
}

/// One value for each knob that has one.
#[derive(Debug)]
pub(super) struct Values(BTreeMap<&'static str, Value>);

impl Values {
    pub(super) fn of(given: &[(&'static Knob, Given)], warnings: &mut Vec<String>) -> Values {
        let mut values = BTreeMap::new();
        for knob in KNOBS {
            let default = parse(knob, knob.default.as_ref()).ok().flatten();
            // A default of "" is unset, also for those that are on by being there.
            let default = default.filter(|_| !knob.default.is_empty());
            let value = match last(given, knob) {
                None => default,
                // Its own sentence says more (board.rs); the other two were used by now.
                Some(_) if [DEVICE.name, CONFIG.name, PROFILE.name].contains(&knob.name) => None,
                Some(g) => take(knob, g, default, warnings),
            };
            if let Some(value) = value {
                values.insert(knob.name, value);
            }
        }
        Values(values)
    }

    pub(super) fn get(&self, knob: &Knob) -> Option<&Value> {
        self.0.get(knob.name)
    }

    /// The number; 0 for a knob that has none, which the table's test excludes.
    pub(super) fn int(&self, knob: &Knob) -> u64 {
        self.int_or_none(knob).unwrap_or(0)
    }

    /// The number, or `None` while it is unset or a word.
    pub(super) fn int_or_none(&self, knob: &Knob) -> Option<u64> {
        match self.get(knob) {
            Some(Value::Int(n)) => Some(*n),
            _ => None,
        }
    }

    pub(super) fn flag(&self, knob: &Knob) -> bool {
        self.get(knob) == Some(&Value::Flag(true))
    }

    pub(super) fn word(&self, knob: &Knob) -> &'static str {
        match self.get(knob) {
            Some(Value::Word(word)) => word,
            _ => "",
        }
    }
}

/// The value that is used, and one warning if it is not what was written or does nothing.
fn take(
    knob: &Knob,
    given: &Given,
    default: Option<Value>,
    warnings: &mut Vec<String>,
) -> Option<Value> {
    let (value, wrong) = match parse(knob, &given.text) {
        Ok(value) => (value, false),
        Err(Bad::Clamped(value)) => (Some(value), true),
        Err(Bad::Malformed) => (default, true),
    };
    let said = given.named(knob);
    let not = format!("is not in the range {}", knob.kind.range());
    match (knob.status, wrong) {
        (Status::Now, false) => {}
        (Status::Now, true) => {
            let used = value.as_ref().map_or("none".to_owned(), Value::text);
            warnings.push(format!("{said} {not}; using {used}"));
        }
        (Status::Later(what), false) => {
            warnings.push(format!("{said} has no effect yet (later: {what})"));
        }
        (Status::Later(what), true) => {
            warnings.push(format!("{said} {not}, and it has no effect yet (later: {what})"))
        }
    }
    value
}
