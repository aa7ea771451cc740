//! What was named beside the machine: a plugin, a host, settings.

use super::host::{Closure, Host, Object};
use super::model::Model;
use super::plugin::{Origin, Plugin};
use crate::elf::{self, Files, Search};
use crate::model::Header;
use crate::unit::files;
use anyhow::{Error, Result};
use clap::Args;
use ggml_rocket::knobs::{Knobs, PREFIX};
use rocket_runtime::board::{Facts, Reading, Root};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The variable that hosts read.
pub const VARIABLE: &str = "GGML_BACKEND_PATH";

/// What the command line names. Paths count from the root on.
#[derive(Debug, Clone, Default, Args)]
pub struct Options {
    /// Look at this host as well: a program, or a folder of ggml's libraries.
    #[arg(long, value_name = "PATH")]
    pub host: Option<String>,
    /// Look at this plugin; without it at the one that GGML_BACKEND_PATH names.
    #[arg(long, value_name = "PATH")]
    pub plugin: Option<String>,
    /// Look at this model as well: a GGUF, any part of a split one, or a whisper.cpp model.
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Look at what this systemd unit may use as well.
    #[arg(long, value_name = "UNIT")]
    pub as_service: Option<String>,
}

/// A service that was named, and its unit.
#[derive(Debug)]
pub struct Service {
    /// With its suffix.
    pub name: String,
    pub unit: Reading<files::Loaded>,
}

/// What was read of it.
#[derive(Debug)]
pub struct Named {
    pub plugin: Option<Plugin>,
    pub host: Option<Host>,
    /// What is loaded along with the plugin, in the host's system where it has one.
    pub libraries: Closure,
    /// The C library there.
    pub libc: Option<Object>,
    /// What is to be said about ROCKET_* variables, where there are any.
    pub knobs: Option<Vec<String>>,
    /// What the processor can do.
    pub cpu: Reading<Vec<String>>,
    /// `--model`.
    pub model: Option<Model>,
    /// `--as-service`.
    pub service: Option<Service>,
}

impl Named {
    /// The model and its header, where there are both.
    pub fn headed(&self) -> Option<(&Model, &Header)> {
        let model = self.model.as_ref()?;
        Some((model, model.header.as_ref().ok()?))
    }

    /// # Errors
    /// A host that is not there.
    pub fn read(
        root: &Root,
        options: &Options,
        facts: &Facts,
        environment: &Reading<BTreeMap<String, String>>,
    ) -> Result<Named> {
        let variable = |name: &str| environment.as_ref().ok()?.get(name).map(String::as_str);
        let current = root.is_live().then(std::env::current_dir).and_then(Result::ok);
        let current = current.map(|d| d.to_string_lossy().into_owned());
        let named = options.plugin.as_deref().map(|p| (p, Origin::Option));
        let named = named.or_else(|| variable(VARIABLE).map(|p| (p, Origin::Variable)));
        let plugin = named.map(|(given, origin)| {
            Plugin::read(root, given, origin, current.as_deref(), variable("HOME"))
        });
        let library_path = variable("LD_LIBRARY_PATH");
        let host = options.host.as_deref().map(|path| {
            let path = match &current {
                Some(dir) if !path.starts_with('/') => format!("{dir}/{path}"),
                _ => path.to_owned(),
            };
            Host::read(root, &path, library_path)
        });
        let host = host.transpose()?;
        let own = host.as_ref().and_then(|h| h.own_root.as_ref());
        let (libraries, libc) = around(own.unwrap_or(root), plugin.as_ref(), library_path);
        let cpu = super::checks::cpu_features(root.text("proc/cpuinfo"));
        let service = options.as_service.as_deref().map(files::full_name).transpose();
        let service = service.map_err(Error::msg)?;
        Ok(Named {
            plugin,
            host,
            libraries,
            libc,
            knobs: knobs(root, environment),
            cpu,
            model: options.model.as_deref().map(|path| Model::read(root, facts, environment, path)),
            service: service.map(|name| Service { unit: files::load(root, &name), name }),
        })
    }
}

/// What comes along with the plugin, and the C library that it meets.
fn around(
    system: &Root,
    plugin: Option<&Plugin>,
    library_path: Option<&str>,
) -> (Closure, Option<Object>) {
    let Some((path, elf)) = plugin.and_then(|p| Some((p.path()?, p.elf()?))) else {
        return (Closure::default(), None);
    };
    let files = Files::of(system);
    let search = Search::new(&files, &elf::machine_name(elf.machine), library_path);
    let found = search.find("libc.so.6", (path, elf), &[]);
    let libc = found.and_then(|f| Some(Object { path: f.path, elf: f.elf.ok()? }));
    let start = Object { path: path.to_owned(), elf: Rc::new(elf.clone()) };
    (Closure::of(&search, &start), libc)
}

/// What the plugin itself would say about its settings, with the configuration file of this root.
fn knobs(root: &Root, environment: &Reading<BTreeMap<String, String>>) -> Option<Vec<String>> {
    let all = environment.as_ref().ok()?;
    if !all.keys().any(|name| name.starts_with(PREFIX)) {
        return None;
    }
    let variables: Vec<(OsString, OsString)> =
        all.iter().map(|(name, value)| (name.into(), value.into())).collect();
    let read = |path: &Path| -> io::Result<Option<Vec<u8>>> {
        let path = path.to_string_lossy();
        match root.exists(&path) {
            Ok(false) => Ok(None),
            _ => root.bytes(&path).map(Some).map_err(|absent| io::Error::other(absent.to_string())),
        }
    };
    Some(Knobs::of_environment(&variables, &read).warnings)
}
