//! Names that mean nothing here, and what was probably meant.

use super::entries::KNOBS;
use super::table::{Knob, PREFIX};

/// Variables of this repository's other tools: the simulated board, the tests, the scripts.
const OTHER_TOOLS: &[&str] = &[
    "ROCKET_SIM_",
    "ROCKET_TEST_",
    "ROCKET_HOST_",
    "ROCKET_CACHE",
    "ROCKET_NO_SOURCE_HOST",
    "ROCKET_MUTATE_MOST",
    "ROCKET_VECTORS",
];

/// Whether `name` belongs to another tool. An entry that ends in `_` stands for all that begin so.
pub(super) fn is_elsewhere(name: &str) -> bool {
    OTHER_TOOLS
        .iter()
        .any(|&other| if other.ends_with('_') { name.starts_with(other) } else { name == other })
}

/// The knob of this name, or of this key of a configuration file.
pub(super) fn find(name: &str) -> Option<&'static Knob> {
    KNOBS.iter().find(|k| k.name == name || k.key() == name)
}

/// The closest of `names`, if it is close enough to be a misspelling.
pub fn closest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let best = names
        .into_iter()
        .map(|n| (strsim::damerau_levenshtein(name, n), n))
        .min_by_key(|(distance, _)| *distance);
    // A third of the letters: two slips in MIN_M would already be another word.
    best.filter(|(distance, n)| *distance <= (n.len() / 3).clamp(1, 3)).map(|(_, n)| n)
}

/// `; did you mean ROCKET_MIN_M?`, or nothing. Names are compared without the common prefix.
pub(super) fn did_you_mean(name: &str) -> String {
    let bare = name.strip_prefix(PREFIX).unwrap_or(name);
    let bare = bare.chars().take(64).collect::<String>().to_ascii_uppercase();
    match closest(&bare, KNOBS.iter().map(|k| k.name.trim_start_matches(PREFIX))) {
        Some(known) => format!("; did you mean {PREFIX}{known}?"),
        None => String::new(),
    }
}
