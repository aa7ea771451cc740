//! Lines of a configuration file, each with its own end, so that all that is not edited stays byte for byte.

/// Lines with their ends.
pub fn split(text: &str) -> Vec<String> {
    text.split_inclusive('\n').map(str::to_owned).collect()
}

/// A line without its end, and the end: nothing, a line feed, or a carriage return before it.
pub fn cut(line: &str) -> (&str, &str) {
    let body = line.strip_suffix('\n').map_or(line, |body| body.strip_suffix('\r').unwrap_or(body));
    (body, &line[body.len()..])
}

/// The end that this file's lines have.
pub fn end(lines: &[String]) -> &'static str {
    match lines.first().map(|l| cut(l).1) {
        Some("\r\n") => "\r\n",
        _ => "\n",
    }
}

/// Puts a line in at `at`. At a file's end that has no line end the new line has none either.
pub fn insert(lines: &mut Vec<String>, at: usize, body: &str) {
    let end = end(lines);
    match at.checked_sub(1).and_then(|before| lines.get_mut(before)) {
        Some(before) if cut(before).1.is_empty() => {
            before.push_str(end);
            lines.insert(at, body.to_owned());
        }
        _ => lines.insert(at, format!("{body}{end}")),
    }
}

/// Takes a line out, as if it had not been put in.
pub fn remove(lines: &mut Vec<String>, at: usize) {
    let open = cut(&lines.remove(at)).1.is_empty();
    if open && let Some(last) = lines.last_mut() {
        *last = cut(last).0.to_owned();
    }
}

/// A list of words with one more at its end; what stands behind the last word stays.
pub fn with_word(list: &str, word: &str) -> String {
    let words = list.trim_end();
    let blank = if words.trim_start().is_empty() { "" } else { " " };
    format!("{words}{blank}{word}{}", &list[words.len()..])
}

/// A list of words without one, and without the blanks before it; all others stay as they are.
pub fn without_word(list: &str, word: &str) -> String {
    let mut out = String::new();
    let mut rest = list;
    while !rest.is_empty() {
        let start = rest.find(|c: char| !c.is_whitespace()).unwrap_or(rest.len());
        let length = rest[start..].find(char::is_whitespace).unwrap_or(rest.len() - start);
        if &rest[start..start + length] != word {
            out.push_str(&rest[..start + length]);
        } else if out.trim().is_empty() {
            // The first one: its own blanks stay, and those of the next go.
            out.push_str(&rest[..start]);
            let after = &rest[start + length..];
            rest = match after.trim_start() {
                "" => after,
                next => next,
            };
            continue;
        }
        rest = &rest[start + length..];
    }
    out
}

/// Whether a word is in a list.
pub fn has_word(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|w| w == word)
}
