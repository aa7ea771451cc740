//! Files: raw words, hex text, JSON; told apart by their first bytes.

use super::{ListingError, NamedProgram, Place, json};

/// Reads the programs of a file: little-endian 64-bit words; hex text of one word a line, with or
/// without 0x and underscores, with `#` comments; or JSON as that of the golden vectors
/// (npu-rk3588 Appendix D), which may hold several programs.
///
/// # Errors
/// When the file is none of these, with what is wrong and what is accepted.
pub fn parse(bytes: &[u8]) -> Result<Vec<NamedProgram>, ListingError> {
    // Words hold zero bytes in every program there is, and text holds none.
    let text = std::str::from_utf8(bytes).ok().filter(|t| !t.contains('\0'));
    let words = match text.map(|t| t.trim_start_matches('\u{feff}').trim()) {
        Some(text) if text.starts_with(['{', '[']) => return json::programs(text),
        Some(text) => hex_text(text)?,
        None => raw(bytes)?,
    };
    if words.is_empty() {
        return Err(ListingError::Empty);
    }
    Ok(vec![NamedProgram { name: "program".to_owned(), words, place: Place::First }])
}

fn raw(bytes: &[u8]) -> Result<Vec<u64>, ListingError> {
    let (words, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(ListingError::NotWords(bytes.len()));
    }
    Ok(words.iter().map(|w| u64::from_le_bytes(*w)).collect())
}

fn hex_text(text: &str) -> Result<Vec<u64>, ListingError> {
    let mut words = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let bad = || ListingError::Line { line: i + 1, text: line.chars().take(40).collect() };
        words.push(hex(line).ok_or_else(bad)?);
    }
    Ok(words)
}

/// A word in hex: digits, perhaps behind 0x, perhaps grouped by underscores.
pub fn hex(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    let digits: String = digits.chars().filter(|c| *c != '_').collect();
    let all = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit());
    all.then(|| u64::from_str_radix(&digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(bytes: &[u8]) -> Result<Vec<u64>, ListingError> {
        parse(bytes).map(|mut p| p.remove(0).words)
    }

    #[test]
    fn three_forms_of_the_same_words() {
        let want = Ok(vec![0x1001_0000_000e_4004, 0x0041_0000_0000_0000]);
        let raw = [0x1001_0000_000e_4004u64, 0x0041_0000_0000_0000].map(u64::to_le_bytes).concat();
        assert_eq!(words(&raw), want);
        let text = b"# two\n 10010000000e4004 # pointer\n\n0x0041_00000000_0000\n";
        assert_eq!(words(text), want);
        let json = br#"{"words": ["0x10010000000e4004", "0041000000000000"]}"#;
        assert_eq!(words(json), want);
        assert_eq!(words(br#"[ "10010000000e4004", "0041000000000000" ]"#), want);
    }

    #[test]
    fn errors_say_what_is_wrong_and_what_is_accepted() {
        for (bytes, what) in [
            (&b""[..], "no command words"),
            (b"# only a comment\n", "no command words"),
            (b"\0\0\0\0\0\0\0\0\0", "9 bytes"),
            (b"1\nxyz\n", "line 2: \"xyz\""),
            (b"10010000000e40040\n", "line 1"),
            (b"{\"words\": [", "begins like JSON"),
            (b"{\"words\": []}", "without a list of words"),
            (b"{\"words\": [\"0\", \"z\"]}", "entry 1"),
            (b"{\"words\": [\"0\", -1]}", "entry 1"),
            (b"{\"words\": [\"0\"], \"tasks\": [{\"count\": 2}, {\"count\": 2}]}", "fewer"),
        ] {
            let message = parse(bytes).map(|_| ()).map_err(|e| e.to_string()).unwrap_err();
            assert!(message.contains(what) && message.contains("accepted are"), "{message}");
        }
    }
}
