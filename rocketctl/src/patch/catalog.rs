//! The patches of the series, and how source code shows that it has what each gives: data, in
//! `kernel-patches/patches.yaml`.

use anyhow::{Context, Result};
use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

/// How much a patch matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Nobody should run without it.
    Required,
    /// Makes the NPU useful, or its state visible.
    Recommended,
    /// Few need it.
    Optional,
}

/// One patch.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// Stable name.
    pub id: String,
    /// Number in the public series.
    pub alias: Option<String>,
    /// What it gives, in a line.
    pub title: String,
    /// How much it matters.
    pub tier: Tier,
    /// Patches that go before it.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Module parameters that it adds.
    #[serde(default)]
    pub tunables: Vec<String>,
    /// The mainline version that has it.
    pub upstream: Option<String>,
    /// `none` when the series does not hold it.
    file: Option<String>,
    /// What must hold in the source.
    pub probe: Vec<Condition>,
}

impl Patch {
    /// Whether the series holds it: mainline's newest driver does not have it.
    pub fn in_series(&self) -> bool {
        self.file.is_none()
    }
}

/// Something that must hold in a piece of the source.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// A function, `struct NAME`, or `*` for the whole driver.
    #[serde(rename = "in")]
    pub place: String,
    #[serde(default, deserialize_with = "pattern")]
    has: Option<Regex>,
    #[serde(default, deserialize_with = "pattern")]
    lacks: Option<Regex>,
}

impl Condition {
    /// Whether it holds in this text; of two patterns either is enough.
    pub fn holds(&self, text: &str) -> bool {
        self.has.as_ref().is_some_and(|r| r.is_match(text))
            || self.lacks.as_ref().is_some_and(|r| !r.is_match(text))
    }
}

fn pattern<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Regex>, D::Error> {
    let text = String::deserialize(from)?;
    let built = RegexBuilder::new(&text).dot_matches_new_line(true).build();
    built.map(Some).map_err(serde::de::Error::custom)
}

/// All patches, in the order of the series.
///
/// # Errors
/// When the data that was built in is none.
pub fn catalog() -> Result<Vec<Patch>> {
    serde_yaml::from_str(include_str!("../../../kernel-patches/patches.yaml"))
        .context("kernel-patches/patches.yaml, which was built in")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERIES: &str = include_str!("../../../kernel-patches/series/series");

    /// Data and files name the same patches in the same order, and needs come first.
    #[test]
    fn the_catalog_is_that_of_the_series() {
        let all = catalog().unwrap();
        let ids: Vec<&str> = all.iter().filter(|p| p.in_series()).map(|p| p.id.as_str()).collect();
        let files: Vec<&str> = SERIES
            .lines()
            .map(|f| f.split_once('-').unwrap().1.strip_suffix(".patch").unwrap())
            .collect();
        assert_eq!(ids, files);
        for (i, p) in all.iter().enumerate() {
            assert!(!p.probe.is_empty(), "{}", p.id);
            for c in &p.probe {
                assert!(c.has.is_some() || c.lacks.is_some(), "{}: {}", p.id, c.place);
            }
            for need in &p.needs {
                assert!(all[..i].iter().any(|q| q.id == *need), "{} needs {need}", p.id);
            }
        }
        let mut aliases: Vec<_> = all.iter().filter_map(|p| p.alias.as_deref()).collect();
        aliases.sort_unstable();
        assert_eq!(aliases, ["081", "082", "083", "084", "085", "086", "087", "088", "089", "090"]);
    }
}
