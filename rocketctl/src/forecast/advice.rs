//! The configuration with which most of a model runs on the NPU, as a command that can be pasted.

use super::graph::Cut;
use super::plan::{Forecast, Settings};
use crate::model::{self, Format, Header};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Where the packages put the plugin (docs/using.md).
const PLUGIN: &str = "/usr/lib/ggml-rocket/libggml-rocket.so";

/// What hosts do unless told otherwise.
const UBATCH: u64 = 512;
/// What pays where weights are packed or decoded for every micro-batch, and with experts.
const LARGE: u64 = 2048;

/// Per cent that are no reason for another configuration.
pub const ALIKE: f64 = 3.0;

/// A command and what it comes to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    pub environment: BTreeMap<&'static str, String>,
    /// Program and options, without the environment.
    pub command: String,
    /// The same, in words of a shell.
    #[serde(skip)]
    pub words: Vec<String>,
    /// The NPU's part of the multiplications of the prompt, in per cent; modelled.
    pub npu_share: f64,
    pub ubatch: u64,
    /// What no option mends.
    pub notes: Vec<String>,
}

impl Advice {
    /// All in one line.
    pub fn line(&self) -> String {
        let set = self.environment.iter().map(|(name, value)| format!("{name}={value} "));
        set.collect::<String>() + &self.command
    }
}

/// Whether the host of a model can be told to leave weights as they are (ggml-abi 6.1).
fn has_switch(header: &Header) -> bool {
    header.format != Format::Whisper
}

/// The best of what a user can choose.
pub fn advise(header: &Header, path: &Path, given: &Settings) -> Advice {
    let packed = header.tensors.iter().any(|t| given.cpu.packs(t)) && header.architecture != "clip";
    let with = |ubatch| Settings {
        cut: Cut { ubatch, flash: true, ..given.cut },
        repack: packed && !has_switch(header),
        ..given.clone()
    };
    let [small, large] =
        [UBATCH, LARGE].map(|ubatch| (ubatch, Forecast::of(header, &with(ubatch))));
    let gains = large.1.share() > small.1.share() + ALIKE;
    // What does not stay is packed for each micro-batch: the fewer, the better.
    let streams = !small.1.plan.is_whole() && given.cut.prompt > UBATCH;
    let (ubatch, forecast) = if gains || streams { large } else { small };
    let mut notes = Vec::new();
    if packed && !has_switch(header) {
        notes.push(
            "whisper.cpp packs these types for its CPU and has no switch against it: use an F16 file, or Q5_0"
                .to_owned(),
        );
    }
    if !given.soc.is_driven() {
        notes.push(format!(
            "this version drives no {}; a route there takes F16 files alone, with ROCKET_INT8=1",
            given.soc.name()
        ));
    }
    let mut environment = BTreeMap::from([("GGML_BACKEND_PATH", PLUGIN.to_owned())]);
    if !given.soc.is_driven() {
        environment.insert("ROCKET_INT8", "1".to_owned());
    }
    let file = quoted(&model::first(header, path).to_string_lossy());
    let mut words: Vec<String> = match (header.format, header.architecture.as_str()) {
        (Format::Whisper, _) => list(&["whisper-cli", "-m", &file, "-f", "speech.wav"]),
        (_, "clip") => list(&[
            "llama-mtmd-cli",
            "-m",
            "TEXT.gguf",
            "--mmproj",
            &file,
            "--mmproj-device",
            "ROCKET",
            "--image",
            "a.png",
        ]),
        _ if header.value("pooling_type").is_some() => {
            list(&["llama-embedding", "-m", &file, "-f", "TEXT"])
        }
        _ => list(&["llama-cli", "-m", &file, "-ngl", "0"]),
    };
    if has_switch(header) && header.architecture != "clip" {
        if packed {
            words.push("-nr".to_owned());
        }
        let [batch, ubatch] = [ubatch.max(LARGE), ubatch].map(|n| n.to_string());
        words.extend(list(&["-b", &batch, "-ub", &ubatch, "-fa", "on"]));
    }
    let command = words.join(" ");
    Advice { environment, command, words, npu_share: forecast.share(), ubatch, notes }
}

fn list(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

/// As a word of a shell.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    match !text.is_empty() && text.chars().all(plain) && !text.starts_with('-') {
        true => text.to_owned(),
        // A file's name is no option.
        false if text.starts_with('-') => quoted(&format!("./{text}")),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}
