//! Unified diffs: read, and applied to a text in memory.
//!
//! Stricter than patch(1): every line of a hunk must be there as it is, only its place may have moved. A hunk that
//! fits by less than that is somebody else's code, and for a person to look at.

use std::ops::Range;

/// Longest patch that is read.
const LIMIT: usize = 4 << 20;

/// What a patch does to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDiff {
    /// From the root of the tree on.
    pub path: String,
    /// The file must not be there yet.
    pub is_new: bool,
    pub hunks: Vec<Hunk>,
}

/// Lines in place of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// As the patch has it, with the function's name.
    pub header: String,
    /// The first line's number in the old file, from 1 on; 0 for none.
    start: usize,
    old: Vec<String>,
    new: Vec<String>,
}

/// Reads a patch; whatever stands around its diffs is left out.
///
/// # Errors
/// What is no patch that can be applied, by line.
pub fn parse(bytes: &[u8]) -> Result<Vec<FileDiff>, String> {
    if bytes.len() > LIMIT {
        return Err(format!("it is longer than {} MiB", LIMIT >> 20));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "it is no text".to_owned())?;
    let lines: Vec<&str> = text.lines().collect();
    let mut files: Vec<FileDiff> = Vec::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let next = lines.get(at + 1).and_then(|l| l.strip_prefix("+++ "));
        match (line.strip_prefix("--- "), next) {
            (Some(from), Some(to)) => {
                let path = path_of(to).map_err(|e| format!("line {}: {e}", at + 2))?;
                let is_new = from.split('\t').next() == Some("/dev/null");
                files.push(FileDiff { path, is_new, hunks: Vec::new() });
                at += 2;
            }
            _ if line.starts_with("@@ ") => {
                let file = files
                    .last_mut()
                    .ok_or_else(|| format!("line {}: a hunk of no file", at + 1))?;
                let (hunk, end) = hunk(&lines, at).map_err(|e| format!("line {}: {e}", at + 1))?;
                file.hunks.push(hunk);
                at = end;
            }
            _ => at += 1,
        }
    }
    match files.iter().find(|f| f.hunks.is_empty()) {
        Some(f) => Err(format!("{} has no hunk", f.path)),
        None if files.is_empty() => Err("it changes no file".into()),
        None => Ok(files),
    }
}

/// Without the first folder, which is `a` or `b`.
fn path_of(name: &str) -> Result<String, String> {
    let name = name.split('\t').next().unwrap_or_default().trim_end();
    if name == "/dev/null" {
        return Err("it removes a file, which none of the series does".into());
    }
    let path = name.split_once('/').map_or(name, |(_, rest)| rest);
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    match path.split('/').all(plain) {
        true => Ok(path.to_owned()),
        false => Err(format!("'{name}' is no path in a tree")),
    }
}

/// The hunk whose header is at a line, and the line after it.
fn hunk(lines: &[&str], at: usize) -> Result<(Hunk, usize), String> {
    let header = lines[at];
    let broken = || format!("'{header}' is no hunk's header");
    let rest = header.strip_prefix("@@ -").ok_or_else(broken)?;
    let (ranges, _) = rest.split_once(" @@").ok_or_else(broken)?;
    let (old, new) = ranges.split_once(" +").ok_or_else(broken)?;
    let range = |text: &str| -> Option<(usize, usize)> {
        let (start, count) = text.split_once(',').unwrap_or((text, "1"));
        Some((start.parse().ok()?, count.parse().ok()?))
    };
    let (start, mut old_left) = range(old).ok_or_else(broken)?;
    let (_, mut new_left) = range(new).ok_or_else(broken)?;
    let mut hunk = Hunk { header: header.to_owned(), start, old: Vec::new(), new: Vec::new() };
    let mut at = at + 1;
    while old_left > 0 || new_left > 0 {
        let line = lines.get(at).ok_or("it ends within a hunk")?;
        // Mailers cut the blank of an empty line of context.
        let (kind, text) = match line.split_at_checked(1) {
            Some((kind, text)) => (kind, text),
            None => (" ", ""),
        };
        let short = || "a hunk has other lines than its header counts".to_owned();
        if matches!(kind, " " | "-") {
            old_left = old_left.checked_sub(1).ok_or_else(short)?;
            hunk.old.push(text.to_owned());
        }
        if matches!(kind, " " | "+") {
            new_left = new_left.checked_sub(1).ok_or_else(short)?;
            hunk.new.push(text.to_owned());
        }
        if !matches!(kind, " " | "-" | "+") {
            return Err(short());
        }
        at += 1;
    }
    if lines.get(at).is_some_and(|l| l.starts_with('\\')) {
        return Err("a file without a line end at its end".into());
    }
    Ok((hunk, at))
}

