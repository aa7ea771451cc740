//! What an edit changes, as lines.

use std::fmt::Write as _;

/// The lines that differ, with a minus for the old and a plus for the new, and one of context on each side. All edits
/// here are at one place or touch few lines, so what is between the first and the last difference is shown whole.
pub fn lines(path: &str, old: Option<&str>, new: Option<&str>) -> String {
    if old == new {
        return String::new();
    }
    let (was, is): (Vec<&str>, Vec<&str>) = (
        old.unwrap_or_default().split_inclusive('\n').collect(),
        new.unwrap_or_default().split_inclusive('\n').collect(),
    );
    let same = |(a, b): &(&&str, &&str)| a == b;
    let head = was.iter().zip(&is).take_while(same).count();
    let most = was.len().min(is.len()) - head;
    let tail = was.iter().rev().zip(is.iter().rev()).take_while(same).take(most).count();
    let name = |there: bool| if there { path } else { "/dev/null" };
    let mut out = format!("--- {}\n+++ {}\n", name(old.is_some()), name(new.is_some()));
    let mut put = |sign: char, all: &[&str]| {
        for line in all {
            let _ = writeln!(out, "{sign}{}", line.trim_end_matches(['\n', '\r']));
        }
    };
    put(' ', &was[head.saturating_sub(1)..head]);
    put('-', &was[head..was.len() - tail]);
    put('+', &is[head..is.len() - tail]);
    put(' ', &was[was.len() - tail..][..tail.min(1)]);
    out
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn what_differs() {
        let old = "a\nb\nc\nd\n";
        assert_eq!(lines("/f", Some(old), Some(old)), "");
        let one = lines("/f", Some(old), Some("a\nb\nx\nc\nd\n"));
        assert_eq!(one, "--- /f\n+++ /f\n b\n+x\n c\n");
        let changed = lines("/f", Some(old), Some("a\nB\nc\nd\n"));
        assert_eq!(changed, "--- /f\n+++ /f\n a\n-b\n+B\n c\n");
        assert_eq!(lines("/f", None, Some("a\n")), "--- /dev/null\n+++ /f\n+a\n");
        assert_eq!(lines("/f", Some("a\na\n"), Some("a\n")), "--- /f\n+++ /f\n a\n-a\n");
    }
}
