//! The driver's C source as pieces that rules look at: bodies of functions and structs, without comments
//! and with single blanks, so that neither a reformatted file nor a moved function changes an answer.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The source of a driver.
#[derive(Debug)]
pub struct Source {
    /// Where it was found.
    pub dir: PathBuf,
    /// Each file, stripped.
    files: BTreeMap<PathBuf, String>,
    header: PathBuf,
}

/// Where the driver lies in a kernel tree.
const DRIVER: &str = "drivers/accel/rocket";
/// Its header for programs.
const HEADER: &str = "include/uapi/drm/rocket_accel.h";

impl Source {
    /// Reads the driver of a kernel tree, or of a folder that holds its files.
    ///
    /// # Errors
    /// When there is none, or a file cannot be read.
    pub fn open(dir: &Path) -> Result<Source> {
        let tree = dir.join(DRIVER);
        let (folder, header) = match tree.is_dir() {
            true => (tree, dir.join(HEADER)),
            false => (dir.to_owned(), dir.join("uapi/drm/rocket_accel.h")),
        };
        if !folder.join("rocket_job.c").is_file() {
            bail!(
                "{} holds no rocket driver: name a kernel tree, or a folder with rocket_job.c",
                dir.display()
            );
        }
        let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        let mut paths = vec![header.clone()];
        for entry in entries {
            let path = entry.with_context(|| folder.display().to_string())?.path();
            let is_source = path.extension().is_some_and(|e| e == "c" || e == "h");
            // Thousands of generated lines that no rule looks at.
            if is_source && !path.ends_with("rocket_registers.h") {
                paths.push(path);
            }
        }
        paths.sort();
        let mut files = BTreeMap::new();
        for path in paths.iter().filter(|p| p.is_file()) {
            let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
            files.insert(path.clone(), strip(&String::from_utf8_lossy(&bytes)));
        }
        Ok(Source { dir: folder, files, header })
    }

    /// With other texts of files, by their place below a folder.
    pub fn with(mut self, below: &Path, texts: &BTreeMap<String, String>) -> Source {
        for (place, text) in texts {
            let path = below.join(place);
            if path.extension().is_some_and(|e| e == "c" || e == "h") {
                self.files.insert(path, strip(text));
            }
        }
        self
    }

    /// The header for programs, where there is one.
    pub fn header(&self) -> Option<PathBuf> {
        Some(self.header.clone()).filter(|h| h.is_file())
    }

    /// The text of a place: `*` for everything, `struct NAME` or a function for what is between its
    /// braces. `None` where it is not found, or its braces do not match.
    pub fn text(&self, place: &str) -> Option<String> {
        if place == "*" {
            let all: Vec<&str> = self.files.values().map(String::as_str).collect();
            return Some(all.join("\n"));
        }
        self.files.values().find_map(|f| body(f, place)).map(str::to_owned)
    }
}

/// Without comments and with single blanks; strings and characters stay as they are.
fn strip(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let len = if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if c == '"' || c == '\'' {
            let len = quoted(rest, c);
            out.push_str(&rest[..len]);
            rest = &rest[len..];
            continue;
        } else if c.is_whitespace() {
            c.len_utf8()
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        // A comment separates words as a blank does.
        if !out.ends_with(' ') {
            out.push(' ');
        }
        rest = &rest[len..];
    }
    out
}

/// Bytes of a quoted text, with its marks.
fn quoted(text: &str, mark: char) -> usize {
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == mark => return i + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

fn body<'a>(text: &'a str, place: &str) -> Option<&'a str> {
    let is_struct = place.starts_with("struct ");
    let mut from = 0;
    while let Some(found) = text[from..].find(place) {
        let (start, end) = (from + found, from + found + place.len());
        from = end;
        let word = |c: char| c.is_alphanumeric() || c == '_';
        if text[..start].ends_with(word) || text[end..].starts_with(word) {
            continue;
        }
        let after = text[end..].trim_start();
        // A definition: parameters, and then a body. A call or a declaration has none.
        let open = match is_struct {
            true => after,
            false => match after.starts_with('(').then(|| balanced(after, '(', ')')).flatten() {
                Some(len) => after[len..].trim_start(),
                None => continue,
            },
        };
        if open.starts_with('{') {
            return balanced(open, '{', '}').map(|len| &open[..len]);
        }
    }
    None
}

/// Bytes up to the mark that closes the first one.
fn balanced(text: &str, open: char, close: char) -> Option<usize> {
    let (mut depth, mut skip) = (0usize, 0);
    for (i, c) in text.char_indices() {
        if i < skip {
            continue;
        }
        match c {
            '"' | '\'' => skip = i + quoted(&text[i..], c),
            c if c == open => depth += 1,
            c if c == close => {
                depth -= 1;
                if depth == 0 {
                    return Some(i + c.len_utf8());
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_go_and_strings_stay() {
        assert_eq!(strip("a /* b \" */ c // d\n\t e"), "a c e");
        assert_eq!(
            strip("f(\"/* no */ // comment\", '\"', '\\'')"),
            "f(\"/* no */ // comment\", '\"', '\\'')"
        );
        assert_eq!(strip("a/* open"), "a ");
        assert_eq!(strip("\"open \\"), "\"open \\");
    }

    #[test]
    fn bodies_are_those_of_definitions() {
        let text = strip(
            "int f(int);\nint g(void) { return f(1); }\nint xf(void) { no }\n\
             static int\nf(int a)\n{ if (a) { puts(\"}\"); } }\nstruct s; struct s { int a; };",
        );
        assert_eq!(body(&text, "f"), Some("{ if (a) { puts(\"}\"); } }"));
        assert_eq!(body(&text, "struct s"), Some("{ int a; }"));
        assert_eq!(body(&text, "h"), None);
        assert_eq!(body("int f(void) { if (a) {", "f"), None, "unbalanced");
        assert_eq!(body("int f(void", "f"), None);
        assert_eq!(body("f", "f"), None);
    }
}
