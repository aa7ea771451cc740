//! The plugin that was named, by `--plugin` or GGML_BACKEND_PATH: where the host would look for it, and what the
//! file says of itself.

use crate::elf::{self, Elf};
use crate::setup::{LOCAL, PACKAGED};
use rocket_runtime::board::{Absent, Reading, Root, Why};

/// Most files of a folder that are looked at for a plugin.
const MOST_FILES: usize = 200;

/// Who named it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Option,
    Variable,
}

/// What the name leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A file, from the root on.
    File(String),
    /// A folder, and the plugins in it.
    Folder(String, Vec<String>),
    /// A name without a slash: the loader looks for it among the system's libraries.
    Bare,
    /// Nothing; what was probably meant is there, and why it was not found.
    Meant(String, Vec<&'static str>),
    /// Nothing.
    Missing,
    /// It may not be seen.
    Unseen(Absent),
}

/// The plugin.
#[derive(Debug)]
pub struct Plugin {
    /// Word for word.
    pub given: String,
    pub origin: Origin,
    pub place: Place,
    /// What the file is.
    pub file: Option<Reading<Elf>>,
    /// The one that a package or `setup` has put in its place.
    pub installed: Option<&'static str>,
}

impl Plugin {
    /// Looks where a host would. Relative names count from `folder`; `home` is what `~` was to mean.
    pub fn read(
        root: &Root,
        given: &str,
        origin: Origin,
        folder: Option<&str>,
        home: Option<&str>,
    ) -> Plugin {
        let place = place(root, given, folder, home);
        let file = match &place {
            Place::File(path) => Some(elf::read(root, path)),
            _ => None,
        };
        let there = |p: &&str| root.exists(p) == Ok(true);
        let installed = [PACKAGED, LOCAL].into_iter().find(there);
        Plugin { given: given.to_owned(), origin, place, file, installed }
    }

    /// The file's path, where there is one.
    pub fn path(&self) -> Option<&str> {
        match &self.place {
            Place::File(path) => Some(path),
            _ => None,
        }
    }

    /// The evidence, where the file is a library.
    pub fn elf(&self) -> Option<&Elf> {
        self.file.as_ref()?.as_ref().ok()
    }
}

/// A name from the root on.
fn absolute(name: &str, folder: Option<&str>) -> String {
    match folder {
        Some(folder) if !name.starts_with('/') => {
            format!("{}/{}", folder.trim_end_matches('/'), name.trim_start_matches("./"))
        }
        _ => name.to_owned(),
    }
}

fn place(root: &Root, given: &str, folder: Option<&str>, home: Option<&str>) -> Place {
    let path = absolute(given, folder);
    if !given.contains('/') && !given.starts_with(['~', '"', '\'']) {
        // A file of that name beside may be what was meant: the loader does not look there.
        let beside = root.exists(&path) == Ok(true) && folder.is_some();
        return match beside {
            true => Place::Meant(
                path,
                vec!["has no slash, so the loader looks for it among the system's libraries alone"],
            ),
            false => Place::Bare,
        };
    }
    match root.exists(&path) {
        Ok(true) => match root.names(&path) {
            Ok(names) => Place::Folder(path.clone(), plugins(root, &path, &names)),
            Err(_) => Place::File(path),
        },
        Err(absent) if absent.why == Why::Denied => Place::Unseen(absent),
        _ => {
            let (tidied, slips) = tidy(given, home);
            let tidied = absolute(&tidied, folder);
            let there = !slips.is_empty() && root.exists(&tidied) == Ok(true);
            if there { Place::Meant(tidied, slips) } else { Place::Missing }
        }
    }
}

/// Files of a folder that hosts could load as backends, other than those that ggml itself brings.
fn plugins(root: &Root, folder: &str, names: &[String]) -> Vec<String> {
    let library = |n: &&String| n.contains(".so") && !n.starts_with("libggml-cpu");
    let paths = names.iter().filter(library).take(MOST_FILES).map(|n| format!("{folder}/{n}"));
    let is_backend = |p: &String| elf::read(root, p).is_ok_and(|e| e.exports("ggml_backend_init"));
    paths.map(|p| p.replace("//", "/")).filter(is_backend).collect()
}

