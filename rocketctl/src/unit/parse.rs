//! Unit files of systemd: sections, assignments, continuation lines, and the words of a value (systemd.syntax(7)).
//!
//! Nothing a file holds is an error: systemd passes over what it does not understand, and so does this, writing it
//! down in [`Unit::odd`].

use std::collections::BTreeMap;

/// Most bytes of a file that are looked at: systemd itself refuses lines of 1 MiB.
pub const LIMIT: usize = 1 << 20;

/// `Key=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub section: String,
    pub key: String,
    /// Continuation lines joined, blanks around it cut; quotes, escapes and specifiers as they are.
    pub value: String,
    /// Its first line's number in the file, from 1.
    pub line: usize,
}

/// The assignments of a unit, in the order in which they count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unit {
    pub entries: Vec<Entry>,
    /// Numbers of the lines that are no assignment in a section.
    pub odd: Vec<usize>,
}

/// Reads one file.
pub fn parse(text: &str) -> Unit {
    let mut end = text.len().min(LIMIT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut unit = Unit::default();
    let mut section = String::new();
    for (line, text) in joined(&text[..end]) {
        if let Some(name) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            section = name.to_owned();
            continue;
        }
        match text.split_once('=') {
            Some((key, value)) if !section.is_empty() && !key.trim().is_empty() => {
                let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
                unit.entries.push(Entry { section: section.clone(), key, value, line });
            }
            _ => unit.odd.push(line),
        }
    }
    unit
}

/// Logical lines with the number of their first: a backslash at the end continues a line, with a blank in its place;
/// comments between are passed over, and an empty line ends it.
fn joined(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        let start = line.trim_start();
        if start.starts_with(['#', ';']) || (open.is_none() && start.is_empty()) {
            continue;
        }
        let (first, mut whole) = open.take().unwrap_or((number + 1, String::new()));
        match line.trim_end_matches([' ', '\t', '\r']).strip_suffix('\\') {
            Some(part) => {
                whole.push_str(part);
                whole.push(' ');
                open = Some((first, whole));
            }
            None => lines.push((first, (whole + line).trim().to_owned())),
        }
    }
    lines.extend(open.map(|(first, whole)| (first, whole.trim().to_owned())));
    lines
}

impl Unit {
    /// This unit with a drop-in that is read after it.
    #[must_use]
    pub fn with(mut self, dropin: Unit) -> Unit {
        self.entries.extend(dropin.entries);
        self
    }

    /// What a setting that takes one value has: the last one assigned.
    pub fn last(&self, section: &str, key: &str) -> Option<&str> {
        self.all(section, key).pop()
    }

    /// What a setting that takes a list has: an empty assignment clears what came before.
    pub fn list(&self, section: &str, key: &str) -> Vec<&str> {
        let mut values = Vec::new();
        for value in self.all(section, key) {
            match value {
                "" => values.clear(),
                _ => values.push(value),
            }
        }
        values
    }

    /// A yes or no, as systemd spells them; `None` where it is not set, or is neither.
    pub fn flag(&self, section: &str, key: &str) -> Option<bool> {
        match self.last(section, key)?.to_ascii_lowercase().as_str() {
            "1" | "yes" | "y" | "true" | "t" | "on" => Some(true),
            "0" | "no" | "n" | "false" | "f" | "off" => Some(false),
            _ => None,
        }
    }

    /// The variables that `Environment=` sets, the last one winning. What specifiers stand for is not known here: but
    /// for `%%` they stay as they are.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let values = self.list("Service", "Environment");
        let pairs = values.into_iter().flat_map(words);
        let split = |pair: String| {
            let (name, value) = pair.split_once('=')?;
            Some((name.to_owned(), value.replace("%%", "%")))
        };
        pairs.filter_map(split).collect()
    }

    fn all(&self, section: &str, key: &str) -> Vec<&str> {
        let named = |e: &&Entry| e.section == section && e.key == key;
        self.entries.iter().filter(named).map(|e| e.value.as_str()).collect()
    }
}

