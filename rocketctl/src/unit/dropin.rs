//! The drop-in for a unit: what it must have, by what the unit has. Pure.

use super::parse::{Unit, quoted};
use std::fmt::Write as _;

/// What a unit is to be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The plugin's file, an absolute path.
    pub plugin: String,
    /// As `DeviceAllow=` takes it: a path, or `char-accel` for every accel node.
    pub device: String,
    /// The node's group; nothing where there is none that could help.
    pub group: Option<String>,
}

/// A drop-in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DropIn {
    /// Assignments in `[Service]`, each with its reason.
    pub lines: Vec<(String, &'static str)>,
    /// What it cannot mend.
    pub notes: Vec<String>,
}

impl DropIn {
    fn line(&mut self, line: impl Into<String>, why: &'static str) {
        self.lines.push((line.into(), why));
    }

    /// The file.
    pub fn text(&self, unit: &str) -> String {
        let stem = unit.strip_suffix(".service").unwrap_or(unit);
        let mut out = format!(
            "# The NPU for {unit}, written by rocketctl.\n# rocketctl unit remove --for {stem} takes it away.\n[Service]\n"
        );
        for (line, why) in &self.lines {
            let _ = writeln!(out, "# {why}\n{line}");
        }
        out
    }
}

/// What a unit needs. Where the unit is not known, what most need and what does no harm.
pub fn for_unit(unit: Option<&Unit>, wish: &Wish) -> DropIn {
    let mut out = DropIn::default();
    let variable = quoted(&format!("GGML_BACKEND_PATH={}", wish.plugin));
    out.line(format!("Environment={variable}"), "ggml's hosts load the backend that this names.");
    if let Some(group) = &wish.group {
        out.line(
            format!("SupplementaryGroups={group}"),
            "The node's group, whoever the unit runs as.",
        );
    }
    device(&mut out, unit, wish);
    if let Some(unit) = unit {
        sandbox(&mut out, unit);
        out.notes.extend(hidden(unit, &wish.plugin));
    }
    out
}

/// The node. `PrivateDevices=` hides it, and a device policy refuses it; a unit that has neither is left alone, as a
/// first `DeviceAllow=` would shut out every other device.
fn device(out: &mut DropIn, unit: Option<&Unit>, wish: &Wish) {
    let last = |key: &str| unit.and_then(|u| u.last("Service", key)).unwrap_or_default();
    let private = on(unit, "PrivateDevices");
    if private {
        out.line("PrivateDevices=no", "A private /dev has no NPU in it.");
        out.line("DevicePolicy=closed", "Keeps the other devices out, as the private /dev did.");
    }
    let listed = unit.is_some_and(|u| !u.list("Service", "DeviceAllow").is_empty());
    let policy = matches!(last("DevicePolicy"), "closed" | "strict");
    if private || listed || policy || unit.is_none() {
        let node =
            if wish.device.starts_with('/') { quoted(&wish.device) } else { wish.device.clone() };
        out.line(format!("DeviceAllow={node} rw"), "Lets the NPU's node in.");
    }
}

/// What keeps the plugin from the node, from knowing the board, and from its counters.
fn sandbox(out: &mut DropIn, unit: &Unit) {
    if on(Some(unit), "PrivateUsers") {
        out.line("PrivateUsers=no", "In a user namespace of its own the node's group is nobody's.");
    }
    if unit.last("Service", "ProcSubset") == Some("pid") {
        out.line("ProcSubset=all", "The board and its memory are read from /proc.");
    }
    let strict = unit.last("Service", "ProtectSystem") == Some("strict");
    if strict || on(Some(unit), "DynamicUser") {
        out.line(
            "ReadWritePaths=-/run/rocket",
            "The counters that rocket-top reads are files there.",
        );
    }
}

/// Why the unit would not see the plugin's file.
fn hidden(unit: &Unit, plugin: &str) -> Vec<String> {
    let below = |places: &[&str]| places.iter().any(|p| plugin.starts_with(&format!("{p}/")));
    let mut notes = Vec::new();
    if on(Some(unit), "PrivateTmp") && below(&["/tmp", "/var/tmp"]) {
        notes.push(format!(
            "the unit has a /tmp of its own (PrivateTmp=), without {plugin}: move the file"
        ));
    }
    let home = unit.last("Service", "ProtectHome").unwrap_or_default();
    let home = on(Some(unit), "ProtectHome") || home == "tmpfs";
    if home && below(&["/home", "/root", "/run/user"]) {
        notes.push(format!("the unit sees no home (ProtectHome=), so not {plugin}: move the file"));
    }
    for key in ["RootDirectory", "RootImage"] {
        if unit.last("Service", key).is_some_and(|v| !v.is_empty()) {
            notes.push(format!(
                "the unit has a root of its own ({key}=): the plugin must be in it, at {plugin}"
            ));
        }
    }
    notes
}

