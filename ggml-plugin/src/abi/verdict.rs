//! What the measured numbers mean (ggml-abi 5.3): a supported generation, or a refusal in one
//! sentence that names the numbers and what to do.

use super::probe::{Probes, SLOTS};
use super::{Generation, SUPPORTED, adapt};
use std::fmt::Write;

/// Whether the pure loads agree with a supported generation, so that the slot probes may run.
pub fn plausible(p: &Probes) -> bool {
    SUPPORTED.iter().any(|g| loads_match(p, g))
}

fn loads_match(p: &Probes, g: &Generation) -> bool {
    p.backend_slots == Some(g.backend.slots)
        && p.device_slots == Some(g.device_slots)
        && p.buft_slots == Some(g.buft_slots)
}

/// The same with `ROCKET_ABI=adapt`: then an unknown layout is looked at as well.
pub fn worth_probing(p: &Probes, adapt: bool) -> bool {
    plausible(p) || (adapt && adapt::worth_probing(p))
}

/// The generation to build tables for: a known one, else with `adapt` the one that was measured.
///
/// # Errors
/// The refusal, complete but for the host's version: which number is unknown or contradicts the
/// others.
pub fn decide(p: &Probes, adapt: bool) -> Result<Generation, String> {
    match known(p) {
        Ok(g) => Ok(*g),
        Err(refusal) if adapt => adapt::layout(p)
            .map_err(|why| format!("{refusal}; ROCKET_ABI=adapt cannot help: {why}")),
        Err(refusal) => Err(refusal),
    }
}

fn known(p: &Probes) -> Result<&'static Generation, String> {
    let like: Vec<_> = SUPPORTED.iter().copied().filter(|g| loads_match(p, g)).collect();
    if like.is_empty() {
        return Err(unknown(p));
    }
    // A3 and B1 have the same tables; the properties tell them apart (ggml-abi 5.3).
    let Some(&g) = like.iter().find(|g| p.props_bytes == Some(g.props_bytes)) else {
        return Err(contradiction(p, &like, "the device properties have another size"));
    };
    let contradiction = |why| Err(contradiction(p, &[g], why));
    if let Some(api) = p.host_api
        && api != g.api
    {
        return contradiction("the accepted API version differs");
    }
    if p.has_2d != g.has_2d || p.has_buffer_n != g.has_buffer_n {
        return contradiction("the exported functions do not fit the tables");
    }
    for (probe, (name, found)) in SLOTS.iter().zip(&p.slots) {
        let expected = probe.expected(g);
        if *found != Some(expected) {
            let found = number(*found);
            return contradiction(&format!("{name} reads slot {found} instead of {expected}"));
        }
    }
    if p.slots.len() != SLOTS.len() {
        return contradiction("the slots could not be probed");
    }
    Ok(g)
}

fn number(n: Option<usize>) -> String {
    n.map_or_else(|| "unknown".to_owned(), |n| n.to_string())
}

/// The discovered numbers, in words.
pub fn numbers(p: &Probes) -> String {
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
    let rows = SUPPORTED.iter().map(|g| {
        format!(
            "{} (backend table {} slots, buffer-type table {}, API {})",
            g.name, g.backend.slots, g.buft_slots, g.api
        )
    });
    rows.collect::<Vec<_>>().join(", ")
}

fn unknown(p: &Probes) -> String {
    format!(
        "an unknown backend interface: {}; this plugin supports {}; update the plugin, or use a \
         host with one of those interfaces",
        numbers(p),
        supported()
    )
}

fn contradiction(p: &Probes, like: &[&Generation], why: &str) -> String {
    let like = like.iter().map(|g| format!("{} ({})", g.name, g.era)).collect::<Vec<_>>();
    format!(
        "looks like generation {} but {why}: {}; this plugin supports {}; update the plugin, or \
         use an unmodified ggml",
        like.join(" or "),
        numbers(p),
        supported()
    )
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
