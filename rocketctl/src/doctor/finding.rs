//! What a check finds, and how findings become a verdict, an exit status, text and JSON.

use anstyle::{AnsiColor, Style};
use rocket_runtime::board::Absent;
use serde::Serialize;
use std::fmt::Write as _;

/// Version of the JSON's shape.
pub const SCHEMA: u32 = 1;

/// What a check came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Ok,
    /// True and harmless.
    Note,
    Warn,
    Fail,
    Unknown,
    /// What it depends on is not right.
    Skipped,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Note => "note",
            Status::Warn => "warn",
            Status::Fail => "fail",
            Status::Unknown => "unknown",
            Status::Skipped => "skipped",
        }
    }

    fn style(self) -> Style {
        let color = match self {
            Status::Ok => AnsiColor::Green,
            Status::Warn => AnsiColor::Yellow,
            Status::Fail => AnsiColor::Red,
            Status::Unknown => AnsiColor::Magenta,
            Status::Note | Status::Skipped => return Style::new().dimmed(),
        };
        Style::new().fg_color(Some(color.into()))
    }

    fn glyph(self) -> char {
        match self {
            Status::Ok => '+',
            Status::Note => 'i',
            Status::Warn => '!',
            Status::Fail => 'x',
            Status::Unknown => '?',
            Status::Skipped => '-',
        }
    }
}

/// What was read, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    pub path: String,
    pub value: String,
}

/// A way to mend it, to see that it is mended, and back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fix {
    pub run: String,
    pub verify: String,
    pub undo: String,
}

/// The answer of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub id: &'static str,
    pub status: Status,
    /// In a few words.
    pub title: String,
    /// Why it is so; empty where the title says all.
    pub cause: String,
    pub evidence: Vec<Evidence>,
    pub fix: Vec<Fix>,
    /// The finding that keeps this check from its answer.
    pub because: Option<&'static str>,
    /// Why it is unknown.
    pub why: Option<String>,
}

impl Finding {
    fn new(id: &'static str, status: Status, title: impl Into<String>) -> Finding {
        Finding {
            id,
            status,
            title: clean(title.into()),
            cause: String::new(),
            evidence: Vec::new(),
            fix: Vec::new(),
            because: None,
            why: None,
        }
    }

    pub fn ok(id: &'static str, title: impl Into<String>) -> Finding {
        Finding::new(id, Status::Ok, title)
    }

    pub fn note(id: &'static str, title: impl Into<String>) -> Finding {
        Finding::new(id, Status::Note, title)
    }

    pub fn warn(id: &'static str, title: impl Into<String>) -> Finding {
        Finding::new(id, Status::Warn, title)
    }

    pub fn fail(id: &'static str, title: impl Into<String>) -> Finding {
        Finding::new(id, Status::Fail, title)
    }

    pub fn unknown(id: &'static str, title: impl Into<String>, why: impl Into<String>) -> Finding {
        Finding { why: Some(clean(why.into())), ..Finding::new(id, Status::Unknown, title) }
    }

    /// Not known because of this reading.
    pub fn unread(id: &'static str, title: impl Into<String>, absent: &Absent) -> Finding {
        Finding::unknown(id, title, absent.to_string())
    }

    pub fn skipped(id: &'static str, because: &'static str) -> Finding {
        Finding { because: Some(because), ..Finding::new(id, Status::Skipped, "not looked at") }
    }

    pub fn cause(mut self, cause: impl Into<String>) -> Finding {
        self.cause = clean(cause.into());
        self
    }

    pub fn seen(mut self, path: impl Into<String>, value: impl Into<String>) -> Finding {
        self.evidence.push(Evidence { path: clean(path.into()), value: clean(value.into()) });
        self
    }

    pub fn fix(
        mut self,
        run: impl Into<String>,
        verify: impl Into<String>,
        undo: impl Into<String>,
    ) -> Finding {
        self.fix.push(Fix {
            run: clean(run.into()),
            verify: clean(verify.into()),
            undo: clean(undo.into()),
        });
        self
    }

    /// Whether somebody should do something.
    pub fn needs_action(&self) -> bool {
        matches!(self.status, Status::Warn | Status::Fail)
    }
}

/// All findings, and what they come to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    pub schema: u32,
    pub tool: &'static str,
    pub version: &'static str,
    pub verdict: String,
    /// The exit status: 0 good, 1 something to do, 3 a required check is unknown.
    pub exit: u8,
    pub findings: Vec<Finding>,
}

