//! Every setting with the value in effect and where it comes from, for tools.

use super::file::{Place, Read};
use super::resolve::{self, Given};
use super::value::{Bad, Value, parse};
use super::{KNOBS, Knob, Knobs};
use std::ffi::OsString;

/// One knob as a process with these variables would have it.
#[derive(Debug, Clone, PartialEq)]
pub struct InEffect {
    /// Which.
    pub knob: &'static Knob,
    /// The value that is used; `None` while it is unset and has no default.
    pub value: Option<String>,
    /// `default`, `environment`, or the file and perhaps the profile in it.
    pub origin: String,
    /// What was written, where that is not what is used.
    pub refused: Option<String>,
}

/// All knobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    /// In the order of the table.
    pub knobs: Vec<InEffect>,
    /// One sentence for each setting that could not be taken as it is, is not known, or has no effect yet.
    pub warnings: Vec<String>,
    /// The configuration file and the profiles that apply.
    pub notes: Vec<String>,
}

/// What a host with this environment and command line would find. `read` reads a file; `None` where there is
/// none.
pub fn listing(variables: &[(OsString, OsString)], words: &[OsString], read: Read<'_>) -> Listing {
    let (given, warnings, notes) = Knobs::given(variables, words, read);
    let resolved = Knobs::resolve(given.clone(), warnings, notes);
    let knobs = KNOBS.iter().map(|knob| in_effect(knob, &given, &resolved)).collect();
    Listing { knobs, warnings: resolved.warnings, notes: resolved.notes }
}

/// Whether a configuration file would be looked for at all.
pub fn files(variables: &[(OsString, OsString)]) -> Vec<std::path::PathBuf> {
    match Place::of(variables) {
        Place::Nowhere => Vec::new(),
        Place::Named(path) => vec![path],
        Place::Usual(paths) => paths,
    }
}

fn in_effect(knob: &'static Knob, given: &[(&'static Knob, Given)], resolved: &Knobs) -> InEffect {
    let default = (!knob.default.is_empty()).then(|| knob.default.to_owned());
    let Some(written) = resolve::last(given, knob) else {
        let value = raised(knob, resolved).or(default);
        return InEffect { knob, value, origin: "default".into(), refused: None };
    };
    let text = written.text.to_string_lossy().into_owned();
    let origin = written.origin.to_string();
    let (value, whole, origin) = match parse(knob, &written.text) {
        Ok(value) => (value.as_ref().map(Value::text), true, origin),
        Err(Bad::Clamped(value)) => (Some(value.text()), false, origin),
        // A device that does not exist is used as it was written: nobody who misspells one wants the board's.
        Err(Bad::Malformed) if knob.name == "ROCKET_DEVICE" => (Some(text.clone()), false, origin),
        Err(Bad::Malformed) => (default, false, "default".into()),
    };
    let raised = raised(knob, resolved).filter(|r| Some(r) != value.as_ref());
    let refused = (!whole || raised.is_some()).then_some(text);
    InEffect { knob, value: raised.or(value), origin, refused }
}

/// `ROCKET_MIN_M_QUANT` is never below `ROCKET_MIN_M`.
fn raised(knob: &Knob, resolved: &Knobs) -> Option<String> {
    (knob.name == "ROCKET_MIN_M_QUANT").then(|| resolved.min_m_quant.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn of(variables: &[(&str, &str)], file: &str) -> Listing {
        let pairs: Vec<_> = variables.iter().map(|(n, v)| (n.into(), v.into())).collect();
        listing(&pairs, &["host".into(), "-m".into(), "a-Q4_K.gguf".into()], &|path: &Path| {
            Ok((path == Path::new("/etc/ggml-rocket/config.yaml")).then(|| file.into()))
        })
    }

    fn entry(l: &Listing, name: &str) -> (Option<String>, String, Option<String>) {
        let k = l.knobs.iter().find(|k| k.knob.name == name).unwrap();
        (k.value.clone(), k.origin.clone(), k.refused.clone())
    }

    /// The environment wins over a profile, that over the file, that over the default.
    #[test]
    fn where_each_value_comes_from() {
        let file = "settings: {min_m: 40, n_threads: 2, int8: 1}\nprofiles:\n  - {name: p, model: '*q4_k*', settings: {min_m: 50, n_threads: 3}}\n";
        let l = of(&[("ROCKET_N_THREADS", "4")], file);
        let some = |s: &str| Some(s.to_owned());
        assert_eq!(entry(&l, "ROCKET_N_THREADS"), (some("4"), "environment".into(), None));
        let profile = "/etc/ggml-rocket/config.yaml, profile p".to_owned();
        assert_eq!(entry(&l, "ROCKET_MIN_M"), (some("50"), profile, None));
        let settings = "/etc/ggml-rocket/config.yaml".to_owned();
        assert_eq!(entry(&l, "ROCKET_INT8"), (some("1"), settings, None));
        assert_eq!(entry(&l, "ROCKET_CACHE_MB"), (None, "default".into(), None));
        assert_eq!(entry(&l, "ROCKET_KACC"), (some("1"), "default".into(), None));
        assert!(l.warnings.is_empty() && l.notes.len() == 1, "{l:?}");
    }

    #[test]
    fn what_is_refused_is_named() {
        let l =
            of(&[("ROCKET_N_THREADS", "99"), ("ROCKET_INT8", "maybe"), ("ROCKET_MINM", "1")], "");
        let some = |s: &str| Some(s.to_owned());
        let environment = "environment".to_owned();
        assert_eq!(entry(&l, "ROCKET_N_THREADS"), (some("8"), environment, some("99")));
        assert_eq!(entry(&l, "ROCKET_INT8"), (some("0"), "default".into(), some("maybe")));
        assert_eq!(l.warnings.len(), 3, "{l:?}");
        assert!(l.warnings.iter().any(|w| w.contains("did you mean ROCKET_MIN_M?")), "{l:?}");
    }

    /// One threshold lifts the other, whoever set it.
    #[test]
    fn the_threshold_of_quantized_weights_is_no_lower() {
        let l = of(&[("ROCKET_MIN_M", "300")], "");
        assert_eq!(entry(&l, "ROCKET_MIN_M_QUANT"), (Some("300".into()), "default".into(), None));
        let l = of(&[("ROCKET_MIN_M", "300"), ("ROCKET_MIN_M_QUANT", "20")], "");
        let (value, _, refused) = entry(&l, "ROCKET_MIN_M_QUANT");
        assert_eq!((value.as_deref(), refused.as_deref()), (Some("300"), Some("20")));
    }

    #[test]
    fn which_files_are_looked_for() {
        let files = |v: &[(&str, &str)]| {
            let pairs: Vec<_> = v.iter().map(|(n, v)| (n.into(), v.into())).collect();
            files(&pairs)
        };
        assert!(files(&[("ROCKET_CONFIG", "none")]).is_empty());
        assert_eq!(files(&[("ROCKET_CONFIG", "/x")]), [Path::new("/x")]);
        assert_eq!(files(&[("HOME", "/h")]).len(), 2);
    }
}