impl FileDiff {
    /// The new text of a file; `None` where there is no file.
    ///
    /// # Errors
    /// The hunk that does not fit, by its header.
    pub fn apply(&self, text: Option<&str>) -> Result<String, String> {
        let text = match (text, self.is_new) {
            (Some(text), false) => text,
            (None, true) => "",
            (Some(_), true) => return Err("the file is there already".into()),
            (None, false) => return Err("there is no such file".into()),
        };
        let lines: Vec<&str> = text.lines().collect();
        let mut out: Vec<&str> = Vec::new();
        let (mut done, mut moved) = (0usize, 0isize);
        for hunk in &self.hunks {
            let wanted = hunk.start.saturating_sub(usize::from(!hunk.old.is_empty()));
            let near = wanted.saturating_add_signed(moved);
            let found = find(&lines, done..lines.len(), near, &hunk.old);
            let at = found.ok_or_else(|| hunk.header.clone())?;
            moved = at as isize - wanted as isize;
            out.extend(&lines[done..at]);
            out.extend(hunk.new.iter().map(String::as_str));
            done = at + hunk.old.len();
        }
        out.extend(&lines[done..]);
        let end = if out.is_empty() { "" } else { "\n" };
        Ok(out.join("\n") + end)
    }
}

/// Where lines are within a range, nearest to a place first.
fn find(lines: &[&str], within: Range<usize>, near: usize, wanted: &[String]) -> Option<usize> {
    let last = within.end.checked_sub(wanted.len())?;
    let fits = |at: usize| {
        (within.start..=last).contains(&at) && lines[at..].iter().zip(wanted).all(|(l, w)| l == w)
    };
    // Nothing to be found by: only the place itself counts.
    if wanted.is_empty() {
        return fits(near.clamp(within.start, last)).then(|| near.clamp(within.start, last));
    }
    let around = (0..=lines.len()).flat_map(|d| [near.checked_sub(d), near.checked_add(d)]);
    around.flatten().find(|at| fits(*at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    /// What diff(1) says of two texts, and what patch(1) makes of that.
    fn by_tools(old: &str, base: &str, new: &str) -> Option<(Vec<u8>, Option<String>)> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("a", old), ("b", new), ("base", base)] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let diff =
            Command::new("diff").args(["-u", "a", "b"]).current_dir(dir.path()).output().ok()?;
        std::fs::write(dir.path().join("d"), &diff.stdout).unwrap();
        let patched = Command::new("patch")
            .args(["--fuzz=0", "-s", "-o", "out", "base", "d"])
            .current_dir(dir.path())
            .output()
            .ok()?;
        let out = std::fs::read_to_string(dir.path().join("out")).ok();
        Some((diff.stdout, out.filter(|_| patched.status.success())))
    }

    #[test]
    fn the_series_is_read_as_it_is() {
        let series = include_str!("../../../kernel-patches/series/series");
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernel-patches/series/");
        for name in series.lines() {
            let bytes = std::fs::read(format!("{dir}{name}")).unwrap();
            let files = parse(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
            // The summary that git prints counts files and lines by itself.
            let text = String::from_utf8(bytes).unwrap();
            let count = |words: &str| -> usize {
                let line = text.lines().find(|l| l.contains("changed,")).unwrap();
                let part = line.split(", ").find(|p| p.contains(words));
                part.map_or(0, |p| p.trim().split(' ').next().unwrap().parse().unwrap())
            };
            assert_eq!(files.len(), count("changed"), "{name}");
            let grown: isize = files
                .iter()
                .flat_map(|f| &f.hunks)
                .map(|h| h.new.len() as isize - h.old.len() as isize)
                .sum();
            assert_eq!(grown, count("insertion") as isize - count("deletion") as isize, "{name}");
        }
    }

    #[test]
    fn what_is_no_patch_is_refused() {
        let head = "--- a/x.c\n+++ b/x.c\n";
        for (bad, why) in [
            (String::new(), "changes no file"),
            ("@@ -1 +1 @@\n-a\n+b\n".into(), "of no file"),
            (head.to_owned(), "no hunk"),
            (format!("{head}@@ -1,2 +1,2 @@\n-a\n+b\n"), "ends within"),
            (format!("{head}@@ -1 +1 @@\n?a\n+b\n"), "header counts"),
            (format!("{head}@@ -1 +1 @@\n-a\n-b\n"), "header counts"),
            (format!("{head}@@ -x +1 @@\n-a\n+b\n"), "no hunk's header"),
            ("--- a/x\n+++ b/../../etc/passwd\n@@ -1 +1 @@\n-a\n+b\n".into(), "no path"),
            ("--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n".into(), "removes"),
            (format!("{head}@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n"), "line end"),
        ] {
            let said = parse(bad.as_bytes()).unwrap_err();
            assert!(said.contains(why), "{bad:?}: {said}");
        }
        assert!(parse(&vec![b'x'; LIMIT + 1]).is_err() && parse(&[0xff]).is_err());
    }

    #[test]
    fn a_moved_place_is_found_and_another_text_is_not() {
        let patch = b"--- a/x.c\n+++ b/x.c\n@@ -1,3 +1,3 @@ int f(void)\n a\n-b\n+B\n c\n";
        let diff = &parse(patch).unwrap()[0];
        assert_eq!(diff.apply(Some("a\nb\nc\n")).unwrap(), "a\nB\nc\n");
        assert_eq!(diff.apply(Some("1\n2\na\nb\nc\n")).unwrap(), "1\n2\na\nB\nc\n");
        let error = diff.apply(Some("a\nb \nc\n")).unwrap_err();
        assert_eq!(error, "@@ -1,3 +1,3 @@ int f(void)");
        assert!(diff.apply(None).is_err());
        let new = &parse(b"--- /dev/null\n+++ b/n.c\n@@ -0,0 +1,2 @@\n+x\n+y\n").unwrap()[0];
        assert_eq!(new.apply(None).unwrap(), "x\ny\n");
        assert!(new.apply(Some("")).is_err());
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(0u8..4, 1..40)
    }

    fn lines(of: &[u8]) -> String {
        of.iter().map(|b| format!("line {b}\n")).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// What diff(1) wrote is taken, and makes the text that it was made of.
        #[test]
        fn diffs_of_others_are_applied(old in text(), new in text()) {
            let (old, new) = (lines(&old), lines(&new));
            let Some((diff, _)) = by_tools(&old, &old, &new) else { return Ok(()) };
            if old == new { return Ok(()) }
            let files = parse(&diff).map_err(TestCaseError::fail)?;
            prop_assert_eq!(files[0].apply(Some(&old)), Ok(new));
        }

        /// On another base, whatever is taken is what patch(1) would have made.
        #[test]
        fn no_other_result_than_of_patch(old in text(), new in text(), more in 0usize..5) {
            let base: String = (0..more).map(|i| format!("before {i}\n")).collect();
            let (old, new) = (lines(&old), lines(&new));
            let base = base + &old;
            let Some((diff, Some(theirs))) = by_tools(&old, &base, &new) else { return Ok(()) };
            if old == new { return Ok(()) }
            let files = parse(&diff).map_err(TestCaseError::fail)?;
            if let Ok(ours) = files[0].apply(Some(&base)) {
                prop_assert_eq!(ours, theirs);
            }
        }

        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in ".{0,80}") {
            let _ = parse(&bytes);
            let patch = format!("--- a/x\n+++ b/x\n@@ -1 +1 @@\n{text}");
            if let Ok(files) = parse(patch.as_bytes()) {
                let _ = files[0].apply(Some(&text));
            }
        }
    }
}