impl Report {
    /// `required` are the checks without which nothing can be said.
    pub fn new(findings: Vec<Finding>, required: &[&str]) -> Report {
        let count = |s: Status| findings.iter().filter(|f| f.status == s).count();
        let (fails, warns) = (count(Status::Fail), count(Status::Warn));
        let unknown = |f: &&Finding| f.status == Status::Unknown && required.contains(&f.id);
        let unknown: Vec<&str> = findings.iter().filter(unknown).map(|f| f.id).collect();
        let exit = match () {
            () if fails + warns > 0 => 1,
            () if !unknown.is_empty() => 3,
            () => 0,
        };
        let verdict = match exit {
            1 if fails > 0 => "the NPU cannot be used as it is".to_owned(),
            1 => "the NPU works; it could do better".to_owned(),
            3 => format!("not enough can be seen to say ({})", unknown.join(", ")),
            _ => "the NPU is ready".to_owned(),
        };
        let (tool, version) = ("rocketctl", env!("CARGO_PKG_VERSION"));
        Report { schema: SCHEMA, tool, version, verdict, exit, findings }
    }

    /// The first thing to do: of what fails, else of what could be better.
    fn next(&self) -> Option<&Fix> {
        let with = |s: Status| self.findings.iter().filter(move |f| f.status == s);
        with(Status::Fail).chain(with(Status::Warn)).find_map(|f| f.fix.first())
    }

    /// For people: what needs action first, then the rest, a line each, which `quiet` leaves out.
    pub fn text(&self, quiet: bool, colored: bool) -> String {
        let mut out = String::new();
        let (act, rest): (Vec<_>, Vec<_>) = self.findings.iter().partition(|f| f.needs_action());
        let mut ordered = act.clone();
        ordered.sort_by_key(|f| f.status != Status::Fail);
        for f in ordered {
            line(&mut out, f, colored);
            paragraph(&mut out, &f.cause, 6);
            for e in &f.evidence {
                paragraph(&mut out, &format!("{}: {}", e.path, e.value), 6);
            }
            for fix in &f.fix {
                let _ = writeln!(out, "      fix:    {}", fix.run);
                let _ = writeln!(out, "      verify: {}", fix.verify);
                let _ = writeln!(out, "      undo:   {}", fix.undo);
            }
        }
        if !act.is_empty() && !quiet {
            out.push('\n');
        }
        for f in rest.into_iter().filter(|_| !quiet) {
            line(&mut out, f, colored);
            paragraph(&mut out, &f.cause, 6);
        }
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&self.verdict);
        match self.next() {
            Some(fix) => _ = writeln!(out, "; next:\n    {}", fix.run),
            None => out.push('\n'),
        }
        out
    }
}

/// One finding: glyph, word, id and title, and what keeps it from being known.
fn line(out: &mut String, f: &Finding, colored: bool) {
    let tail = match (f.because, &f.why) {
        (Some(id), _) => format!(" (because {id})"),
        (None, Some(why)) => format!(": {why}"),
        (None, None) => String::new(),
    };
    let head = format!("{} {:<7} {:<20} ", f.status.glyph(), f.status.word(), f.id);
    let words = format!("{}{tail}", f.title);
    let painted = match colored {
        true => format!("{}{head}{}", f.status.style(), f.status.style().render_reset()),
        false => head.clone(),
    };
    let mut first = true;
    let mut parts = wrapped(&words, 80 - head.len());
    if parts.is_empty() {
        // What has no title is a finding all the same.
        parts.push(String::new());
    }
    for part in parts {
        let _ = match first {
            true => writeln!(out, "{painted}{part}"),
            false => writeln!(out, "{:w$}{part}", "", w = head.len()),
        };
        first = false;
    }
}

fn paragraph(out: &mut String, text: &str, indent: usize) {
    for part in wrapped(text, 80 - indent) {
        let _ = writeln!(out, "{:indent$}{part}", "");
    }
}

/// What was read may be anybody's, as a report is: a terminal must not obey it.
pub fn clean(text: String) -> String {
    match text.contains(char::is_control) {
        true => text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
        false => text,
    }
}

/// A word of a command. What was read is quoted unless it is plain, as people copy commands.
pub fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._+:/@,=-".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Lines of at most `width` characters; a longer word has one of its own, cut to it.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let mut word = word.to_owned();
        while word.chars().count() > width {
            let rest = word.chars().skip(width).collect();
            lines.push(word.chars().take(width).collect());
            word = rest;
        }
        match lines.last_mut() {
            Some(l) if l.chars().count() + 1 + word.chars().count() <= width => {
                l.push(' ');
                l.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}
