//! What mends a plugin, a host or a model: each a command, what verifies it, and the way back.

use super::finding::{Finding, word};
use super::host::Host;
use super::named::VARIABLE;
use super::plugin::{Origin, Plugin};
use crate::setup::LOCAL;

/// The one that was built for any system (scripts/package), as it is unpacked.
const INSTALL: &str = "sudo rocketctl setup --plugin ./libggml-rocket.so";
const BUILD: &str = "cargo build --release -p ggml-rocket && sudo rocketctl setup --plugin \
                     target/release/libggml_rocket.so";
const UNINSTALL: &str = "sudo rocketctl setup --undo";

/// In the folder of the host's source. Backends as files of their own need ggml as shared libraries, and one of the
/// CPU for each kind of processor, as the build's own is no choice then (ggml-abi 5 and 9).
const SHARED: &str = "cmake -B build -DBUILD_SHARED_LIBS=ON -DGGML_BACKEND_DL=ON \
                      -DGGML_CPU_ALL_VARIANTS=ON -DGGML_NATIVE=OFF && cmake --build build";
const AS_BEFORE: &str = "cmake -B build -DGGML_BACKEND_DL=OFF -DGGML_CPU_ALL_VARIANTS=OFF \
                         -DGGML_NATIVE=ON && cmake --build build";
/// Where that build has its programs and libraries.
pub const BUILT: &str = "build/bin";

/// `export` of the plugin's variable.
pub fn set(path: &str) -> String {
    format!("export {VARIABLE}={}", word(path))
}

/// The variable as it was.
pub fn back(plugin: &Plugin) -> String {
    match plugin.origin {
        Origin::Option => format!("unset {VARIABLE}"),
        Origin::Variable => set(&plugin.given),
    }
}

/// A plugin for this system in place of one that is not: the portable build, or one that is made here.
pub fn other_plugin(finding: Finding, plugin: &Plugin, host: Option<&Host>, id: &str) -> Finding {
    let host = host.map_or(String::new(), |h| format!(" --host {}", word(&h.path)));
    let verify = format!("rocketctl doctor --plugin {LOCAL}{host} --only {id}");
    // Who named it by the variable has hosts that read it.
    let (then, first) = match plugin.origin {
        Origin::Variable => (format!(" && {}", set(LOCAL)), format!("{}; ", back(plugin))),
        Origin::Option => Default::default(),
    };
    [INSTALL, BUILD].iter().fold(finding, |finding, run| {
        finding.fix(format!("{run}{then}"), verify.clone(), format!("{first}{UNINSTALL}"))
    })
}

/// The same, where a load test found it.
pub fn other_plugin_loads(finding: Finding, host: &str) -> Finding {
    let verify = format!("rocketctl load-test {LOCAL} --host {}", word(host));
    [INSTALL, BUILD].iter().fold(finding, |f, run| f.fix(*run, verify.clone(), UNINSTALL))
}

/// The plugin that is installed, or that is to be.
pub fn installed_plugin(finding: Finding, plugin: &Plugin, verify: &str) -> Finding {
    match plugin.installed {
        Some(path) => finding.fix(set(path), verify, back(plugin)),
        None => finding.fix(
            format!("{INSTALL} && {}", set(LOCAL)),
            verify,
            format!("{}; {UNINSTALL}", back(plugin)),
        ),
    }
}

/// What makes the NPU usable.
pub fn set_up(finding: Finding, verify: String) -> Finding {
    finding.fix("sudo rocketctl setup", verify, UNINSTALL)
}

/// The distribution's host: its package and its program.
fn packaged(host: &str) -> (&'static str, &'static str) {
    let name = host.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    match name.starts_with("whisper") || name.starts_with("libwhisper") {
        true => ("whisper.cpp", "/usr/bin/whisper-cli"),
        false => ("llama.cpp", "/usr/bin/llama-cli"),
    }
}

/// A host with backends as files of their own: built so, or Debian's.
pub fn other_host(finding: Finding, host: &str, verify: impl Fn(&str) -> String) -> Finding {
    let (package, program) = packaged(host);
    finding.fix(SHARED, verify(BUILT), AS_BEFORE).fix(
        format!("sudo apt install {package}"),
        verify(program),
        format!("sudo apt remove {package}"),
    )
}

/// The same from newer source, in whose folder it was built.
pub fn newer_host(finding: Finding, host: &str, verify: impl Fn(&str) -> String) -> Finding {
    let (package, program) = packaged(host);
    finding
        .fix(
            format!("git pull && {SHARED}"),
            verify(BUILT),
            "git checkout ORIG_HEAD && cmake --build build",
        )
        .fix(
            format!("sudo apt install {package}"),
            verify(program),
            format!("sudo apt remove {package}"),
        )
}

/// A host that is built with one option of ggml off.
pub fn host_without(finding: Finding, option: &str, verify: String) -> Finding {
    let build = |to: &str| format!("cmake -B build -D{option}={to} && cmake --build build");
    finding.fix(build("OFF"), verify, build("ON"))
}

/// The command that asks a check of a host.
pub fn of_host(id: &str) -> impl Fn(&str) -> String {
    move |host| format!("rocketctl doctor --host {} --only {id}", word(host))
}
