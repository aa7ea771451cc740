//! A model that was named, and what is asked of a forecast about it.

use crate::forecast::{self, Cpu, Cut, Forecast, Settings, Soc};
use crate::model::{self, Header};
use rocket_runtime::board::{Facts, Reading, Root};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// As hosts cut a long prompt, unless told otherwise.
const USUAL: Cut = Cut { prompt: 2048, ubatch: 512, flash: true, beams: 5 };

/// The file, and the machine that it is to run on.
#[derive(Debug)]
pub struct Model {
    pub path: PathBuf,
    pub header: model::Result<Header>,
    pub settings: Settings,
}

impl Model {
    pub fn read(
        root: &Root,
        facts: &Facts,
        environment: &Reading<BTreeMap<String, String>>,
        path: &Path,
    ) -> Model {
        // Whatever else this is, it is no board whose host would pack for these cores.
        let foreign = facts.machine.as_ref().is_ok_and(|m| m == "x86_64");
        let settings = Settings {
            cut: USUAL,
            repack: true,
            cpu: if foreign { Cpu::Avx2 } else { Cpu::Dotprod },
            soc: forecast::soc(root).unwrap_or(Soc::Rk3588),
            memory: facts.memory,
            knobs: forecast::knobs(environment),
        };
        Model { path: path.to_owned(), header: model::open(path), settings }
    }

    /// What a host would do with it, with other settings.
    pub fn forecast(&self, header: &Header, change: impl FnOnce(&mut Settings)) -> Forecast {
        let mut settings = self.settings.clone();
        change(&mut settings);
        Forecast::of(header, &settings)
    }

    /// The same where the host packs nothing for itself.
    pub fn plain(&self, header: &Header) -> Forecast {
        self.forecast(header, |s| s.repack = false)
    }

    /// The command with which most of it runs on the NPU.
    pub fn command(&self, header: &Header) -> String {
        forecast::advise(header, &self.path, &self.settings).line()
    }

    /// The file, as a word of a command.
    pub fn word(&self) -> String {
        forecast::quoted(&self.path.to_string_lossy())
    }

    /// The same with this at the end of its name.
    pub fn beside(&self, end: &str) -> String {
        let path = self.path.to_string_lossy();
        let stem = path.strip_suffix(".gguf").or(path.strip_suffix(".bin")).unwrap_or(&path);
        forecast::quoted(&format!("{stem}{end}"))
    }

    /// A command that shows what a check was about.
    pub fn verify(&self, options: &str) -> String {
        format!("rocketctl forecast {}{options}", self.word())
    }

    /// The command that asks a check of a model.
    pub fn ask(word: &str, id: &str) -> String {
        format!("rocketctl doctor --model {word} --only {id}")
    }

    /// Quantized weights of types that the host's CPU packs for itself, and all quantized ones.
    pub fn packed(&self, header: &Header) -> (u64, usize) {
        let all = header.tensors.iter().filter(|t| t.dtype.is_quantized()).count();
        (self.forecast(header, |s| s.repack = true).repacked, all)
    }
}
