//! The configuration file: where it lies and what it says. YAML of this shape, all of it optional:
//!
//! ```yaml
//! settings: {min_m: 32, cpu_affinity: 4-7}
//! profiles:
//!   - {name: small, model: "*Q4_K*.gguf", settings: {quant_resident: 0}}
//! ```

use super::profile::variable;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Reads a file; `None` where there is none.
pub type Read<'a> = &'a dyn Fn(&Path) -> io::Result<Option<Vec<u8>>>;

/// Settings are a page of text; whatever is larger is some other file.
const MAX_BYTES: u64 = 1 << 20;

/// Where the file may lie.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// `ROCKET_CONFIG=none`.
    Nowhere,
    /// `ROCKET_CONFIG`: it has to be there.
    Named(PathBuf),
    /// The first of these that is there.
    Usual(Vec<PathBuf>),
}

impl Place {
    /// As an environment has it.
    pub(super) fn of(variables: &[(OsString, OsString)]) -> Place {
        match variable(variables, "ROCKET_CONFIG") {
            Some(word) if word.eq_ignore_ascii_case("none") => return Place::Nowhere,
            Some(path) => return Place::Named(path.into()),
            None => {}
        }
        let own = variable(variables, "XDG_CONFIG_HOME").map(PathBuf::from);
        // A relative one is to be ignored (XDG base directories).
        let own = own.filter(|p| p.is_absolute()).or_else(|| {
            variable(variables, "HOME").map(|home| PathBuf::from(home).join(".config"))
        });
        let folders = own.into_iter().chain([PathBuf::from("/etc")]);
        Place::Usual(folders.map(|f| f.join("ggml-rocket/config.yaml")).collect())
    }
}

/// Reads from the file system. Only regular files: a pipe would keep the host waiting.
pub(super) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let meta = match std::fs::metadata(path) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        meta => meta?,
    };
    if !meta.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("larger than 1 MiB"));
    }
    Ok(Some(bytes))
}

/// A file that was read.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) path: PathBuf,
    pub(super) file: File,
}

/// The file, or `None` with at most one warning.
pub(super) fn find(place: &Place, read: Read<'_>, warnings: &mut Vec<String>) -> Option<Loaded> {
    let paths = match place {
        Place::Nowhere => return None,
        Place::Named(path) => std::slice::from_ref(path),
        Place::Usual(paths) => paths,
    };
    for path in paths {
        let shown = path.display();
        let why = match read(path) {
            Ok(None) if matches!(place, Place::Usual(_)) => continue,
            Ok(None) => format!("ROCKET_CONFIG={shown}: there is no such file"),
            Err(e) => format!("{shown}: {e}; the file is ignored"),
            Ok(Some(bytes)) => match parse(&bytes) {
                Ok(file) => return Some(Loaded { path: path.clone(), file }),
                Err(e) => {
                    // The crate's own words repeat the place.
                    let at = e
                        .location()
                        .map_or(String::new(), |l| format!(":{}:{}", l.line(), l.column()));
                    format!("{shown}{at}: {e}; the file is ignored")
                }
            },
        };
        warnings.push(why);
        return None;
    }
    None
}

/// What a file says.
#[derive(Debug, Default, PartialEq)]
pub(super) struct File {
    pub(super) settings: Settings,
    pub(super) profiles: Vec<Profile>,
    /// Keys that mean nothing.
    pub(super) unknown: Vec<String>,
}

/// One profile.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Profile {
    pub(super) name: Option<String>,
    /// A glob over the file name of a model.
    pub(super) model: Option<String>,
    pub(super) settings: Settings,
    pub(super) unknown: Vec<String>,
}

/// Keys and values in the order of the file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Settings(pub(super) Vec<(String, Scalar)>);

/// One value as the text that a variable would hold; empty for null.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Scalar(pub(super) String);

pub(super) fn parse(bytes: &[u8]) -> Result<File, serde_yaml::Error> {
    // Nothing but comments is a file that says nothing, and not YAML's end of stream.
    let is_blank = |line: &[u8]| {
        let line = line.trim_ascii();
        line.is_empty() || line.starts_with(b"#")
    };
    if bytes.split(|&b| b == b'\n').all(is_blank) {
        return Ok(File::default());
    }
    Ok(serde_yaml::from_slice::<Option<File>>(bytes)?.unwrap_or_default())
}

/// A `Deserialize` by a mapping whose other keys are kept by name.
macro_rules! mapping {
    ($type:ident, $what:literal, $($field:ident),*) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<$type, D::Error> {
                struct Keys;
                impl<'de> Visitor<'de> for Keys {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($what)
                    }
                    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$type, A::Error> {
                        let mut it = $type::default();
                        let mut seen = Vec::new();
                        while let Some(key) = map.next_key::<String>()? {
                            if seen.contains(&key) {
                                return Err(A::Error::custom(format!("{key} is given twice")));
                            }
                            match key.as_str() {
                                $(stringify!($field) => {
                                    it.$field = map.next_value::<Option<_>>()?.unwrap_or_default();
                                })*
                                _ => {
                                    map.next_value::<IgnoredAny>()?;
                                    it.unknown.push(key.clone());
                                }
                            }
                            seen.push(key);
                        }
                        Ok(it)
                    }
                }
                d.deserialize_map(Keys)
            }
        }
    };
}
mapping!(File, "a mapping with settings and profiles", settings, profiles);
mapping!(Profile, "a profile with name, model and settings", name, model, settings);

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Settings, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Settings;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping of settings to values")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Settings, A::Error> {
                let mut all: Vec<(String, Scalar)> = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    if all.iter().any(|(k, _)| *k == key) {
                        return Err(A::Error::custom(format!("{key} is given twice")));
                    }
                    all.push((key, map.next_value()?));
                }
                Ok(Settings(all))
            }
        }
        d.deserialize_map(Keys)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Scalar, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a word or a list of them")
            }
            fn visit_bool<E: Error>(self, v: bool) -> Result<Scalar, E> {
                Ok(Scalar(v.to_string()))
            }
            fn visit_i64<E: Error>(self, v: i64) -> Result<Scalar, E> {
                Ok(Scalar(v.to_string()))
            }
            fn visit_u64<E: Error>(self, v: u64) -> Result<Scalar, E> {
                Ok(Scalar(v.to_string()))
            }
            fn visit_i128<E: Error>(self, v: i128) -> Result<Scalar, E> {
                Ok(Scalar(v.to_string()))
            }
            fn visit_u128<E: Error>(self, v: u128) -> Result<Scalar, E> {
                Ok(Scalar(v.to_string()))
            }
            fn visit_f64<E: Error>(self, v: f64) -> Result<Scalar, E> {
                Ok(Scalar(v.to_string()))
            }
            fn visit_str<E: Error>(self, v: &str) -> Result<Scalar, E> {
                Ok(Scalar(v.to_owned()))
            }
            fn visit_unit<E: Error>(self) -> Result<Scalar, E> {
                Ok(Scalar::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar, A::Error> {
                let mut all = Vec::new();
                while let Some(Scalar(text)) = seq.next_element()? {
                    all.push(text);
                }
                Ok(Scalar(all.join(",")))
            }
        }
        d.deserialize_any(Text)
    }
}