/// Whether a unit says yes to something; `closed`, `disconnected` and their like are more than yes.
fn on(unit: Option<&Unit>, key: &str) -> bool {
    let Some(unit) = unit else { return false };
    match (unit.flag("Service", key), key, unit.last("Service", key)) {
        (Some(flag), _, _) => flag,
        (None, "PrivateTmp", Some("disconnected")) => true,
        (None, "PrivateUsers", Some("self" | "identity" | "full")) => true,
        (None, "DynamicUser" | "PrivateDevices" | "ProtectHome", _) => false,
        (None, "PrivateTmp", None) => on(Some(unit), "DynamicUser"),
        (None, ..) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    fn wish() -> Wish {
        let plugin = "/usr/lib/ggml-rocket/libggml-rocket.so".to_owned();
        Wish { plugin, device: "char-accel".into(), group: Some("render".into()) }
    }

    /// What a unit has once the drop-in counts as well.
    fn with(unit: &str) -> (Unit, DropIn) {
        let unit = parse(&format!("[Service]\nExecStart=/x\n{unit}"));
        let dropin = for_unit(Some(&unit), &wish());
        (unit.with(parse(&dropin.text("llama-server.service"))), dropin)
    }

    #[test]
    fn a_unit_without_a_sandbox_keeps_its_devices() {
        let (unit, dropin) = with("");
        assert_eq!(unit.environment()["GGML_BACKEND_PATH"], wish().plugin);
        assert_eq!(unit.list("Service", "SupplementaryGroups"), ["render"]);
        assert!(unit.list("Service", "DeviceAllow").is_empty(), "it would shut out all others");
        assert_eq!((dropin.lines.len(), dropin.notes.len()), (2, 0));
        let unknown = for_unit(None, &wish());
        assert!(unknown.lines.iter().any(|(l, _)| l == "DeviceAllow=char-accel rw"));
    }

    #[test]
    fn a_unit_with_one_gets_the_node_and_no_more() {
        let (unit, _) = with("PrivateDevices=yes\n");
        assert_eq!(unit.flag("Service", "PrivateDevices"), Some(false));
        assert_eq!(unit.last("Service", "DevicePolicy"), Some("closed"));
        assert_eq!(unit.list("Service", "DeviceAllow"), ["char-accel rw"]);
        let (unit, _) = with("DeviceAllow=/dev/dri/renderD128 rw\n");
        assert_eq!(
            unit.list("Service", "DeviceAllow"),
            ["/dev/dri/renderD128 rw", "char-accel rw"]
        );
        assert_eq!(unit.last("Service", "PrivateDevices"), None);
        let (unit, _) = with("DevicePolicy=strict\n");
        assert_eq!(
            (unit.last("Service", "DevicePolicy"), unit.list("Service", "DeviceAllow").len()),
            (Some("strict"), 1)
        );
        let (unit, _) = with("PrivateUsers=true\nProcSubset=pid\nDynamicUser=yes\n");
        assert_eq!(unit.flag("Service", "PrivateUsers"), Some(false));
        assert_eq!(unit.last("Service", "ProcSubset"), Some("all"));
        assert_eq!(unit.list("Service", "ReadWritePaths"), ["-/run/rocket"]);
    }

    #[test]
    fn what_a_drop_in_cannot_mend() {
        let noted = |text: &str, plugin: &str| {
            let unit = parse(&format!("[Service]\n{text}\n"));
            for_unit(Some(&unit), &Wish { plugin: plugin.into(), ..wish() }).notes.len()
        };
        assert_eq!(noted("PrivateTmp=yes", "/tmp/a.so"), 1);
        assert_eq!(noted("PrivateTmp=yes", "/tmpfs/a.so"), 0);
        assert_eq!(noted("PrivateTmp=no", "/tmp/a.so"), 0);
        assert_eq!(noted("DynamicUser=yes", "/var/tmp/a.so"), 1, "which implies it");
        assert_eq!(noted("ProtectHome=tmpfs", "/home/t/a.so"), 1);
        assert_eq!(noted("ProtectHome=read-only", "/home/t/a.so"), 0, "it may be read");
        assert_eq!(noted("RootDirectory=/srv/x", "/usr/a.so"), 1);
    }

    #[test]
    fn odd_paths() {
        let odd = "/opt/a b/100%/\"q\".so";
        let dropin = for_unit(
            None,
            &Wish { plugin: odd.into(), device: "/dev/accel/accel0".into(), ..wish() },
        );
        let text = dropin.text("x.service");
        assert!(
            text.contains("100%%") && text.contains("DeviceAllow=/dev/accel/accel0 rw"),
            "{text}"
        );
        assert_eq!(parse(&text).environment()["GGML_BACKEND_PATH"], odd);
        assert!(parse(&text).odd.is_empty());
    }
}
