//! A model in several files: `NAME-00001-of-0000N.gguf`, all in one folder.

use super::{Error, Header, Result};
use std::path::{Path, PathBuf};

/// Most parts; the name has five digits.
const MOST: u64 = 1024;

/// Number and count in a part's name, and what is before them.
pub(super) fn numbered(path: &Path) -> Option<(String, u64, u64)> {
    let name = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
    let (rest, count) = name.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let digits =
        |t: &str| (t.len() == 5 && t.bytes().all(|b| b.is_ascii_digit())).then(|| t.parse().ok());
    let (number, count): (u64, u64) = (digits(number)??, digits(count)??);
    (1..=count).contains(&number).then(|| (stem.to_owned(), number, count))
}

/// The files of a model of so many parts.
pub(super) fn paths(path: &Path, parts: usize) -> Vec<PathBuf> {
    match numbered(path) {
        Some((stem, ..)) if parts > 1 => {
            let name = |i| format!("{stem}-{i:05}-of-{parts:05}.gguf");
            (1..=parts).map(|i| path.with_file_name(name(i))).collect()
        }
        _ => vec![path.to_owned()],
    }
}

/// The header of all parts, where this is one of several. `read` reads one file.
pub(super) fn join(
    one: Header,
    path: &Path,
    read: &dyn Fn(&Path) -> Result<Header>,
) -> Result<Header> {
    let parts = match one.number("split.count") {
        None | Some(0 | 1) => return Ok(one),
        Some(n) if n > MOST => return Err(Error::Invalid(format!("{n} parts"))),
        Some(n) => n,
    };
    let shown = path.display();
    let named = numbered(path).filter(|(.., count)| *count == parts);
    let Some((_, number, _)) = named else {
        let want = format!("-00001-of-{parts:05}.gguf");
        return Err(Error::MissingPart(format!(
            "{shown} is one of {parts}, whose names end with {want} and so on; name it so again"
        )));
    };
    let mut whole: Option<Header> = None;
    for (i, file) in paths(path, parts as usize).into_iter().enumerate() {
        let part = match i as u64 + 1 == number {
            true => one.clone(),
            false if !file.exists() => {
                return Err(Error::MissingPart(format!("{} is not there", file.display())));
            }
            false => read(&file)?,
        };
        let own = part.number("split.no").map_or(i as u64 + 1, |n| n.saturating_add(1));
        if part.number("split.count") != Some(parts) || own != i as u64 + 1 {
            let name = file.display();
            return Err(Error::Invalid(format!(
                "{name} is not part {} of {parts}, as it is named",
                i + 1
            )));
        }
        match &mut whole {
            None => whole = Some(part),
            Some(all) => {
                all.bytes = all.bytes.saturating_add(part.bytes);
                all.tensors.extend(part.tensors);
            }
        }
    }
    let mut whole = whole.unwrap_or(one);
    whole.parts = parts as usize;
    match whole.number("split.tensors.count") {
        Some(n) if n != whole.tensors.len() as u64 => Err(Error::Invalid(format!(
            "its parts have {} tensors and it says {n}",
            whole.tensors.len()
        ))),
        _ => Ok(whole),
    }
}