/// What was probably meant, and what is wrong with what was written: hosts take the value word for word.
pub fn tidy(given: &str, home: Option<&str>) -> (String, Vec<&'static str>) {
    let mut text = given.to_owned();
    let mut slips = Vec::new();
    let blank = |c: char| c.is_whitespace() || c.is_control();
    // Blanks within quotes come to light when those are gone.
    for _ in 0..3 {
        let end = text.trim_end_matches(blank);
        if end.len() < text.len() {
            slips.push("has a blank at its end");
            text = end.to_owned();
        }
        let begin = text.trim_start_matches(blank);
        if begin.len() < text.len() {
            slips.push("has a blank at its beginning");
            text = begin.to_owned();
        }
        for quote in ['"', '\''] {
            let inner = text.strip_prefix(quote).and_then(|t| t.strip_suffix(quote));
            if let Some(inner) = inner.map(str::to_owned) {
                slips.push("has quotes around it");
                text = inner;
            }
        }
    }
    if let Some(rest) = text.strip_prefix("file://").map(str::to_owned) {
        slips.push("is written as a URL");
        text = rest;
    }
    for (head, why) in [
        ("~/", "begins with ~, which a shell would have to expand"),
        ("$HOME/", "has a variable in it, which a shell would have to expand"),
        ("${HOME}/", "has a variable in it, which a shell would have to expand"),
    ] {
        if let (Some(home), Some(rest)) = (home, text.strip_prefix(head)) {
            text = format!("{}/{rest}", home.trim_end_matches('/'));
            slips.push(why);
        }
    }
    // Other loaders take lists. A path may hold a colon, so only the first part that is whole counts.
    if let Some((first, _)) = text.clone().split_once(':')
        && first.starts_with('/')
    {
        text = first.to_owned();
        slips.push("is a list, and hosts take one file");
    }
    slips.dedup();
    (text, slips)
}

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn slips_and_what_was_meant() {
        let home = Some("/home/tom/");
        for (given, meant, slips) in [
            ("/a/b.so", "/a/b.so", 0),
            ("/a/b.so ", "/a/b.so", 1),
            ("/a/b.so\r", "/a/b.so", 1),
            (" /a/b.so\n", "/a/b.so", 2),
            ("\"/a/b.so\"", "/a/b.so", 1),
            ("' /a/b c.so '", "/a/b c.so", 3),
            ("~/b.so", "/home/tom/b.so", 1),
            ("'~/b.so'", "/home/tom/b.so", 2),
            ("${HOME}/b.so", "/home/tom/b.so", 1),
            ("file:///a/b.so", "/a/b.so", 1),
            ("/a/b.so:/c/d.so", "/a/b.so", 1),
        ] {
            let (text, why) = tidy(given, home);
            assert_eq!((&*text, why.len()), (meant, slips), "{given:?} {why:?}");
        }
        assert_eq!(tidy("~/b.so", None), ("~/b.so".into(), vec![]), "whose home is not known");
    }

    proptest! {
        /// What a shell makes of a quoted word is the word.
        #[test]
        fn quoted_words(word in "[^\0]{0,20}") {
            let printed = std::process::Command::new("sh")
                .args(["-c", &format!("printf %s {}", quoted(&word))]).output().unwrap();
            prop_assert_eq!(String::from_utf8_lossy(&printed.stdout), word);
        }

        #[test]
        fn tidied_words_are_tidy(word in ".{0,40}") {
            let (text, _) = tidy(&word, Some("/h"));
            let (again, slips) = tidy(&text, Some("/h"));
            prop_assert!(again.len() <= text.len(), "{slips:?}");
        }
    }
}
