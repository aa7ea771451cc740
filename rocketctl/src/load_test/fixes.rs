//! What mends a step that went wrong: another plugin, another host, or a board that is set up.

use super::steps::{DEVICES, NO_DEVICE};
use crate::doctor::finding::{Finding, word};
use crate::doctor::remedy::{newer_host, other_host, other_plugin_loads, set_up};

/// A finding of the chain with what was seen, and what to do.
pub fn mended(finding: Finding, plugin: &str, host: &str) -> Finding {
    if !finding.needs_action() || !finding.id.starts_with("load.") || !finding.fix.is_empty() {
        return finding;
    }
    let finding = match finding.evidence.is_empty() {
        true => {
            let title = finding.title.clone();
            finding.seen(plugin, title)
        }
        false => finding,
    };
    let again = |host: &str| format!("rocketctl load-test {} --host {}", word(plugin), word(host));
    match finding.id {
        // Before the plugin comes in, it is the host's.
        "load.libraries" | "load.backends" => other_host(finding, host, again),
        "load.interface" => newer_host(finding, host, again),
        DEVICES if finding.title == NO_DEVICE => set_up(finding, again(host)),
        _ => other_plugin_loads(finding, host),
    }
}