/// The words of a value: separated by blanks that are not quoted, with quotes taken off and C escapes replaced.
pub fn words(value: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => escape(&mut chars, word.get_or_insert_default()),
            '"' | '\'' if quote == Some(c) => quote = None,
            '"' | '\'' if quote.is_none() => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && quote.is_none() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// What stands behind a backslash. An unknown escape stays as it is.
fn escape(chars: &mut std::str::Chars, word: &mut String) {
    let Some(c) = chars.next() else { return word.push('\\') };
    let digits = |chars: &mut std::str::Chars, n: usize, base: u32| -> Option<char> {
        let text = chars.as_str().get(..n)?;
        let code = u32::from_str_radix(text, base).ok()?;
        *chars = chars.as_str()[n..].chars();
        char::from_u32(code).filter(|c| *c != '\0')
    };
    let found = match c {
        'n' => Some('\n'),
        't' => Some('\t'),
        'r' => Some('\r'),
        'a' => Some('\x07'),
        'b' => Some('\x08'),
        'f' => Some('\x0c'),
        'v' => Some('\x0b'),
        's' => Some(' '),
        '\\' | '"' | '\'' => Some(c),
        'x' => digits(chars, 2, 16),
        'u' => digits(chars, 4, 16),
        'U' => digits(chars, 8, 16),
        _ => None,
    };
    match found {
        Some(found) => word.push(found),
        None => word.extend(['\\', c]),
    }
}

/// A value as one word that [`words`] gives back, with `%` doubled so that it is no specifier.
pub fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@~^".contains(c);
    let mut out = String::new();
    for c in value.chars() {
        match c {
            '%' => out.push_str("%%"),
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c => out.push(c),
        }
    }
    match value.chars().all(|c| plain(c) || c == '%') && !value.is_empty() {
        true => out,
        false => format!("\"{out}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SERVER: &str = "\
# a comment
[Unit]
Description=A server
[Service]
ExecStart=/usr/bin/llama-server \\
# between
  --port 8080 \\
  ; also between
  --no-repack
DeviceAllow=/dev/a rw
DeviceAllow=
DeviceAllow = char-accel rw
PrivateDevices=yes
privatedevices=no
stray
";

    #[test]
    fn sections_continuations_and_lists() {
        let unit = parse(SERVER);
        let start = unit.last("Service", "ExecStart").unwrap();
        let start: Vec<&str> = start.split_whitespace().collect();
        assert_eq!(start, ["/usr/bin/llama-server", "--port", "8080", "--no-repack"]);
        assert_eq!(unit.list("Service", "DeviceAllow"), ["char-accel rw"]);
        assert_eq!(unit.flag("Service", "PrivateDevices"), Some(true), "keys know their case");
        assert_eq!(unit.flag("Unit", "PrivateDevices"), None);
        let line = |key: &str| unit.entries.iter().find(|e| e.key == key).unwrap().line;
        assert_eq!((unit.odd.clone(), line("ExecStart"), line("DeviceAllow")), (vec![15], 5, 10));
        let changed = unit.with(parse("[Service]\r\nPrivateDevices=off\r\nDeviceAllow=\r\n"));
        assert_eq!(changed.flag("Service", "PrivateDevices"), Some(false), "the drop-in is last");
        assert!(changed.list("Service", "DeviceAllow").is_empty());
    }

    #[test]
    fn variables_of_the_environment() {
        let text =
            "[Service]\nEnvironment=\"A=b c\" 'D=e\"f' G=h%%i J\\x20=k\nEnvironment=A=late\n";
        let found = parse(text).environment();
        let found: Vec<(&str, &str)> = found.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(found, [("A", "late"), ("D", "e\"f"), ("G", "h%i"), ("J ", "k")]);
        assert!(parse(&format!("{text}Environment=\n")).environment().is_empty());
        assert!(parse("Environment=A=b\n").environment().is_empty(), "in no section");
    }

    proptest! {
        #[test]
        fn any_text(text in "[\\PC\n\r\t\\\\\"'=\\[\\]#;%]{0,200}") {
            crate::fuzz::unit_file(text.as_bytes());
            let _ = words(&text);
        }

        /// A quoted value is one word, and that word.
        #[test]
        fn quoting_is_undone(value in "[ -~äß\n\t]{0,40}") {
            let file = format!("[Service]\nEnvironment={}\n", quoted(&format!("V={value}")));
            let found = parse(&file).environment();
            prop_assert_eq!(found.get("V"), Some(&value));
            prop_assert_eq!(found.len(), 1);
        }
    }
}
