//! `options rocket …` lines of modprobe's configuration.

use rocket_runtime::board::Root;

/// Where modprobe looks, the first first.
const FOLDERS: [&str; 2] = ["/etc/modprobe.d", "/usr/lib/modprobe.d"];
/// Ours.
pub const FILE: &str = "/etc/modprobe.d/rocket.conf";
/// Longest file that is looked at.
const LIMIT: usize = 1 << 20;

/// The value that a text gives a parameter of the module, the last one if there are several.
pub fn value<'a>(text: &'a str, parameter: &str) -> Option<&'a str> {
    if text.len() > LIMIT {
        return None;
    }
    let of = |line: &'a str| Some(ours(line)?.filter_map(|w| w.split_once('=')));
    let pairs = text.lines().filter_map(of).flatten();
    pairs.filter(|(name, _)| *name == parameter).map(|(_, value)| value).last()
}

/// The text with a parameter at a value, or without it. All else stays as it is.
pub fn with(text: &str, parameter: &str, value: Option<&str>) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let names = |w: &&str| w.split('=').next() == Some(parameter);
        if !ours(line).is_some_and(|mut words| words.any(|w| names(&w))) {
            out.push_str(line);
            continue;
        }
        let kept: Vec<&str> = line.split_whitespace().filter(|w| !names(w)).collect();
        // Nothing but `options rocket` is left of a line that had no other parameter.
        if kept.len() > 2 {
            out.push_str(&kept.join(" "));
            out.push('\n');
        }
    }
    if let Some(value) = value {
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(&format!("options rocket {parameter}={value}\n"));
    }
    out
}

/// The words after `options rocket` of such a line.
fn ours(line: &str) -> Option<impl Iterator<Item = &str>> {
    let mut words = line.split_whitespace();
    (words.next() == Some("options") && words.next() == Some("rocket")).then_some(words)
}

/// The files that set a parameter, and to what.
pub fn found(root: &Root, parameter: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for folder in FOLDERS {
        for name in root.names(folder).unwrap_or_default() {
            let path = format!("{folder}/{name}");
            if name.ends_with(".conf")
                && let Ok(text) = root.text(&path)
                && let Some(value) = value(&text, parameter)
            {
                all.push((path, value.to_owned()));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HZ: &str = "rocket_npu_clk_hz";

    #[test]
    fn lines_of_modprobe() {
        let text = "# options rocket rocket_npu_clk_hz=1\noptions rocket a=1 rocket_npu_clk_hz=2 b=3\n\
                    options rocketry rocket_npu_clk_hz=4\nblacklist rocket\n";
        assert_eq!(value(text, HZ), Some("2"));
        let more = with(text, HZ, Some("5"));
        assert!(
            more.contains("options rocket a=1 b=3\n")
                && more.contains("rocketry rocket_npu_clk_hz=4")
        );
        assert!(
            more.starts_with("# options rocket rocket_npu_clk_hz=1\n"),
            "a comment is none of ours"
        );
        assert_eq!(value(&more, HZ), Some("5"));
        assert_eq!(with("", HZ, Some("5")), "options rocket rocket_npu_clk_hz=5\n");
        assert_eq!(with("options rocket rocket_npu_clk_hz=5\n", HZ, None), "");
        assert_eq!(
            with("blacklist x", HZ, Some("5")),
            "blacklist x\noptions rocket rocket_npu_clk_hz=5\n"
        );
        assert_eq!(value(&with(text, HZ, None), HZ), None);
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            crate::fuzz::modprobe_options(&bytes);
        }

        #[test]
        fn any_text(lines in proptest::collection::vec(
            prop_oneof!["[ -~]{0,40}", "options rocket [a-c]=[0-9]{1,3}( rocket_npu_clk_hz=[0-9]{1,4})?"], 0..9))
        {
            let text: String = lines.iter().map(|l| format!("{l}\n")).collect();
            let new = with(&text, HZ, Some("7"));
            prop_assert_eq!(value(&new, HZ), Some("7"));
            prop_assert_eq!(with(&new, HZ, Some("7")), new.clone(), "again is the same");
            let without = with(&new, HZ, None);
            prop_assert_eq!(value(&without, HZ), None);
            for other in ["a", "b", "c"] {
                prop_assert_eq!(value(&new, other), value(&text, other));
            }
        }
    }
}
