//! What the measured numbers mean (ggml-abi 5.3): a supported generation, or a refusal in one
//! sentence that names the numbers and what to do.

use super::probe::{Probes, SLOTS};
use super::{Generation, SUPPORTED};
use std::fmt::Write;

/// A generation this version knows and does not support: its numbers and its age.
struct Known {
    name: &'static str,
    backend_slots: usize,
    props_bytes: usize,
    era: &'static str,
}

const OLDER: &[Known] = &[
    Known { name: "A1/A2", backend_slots: 13, props_bytes: 40, era: "2024-11 to 2025-09" },
    Known { name: "A3", backend_slots: 14, props_bytes: 40, era: "2025-09" },
    Known { name: "B1", backend_slots: 14, props_bytes: 56, era: "2025-09 to 2026-04" },
];

/// Whether the pure loads agree with a supported generation, so that the slot probes may run.
pub fn plausible(p: &Probes) -> bool {
    SUPPORTED.iter().any(|g| loads_match(p, g))
}

fn loads_match(p: &Probes, g: &Generation) -> bool {
    p.backend_slots == Some(g.backend_slots)
        && p.device_slots == Some(g.device_slots)
        && p.buft_slots == Some(g.buft_slots)
}

/// The generation to build tables for.
///
/// # Errors
/// The refusal, complete but for the host's version: which number is unknown or contradicts the
/// others.
pub fn decide(p: &Probes) -> Result<&'static Generation, String> {
    let g = SUPPORTED.iter().find(|g| loads_match(p, g)).ok_or_else(|| unknown(p))?;
    if p.props_bytes != Some(g.props_bytes) {
        return Err(contradiction(p, g, "the device properties have another size"));
    }
    if let Some(api) = p.host_api
        && api != g.api
    {
        return Err(contradiction(p, g, "the accepted API version differs"));
    }
    if p.has_2d != g.has_2d || p.has_buffer_n != g.has_buffer_n {
        return Err(contradiction(p, g, "the exported functions do not fit the tables"));
    }
    for (probe, (name, found)) in SLOTS.iter().zip(&p.slots) {
        if *found != Some(probe.expected) {
            let found = number(*found);
            let why = format!("{name} reads slot {found} instead of {}", probe.expected);
            return Err(contradiction(p, g, &why));
        }
    }
    if p.slots.len() != SLOTS.len() {
        return Err(contradiction(p, g, "the slots could not be probed"));
    }
    Ok(g)
}

fn number(n: Option<usize>) -> String {
    n.map_or_else(|| "unknown".to_owned(), |n| n.to_string())
}

/// The discovered numbers, in words.
fn numbers(p: &Probes) -> String {
    let api = p.host_api.map_or_else(|| "unknown".to_owned(), |a| a.to_string());
    let mut s = format!(
        "backend table {} slots, device table {}, buffer-type table {}, API version {api}",
        number(p.backend_slots),
        number(p.device_slots),
        number(p.buft_slots),
    );
    if let Some(bytes) = p.props_bytes {
        // Writing to a String cannot fail.
        let _ = write!(s, ", device properties {bytes} bytes");
    }
    s
}

/// What this version supports, in words.
fn supported() -> String {
    SUPPORTED
        .iter()
        .map(|g| {
            format!(
                "{} (backend table {} slots, buffer-type table {}, API {})",
                g.name, g.backend_slots, g.buft_slots, g.api
            )
        })
        .collect::<Vec<_>>()
        .join(" and ")
}

fn unknown(p: &Probes) -> String {
    let older = OLDER.iter().find(|k| {
        p.backend_slots == Some(k.backend_slots)
            && p.device_slots == Some(15)
            && p.props_bytes.is_none_or(|b| b == k.props_bytes)
    });
    let (which, action) = match older {
        // A3 and B1 have the same tables; only P6, which is not run on them, tells them apart.
        Some(k) if k.backend_slots == 14 => (
            "generation A3 or B1, 2025-09 to 2026-04".to_owned(),
            "update the host to ggml 0.10.0 or newer",
        ),
        Some(k) => {
            (format!("generation {}, {}", k.name, k.era), "update the host to ggml 0.10.0 or newer")
        }
        None => (
            "an unknown backend interface".to_owned(),
            "update the plugin, or use a host with one of those interfaces",
        ),
    };
    format!("{which}: {}; this plugin supports {}; {action}", numbers(p), supported())
}

fn contradiction(p: &Probes, g: &Generation, why: &str) -> String {
    format!(
        "looks like generation {} but {why}: {}; this plugin supports {}; update the plugin, or \
         use an unmodified ggml",
        g.name,
        numbers(p),
        supported()
    )
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
