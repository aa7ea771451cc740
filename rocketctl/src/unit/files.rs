//! Where a unit's files are, and in which order they count (systemd.unit(5)).

use super::parse::{Unit, parse};
use rocket_runtime::board::{Absent, Reading, Root, Why};
use std::collections::BTreeMap;

/// Where units are looked for; the first place wins.
const PLACES: [&str; 5] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];

/// A unit with its drop-ins.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub unit: Unit,
    /// Its file, then the drop-ins, in the order in which they count.
    pub paths: Vec<String>,
    /// Drop-ins that are there and were not read: what they say is not known.
    pub unread: Vec<Absent>,
}

/// The name of a unit as it was typed: `llama-server` is `llama-server.service`.
///
/// # Errors
/// In words, when no unit can have that name.
pub fn full_name(name: &str) -> Result<String, String> {
    let name = match name.contains('.') {
        true => name.to_owned(),
        false => format!("{name}.service"),
    };
    let stem = name.strip_suffix(".service").ok_or_else(|| format!("'{name}' is no service"))?;
    let good = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    match !stem.is_empty() && name.len() <= 255 && stem.chars().all(good) && !stem.starts_with('.')
    {
        true => Ok(name),
        false => Err(format!("'{name}' is no unit's name")),
    }
}

/// Reads a unit and all its drop-ins. `name` is one that [`full_name`] has made.
///
/// # Errors
/// There is no such unit, or it cannot be read.
pub fn load(root: &Root, name: &str) -> Reading<Loaded> {
    load_without(root, name, None)
}

/// The same as if one drop-in were not there: a path.
///
/// # Errors
/// As [`load`].
pub fn load_without(root: &Root, name: &str, without: Option<&str>) -> Reading<Loaded> {
    let (path, text) = fragment(root, name)?;
    let mut loaded = Loaded { unit: parse(&text), paths: vec![path], unread: Vec::new() };
    let without = without.map(|path| path.trim_start_matches('/'));
    for path in dropins(root, name).into_iter().filter(|path| Some(path.as_str()) != without) {
        match root.text(&path) {
            Ok(text) => {
                loaded.unit = loaded.unit.with(parse(&text));
                loaded.paths.push(format!("/{path}"));
            }
            // One that leads to /dev/null says nothing, and hides its namesakes.
            Err(_) if root.link(&path).as_deref() == Ok("null") => {}
            Err(absent) => loaded.unread.push(absent),
        }
    }
    Ok(loaded)
}

/// The unit's own file: an instance has its template's where it has none.
fn fragment(root: &Root, name: &str) -> Reading<(String, String)> {
    for name in [Some(name.to_owned()), template(name)].into_iter().flatten() {
        for place in PLACES {
            let path = format!("{place}/{name}");
            match root.text(&path) {
                Ok(text) => return Ok((format!("/{path}"), text)),
                Err(Absent { why: Why::Missing, .. }) => {}
                Err(absent) => return Err(absent),
            }
        }
    }
    Err(Absent { path: format!("/{}/{name}", PLACES[0]), why: Why::Missing })
}

fn template(name: &str) -> Option<String> {
    let (stem, _) = name.strip_suffix(".service")?.split_once('@')?;
    Some(format!("{stem}@.service"))
}

/// Drop-ins by file name, whatever their folder. Of namesakes the one for the more special name counts, then the one
/// of the earlier place.
fn dropins(root: &Root, name: &str) -> Vec<String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for folder in folders(name) {
        for place in PLACES {
            let dir = format!("{place}/{folder}.d");
            let files = root.names(&dir).unwrap_or_default();
            for file in files.into_iter().filter(|f| f.ends_with(".conf")) {
                let path = format!("{dir}/{file}");
                found.entry(file).or_insert(path);
            }
        }
    }
    found.into_values().collect()
}

/// `a-b@c.service`, `a-b@.service`, `a-.service`, `service`.
fn folders(name: &str) -> Vec<String> {
    let mut all = vec![name.to_owned()];
    all.extend(template(name));
    let stem = name.strip_suffix(".service").unwrap_or(name);
    let stem = stem.split_once('@').map_or(stem, |(s, _)| s);
    let dashes = stem.char_indices().rev().filter(|(i, c)| *c == '-' && i + 1 < stem.len());
    all.extend(dashes.map(|(i, _)| format!("{}.service", &stem[..=i])));
    all.push("service".to_owned());
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = Root::open(dir.path()).unwrap();
        (dir, root)
    }

    #[test]
    fn drop_ins_in_their_order() {
        let user = |name: &str| format!("[Service]\nUser={name}\n");
        let (dir, root) = tree(&[
            ("usr/lib/systemd/system/llama-server.service", "[Service]\nExecStart=/a\nUser=lib\n"),
            ("usr/lib/systemd/system/llama-server.service.d/10-a.conf", &user("ten")),
            ("run/systemd/system/llama-server.service.d/20-b.conf", &user("run")),
            ("etc/systemd/system/llama-server.service.d/20-b.conf", &user("etc")),
            ("etc/systemd/system/service.d/05-all.conf", &user("all")),
            ("etc/systemd/system/llama-server.service.d/README", &user("no")),
        ]);
        let loaded = load(&root, "llama-server.service").unwrap();
        let names: Vec<&str> = loaded.paths.iter().map(|p| p.rsplit('/').next().unwrap()).collect();
        assert_eq!(names, ["llama-server.service", "05-all.conf", "10-a.conf", "20-b.conf"]);
        assert_eq!(loaded.unit.last("Service", "User"), Some("etc"));
        let dropin = dir.path().join("etc/systemd/system/llama-server.service.d/20-b.conf");
        fs::remove_file(&dropin).unwrap();
        std::os::unix::fs::symlink("/dev/null", &dropin).unwrap();
        let hidden = load(&root, "llama-server.service").unwrap();
        assert_eq!(hidden.unit.last("Service", "User"), Some("ten"), "{hidden:?}");
        assert!(hidden.unread.is_empty());
        assert!(matches!(load(&root, "x.service"), Err(Absent { why: Why::Missing, .. })));
    }

    #[test]
    fn names_and_their_folders() {
        let all = folders("a-b-@c.service");
        assert_eq!(all, ["a-b-@c.service", "a-b-@.service", "a-.service", "service"]);
        let (_dir, root) = tree(&[("etc/systemd/system/w@.service", "[Service]\nUser=t\n")]);
        assert_eq!(load(&root, "w@1.service").unwrap().unit.last("Service", "User"), Some("t"));
        assert_eq!(full_name("whisper-server"), Ok("whisper-server.service".into()));
        for bad in ["", ".service", "../x.service", "a/b", "a b", "x.socket"] {
            assert!(full_name(bad).is_err(), "{bad}");
        }
    }
}
