//! Programs in JSON: wherever an object has a list of words, with what stands beside it.

use super::parse::hex;
use super::{ListingError, NamedProgram, Place};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Keys of a list of words.
const KEYS: [&str; 2] = ["words", "program"];

pub fn programs(text: &str) -> Result<Vec<NamedProgram>, ListingError> {
    let value: Value = serde_json::from_str(text).map_err(|e| ListingError::Json(e.to_string()))?;
    let mut found = Vec::new();
    match &value {
        Value::Array(items) if items.iter().any(Value::is_string) => {
            found.push(NamedProgram {
                name: "program".to_owned(),
                words: words("program", items)?,
                place: Place::First,
            });
        }
        _ => collect(&value, &mut found)?,
    }
    if found.is_empty() {
        return Err(ListingError::NoProgram);
    }
    let mut names = HashSet::new();
    for (i, program) in found.iter_mut().enumerate() {
        if !names.insert(program.name.clone()) {
            program.name = format!("{} ({})", program.name, i + 1);
            names.insert(program.name.clone());
        }
    }
    Ok(found)
}

/// Walks a value; serde_json bounds how deep.
fn collect(value: &Value, found: &mut Vec<NamedProgram>) -> Result<(), ListingError> {
    match value {
        Value::Object(object) => {
            for key in KEYS {
                if let Some(Value::Array(items)) = object.get(key)
                    && !items.is_empty()
                    && items.iter().any(|i| i.is_string() || key == "words")
                {
                    found.extend(program(object, items)?);
                }
            }
            object
                .iter()
                .filter(|(key, _)| !KEYS.contains(&key.as_str()))
                .try_for_each(|(_, v)| collect(v, found))
        }
        Value::Array(items) => items.iter().try_for_each(|v| collect(v, found)),
        _ => Ok(()),
    }
}

fn words(name: &str, items: &[Value]) -> Result<Vec<u64>, ListingError> {
    let word = |(entry, item): (usize, &Value)| {
        let word = match item {
            Value::String(text) => hex(text),
            other => other.as_u64(),
        };
        word.ok_or_else(|| ListingError::Entry { program: name.to_owned(), entry })
    };
    items.iter().enumerate().map(word).collect()
}

/// The program, or the programs of a chain, of an object.
fn program(
    object: &Map<String, Value>,
    items: &[Value],
) -> Result<Vec<NamedProgram>, ListingError> {
    let name = name(object);
    let words = words(&name, items)?;
    let Some((counts, strides)) = segments(object) else {
        let reuses = |flag: &str| object.get("flags").is_some_and(|f| f[flag] == true);
        let after = reuses("data_reuse") || reuses("weight_reuse");
        let place = if after { Place::AfterSame } else { Place::First };
        return Ok(vec![NamedProgram { name, words, place }]);
    };
    let of = counts.len();
    let mut at = 0usize;
    let mut chain = Vec::new();
    for (index, (count, stride)) in counts.into_iter().zip(strides).enumerate() {
        let segment = at.checked_add(count).and_then(|end| words.get(at..end));
        let segment = segment.ok_or_else(|| ListingError::Chain(name.clone()))?;
        chain.push(NamedProgram {
            name: format!("{name}, segment {index}"),
            words: segment.to_vec(),
            place: Place::Chained { index, of },
        });
        at = at.saturating_add(stride);
    }
    Ok(chain)
}

/// Words of each segment of a chain and how far on the next one lies (npu-rk3588 1.6).
fn segments(object: &Map<String, Value>) -> Option<(Vec<usize>, Vec<usize>)> {
    let size = |v: &Value| v.as_u64().and_then(|n| usize::try_from(n).ok());
    if let Some(tasks) = object.get("tasks").and_then(Value::as_array) {
        let counts: Vec<usize> = tasks.iter().map(|t| size(&t["count"])).collect::<Option<_>>()?;
        let strides = counts.iter().map(|n| n.saturating_add(n % 2)).collect();
        return (counts.len() > 1).then_some((counts, strides));
    }
    let params = object.get("params")?;
    let (count, stride) = (size(&params["words_per_task"])?, size(&params["stride_words"])?);
    let tasks = size(&object.get("shape")?["tasks"])?;
    // TASK_NUMBER has 12 bits.
    (2..=4095).contains(&tasks).then(|| (vec![count; tasks], vec![stride; tasks]))
}

/// What the file calls a program: its name, or what it is, its function, format and extents.
fn name(object: &Map<String, Value>) -> String {
    let text = |key: &str| object.get(key).and_then(Value::as_str).map(str::to_owned);
    if let Some(name) = text("name") {
        return name;
    }
    let what = text("kind").or_else(|| text("op")).unwrap_or_else(|| "program".to_owned());
    let function = text("function").or_else(|| text("activation"));
    let extent = |key: &str| object.get(key).and_then(Value::as_u64).map(|n| n.to_string());
    let extents: Option<Vec<String>> = ["M", "K", "N"].into_iter().map(extent).collect();
    let parts = [Some(what), function, text("dtype"), extents.map(|e| e.join("x"))];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}
