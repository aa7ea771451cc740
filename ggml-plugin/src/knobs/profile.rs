//! Which profiles of the configuration file apply to this process.

use super::file::{Loaded, Profile, Settings};
use super::resolve::{Given, Origin};
use super::suggest;
use super::table::{Knob, PREFIX};
use glob::{MatchOptions, Pattern};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

/// A variable's text; unset and blank are the same.
pub(super) fn variable<'a>(variables: &'a [(OsString, OsString)], name: &str) -> Option<&'a OsStr> {
    let (_, text) = variables.iter().rev().find(|(n, _)| n == name)?;
    Some(text.as_os_str()).filter(|t| !t.to_string_lossy().trim().is_empty())
}

/// `ROCKET_PROFILE`.
pub(super) fn named(variables: &[(OsString, OsString)]) -> Option<String> {
    let name = variable(variables, "ROCKET_PROFILE")?.to_string_lossy();
    Some(name.trim().to_owned()).filter(|n| !n.is_empty())
}

/// The words this process was started with.
pub(crate) fn command_line() -> Vec<OsString> {
    let bytes = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words = bytes.split(|&b| b == 0).filter(|w| !w.is_empty());
    words.map(|w| OsStr::from_bytes(w).to_owned()).collect()
}

/// File names of the models that a command line names: what ends as a model's file does, and what
/// follows the options that take one. Some hosts take several with commas between.
pub(crate) fn models(words: &[OsString]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut is_model = false;
    for word in words.iter().skip(1) {
        let text = word.to_string_lossy();
        let ends = |text: &str| {
            let text = text.to_ascii_lowercase();
            text.ends_with(".gguf") || text.ends_with(".bin")
        };
        for part in text.split(',') {
            if (is_model || ends(part))
                && let Some(name) = Path::new(part).file_name()
            {
                let name = name.to_string_lossy().into_owned();
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        is_model = matches!(text.as_ref(), "-m" | "--model" | "--mmproj");
    }
    names
}

impl Profile {
    fn title(&self) -> String {
        let words = self.name.as_ref().or(self.model.as_ref());
        words.map_or("without a name".to_owned(), Clone::clone)
    }
}

impl Loaded {
    /// Its settings in ascending order of precedence: those for every process, those of profiles
    /// whose pattern matches in the order of the file, those of the profile that was named.
    pub(super) fn apply(
        &self,
        variables: &[(OsString, OsString)],
        words: &[OsString],
        warnings: &mut Vec<String>,
        notes: &mut Vec<String>,
    ) -> Vec<(&'static Knob, Given)> {
        let shown = self.path.display().to_string();
        for key in &self.file.unknown {
            warnings.push(unknown(&shown, key, &["settings", "profiles"]));
        }
        let mut given = self.known(&shown, &self.file.settings, warnings);
        let wanted = named(variables);
        let models = models(words);
        let mut applied = Vec::new();
        let (mut by_model, mut by_name) = (Vec::new(), Vec::new());
        for profile in &self.file.profiles {
            let place = format!("{shown}, profile {}", profile.title());
            for key in &profile.unknown {
                warnings.push(unknown(&place, key, &["name", "model", "settings"]));
            }
            if profile.name.is_none() && profile.model.is_none() {
                warnings.push(format!("{place}: it has neither name nor model, so never applies"));
            }
            let settings = self.known(&place, &profile.settings, warnings);
            let matched = matching(profile, &place, &models, warnings);
            if wanted.is_some() && profile.name == wanted {
                applied.push(profile.title());
                by_name.extend(settings);
            } else if let Some(model) = matched {
                applied.push(format!("{} (for {model})", profile.title()));
                by_model.extend(settings);
            }
        }
        if let Some(name) = wanted
            && !self.file.profiles.iter().any(|p| p.name.as_ref() == Some(&name))
        {
            let names = self.file.profiles.iter().filter_map(|p| p.name.as_deref());
            let meant = suggest::closest(&name, names);
            let meant = meant.map_or(String::new(), |m| format!("; did you mean {m}?"));
            warnings.push(format!("ROCKET_PROFILE={name:?}: {shown} has no such profile{meant}"));
        }
        let profiles = match applied.is_empty() {
            true => String::new(),
            false => format!(", profile {}", applied.join(", ")),
        };
        notes.push(format!("settings from {shown}{profiles}"));
        given.extend(by_model);
        given.extend(by_name);
        given
    }

    /// Settings with their knobs; one warning for each key that is none.
    fn known(
        &self,
        place: &str,
        settings: &Settings,
        warnings: &mut Vec<String>,
    ) -> Vec<(&'static Knob, Given)> {
        let origin = Origin::File(Rc::from(place));
        let mut given = Vec::new();
        for (key, value) in &settings.0 {
            match suggest::find(key) {
                Some(knob) if matches!(knob.name, "ROCKET_CONFIG" | "ROCKET_PROFILE") => warnings
                    .push(format!("{place}: {key} has no effect in a file; set {}", knob.name)),
                Some(knob) => {
                    given.push((knob, Given { text: (&value.0).into(), origin: origin.clone() }));
                }
                None => {
                    let meant = suggest::did_you_mean(key);
                    let meant = match key.starts_with(PREFIX) {
                        true => meant,
                        false => meant.to_lowercase().replace("rocket_", ""),
                    };
                    warnings.push(format!("{place}: {key} is not known{meant}"));
                }
            }
        }
        given
    }
}

fn unknown(place: &str, key: &str, known: &[&str]) -> String {
    let meant = suggest::closest(key, known.iter().copied());
    let meant = meant.map_or(String::new(), |m| format!("; did you mean {m}?"));
    format!("{place}: {key} is not known{meant}; this place takes {}", known.join(", "))
}

/// The model that the profile is for.
fn matching<'a>(
    profile: &Profile,
    place: &str,
    models: &'a [String],
    warnings: &mut Vec<String>,
) -> Option<&'a String> {
    let text = profile.model.as_ref()?;
    match Pattern::new(text) {
        // Model files are spelled q4_k_m as often as Q4_K_M.
        Ok(pattern) => {
            let options = MatchOptions { case_sensitive: false, ..MatchOptions::new() };
            models.iter().find(|m| pattern.matches_with(m, options))
        }
        Err(e) => {
            warnings.push(format!("{place}: {text:?} is no pattern: {e}"));
            None
        }
    }
}
