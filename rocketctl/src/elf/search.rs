//! Where ld.so finds a library (ld.so(8)): DT_RPATH of an object that has no DT_RUNPATH and of those that loaded
//! it, LD_LIBRARY_PATH, DT_RUNPATH, the folders of ld.so.conf, the default folders. All below a root.

use super::{Elf, Files};
use rocket_runtime::board::{Reading, Root};
use std::rc::Rc;

/// Most folders that ld.so.conf and what it includes may name.
const MOST_FOLDERS: usize = 1000;
/// Most files that are read for them.
const MOST_FILES: usize = 200;
/// How deep ld.so.conf may include.
const DEPTH: usize = 8;

/// A library where ld.so finds it.
#[derive(Debug, Clone)]
pub struct Found {
    /// From the root on.
    pub path: String,
    pub elf: Reading<Rc<Elf>>,
}

/// One line of ld.so.conf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conf {
    Folder(String),
    /// Files by a pattern.
    Include(String),
}

/// What ld.so.conf says (ldconfig(8)).
pub fn conf(text: &str) -> Vec<Conf> {
    let mut all = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        let mut words = line.split_whitespace();
        match words.next() {
            Some("include") => all.extend(words.map(|w| Conf::Include(w.to_owned()))),
            Some("hwcap") | None => {}
            Some(_) => {
                // Folders may stand in one line, by blanks, commas or colons.
                let folders = line.split([' ', '\t', ',', ':']).filter(|f| f.starts_with('/'));
                all.extend(folders.map(|f| Conf::Folder(f.to_owned())));
            }
        }
        all.truncate(MOST_FOLDERS);
    }
    all
}

/// The folders without which there is no system, for a machine by its `uname -m`.
pub fn default_folders(machine: &str) -> Vec<String> {
    let multiarch = format!("{machine}-linux-gnu");
    ["lib", "usr/lib"]
        .iter()
        .flat_map(|d| [format!("/{d}/{multiarch}"), format!("/{d}64"), format!("/{d}")])
        .collect()
}

/// The search of one system.
#[derive(Debug)]
pub struct Search<'a> {
    files: &'a Files<'a>,
    /// `uname -m` of the files.
    machine: String,
    /// LD_LIBRARY_PATH.
    environment: Vec<String>,
    configured: Vec<String>,
}

impl<'a> Search<'a> {
    /// Of a root, for files of a machine, in an environment with this LD_LIBRARY_PATH.
    pub fn new(files: &'a Files<'a>, machine: &str, library_path: Option<&str>) -> Search<'a> {
        let split = |p: &str| p.split([':', ';']).map(str::to_owned).collect();
        let mut configured = Vec::new();
        include(files.root, "/etc/ld.so.conf", DEPTH, &mut 0, &mut configured);
        configured.extend(default_folders(machine));
        Search {
            files,
            machine: machine.to_owned(),
            environment: library_path.map(split).unwrap_or_default(),
            configured,
        }
    }

    /// The library `name` that an object at `path` needs, which `loaders` have loaded, the nearest first.
    pub fn find(&self, name: &str, by: (&str, &Elf), loaders: &[(&str, &Elf)]) -> Option<Found> {
        if name.contains('/') {
            return self.at(name, by.1);
        }
        let (path, elf) = by;
        let mut folders = Vec::new();
        if elf.runpath.is_empty() {
            for (path, elf) in std::iter::once(&by).chain(loaders) {
                let own = if elf.runpath.is_empty() { &elf.rpath[..] } else { &[] };
                folders.extend(own.iter().map(|f| self.expand(f, path)));
            }
        }
        folders.extend(self.environment.iter().map(|f| self.expand(f, path)));
        folders.extend(elf.runpath.iter().map(|f| self.expand(f, path)));
        folders.extend(self.configured.iter().cloned());
        let absolute = folders.iter().filter(|f| f.starts_with('/'));
        let candidates = absolute.map(|f| format!("{}/{name}", f.trim_end_matches('/')));
        candidates.into_iter().find_map(|path| self.at(&path, elf))
    }

    /// `$ORIGIN`, `$LIB` and `$PLATFORM`, with braces or without.
    fn expand(&self, folder: &str, object: &str) -> String {
        let origin = object.rsplit_once('/').map_or("/", |(dir, _)| dir);
        let lib = format!("lib/{}-linux-gnu", self.machine);
        let values = [("ORIGIN", origin), ("LIB", &*lib), ("PLATFORM", &*self.machine)];
        values.iter().fold(folder.to_owned(), |text, (name, value)| {
            text.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value)
        })
    }

    /// The file, unless it is of another machine or class: ld.so passes over those.
    fn at(&self, path: &str, like: &Elf) -> Option<Found> {
        if self.files.root.exists(path) != Ok(true) {
            return None;
        }
        let elf = self.files.read(path);
        let other = |e: &Rc<Elf>| e.machine != like.machine || e.class != like.class;
        match elf.as_ref().is_ok_and(other) {
            true => None,
            false => Some(Found { path: path.to_owned(), elf }),
        }
    }
}

/// The folders of a file of ld.so.conf's kind. What is missing has none.
fn include(root: &Root, file: &str, depth: usize, read: &mut usize, folders: &mut Vec<String>) {
    *read += 1;
    if *read > MOST_FILES {
        return;
    }
    let Ok(text) = root.text(file) else { return };
    for line in conf(&text) {
        if folders.len() >= MOST_FOLDERS {
            return;
        }
        match line {
            Conf::Folder(f) => folders.push(f),
            Conf::Include(_) if depth == 0 => {}
            Conf::Include(pattern) => {
                let dir = file.rsplit_once('/').map_or("", |(dir, _)| dir);
                let full =
                    if pattern.starts_with('/') { pattern } else { format!("{dir}/{pattern}") };
                for file in matching(root, &full) {
                    include(root, &file, depth - 1, read, folders);
                }
            }
        }
    }
}

/// Files by a pattern with at most one `*` in its last name, which is all that systems use.
fn matching(root: &Root, pattern: &str) -> Vec<String> {
    let (dir, name) = pattern.rsplit_once('/').unwrap_or(("", pattern));
    let Some((head, tail)) = name.split_once('*') else { return vec![pattern.to_owned()] };
    let fits =
        |n: &String| n.len() >= head.len() + tail.len() && n.starts_with(head) && n.ends_with(tail);
    let names = root.names(dir).unwrap_or_default();
    names.into_iter().filter(fits).map(|n| format!("{dir}/{n}")).collect()
}
