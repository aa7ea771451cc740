//! How a kernel was configured (kernel-and-uapi D.2).

use super::{Absent, Reading, Root, Why};
use std::collections::BTreeMap;
use std::io::Read;

/// Most bytes of a configuration, unpacked: those of distributions have a third of a MiB.
const LIMIT: u64 = 4 << 20;

/// A configuration and where it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelConfig {
    /// The file, from the root on.
    pub path: String,
    options: BTreeMap<String, String>,
}

impl KernelConfig {
    /// An option without `CONFIG_`: `y`, `m`, a value, or `n` where it is not set or this kernel has no such option.
    pub fn get(&self, option: &str) -> &str {
        self.options.get(option).map_or("n", String::as_str)
    }

    /// Whether it is built in or a module.
    pub fn has(&self, option: &str) -> bool {
        matches!(self.get(option), "y" | "m")
    }
}

/// The configuration of this release alone: another's says nothing.
pub fn read(root: &Root, release: &Reading<String>) -> Reading<KernelConfig> {
    let running = "proc/config.gz";
    match root.bytes(running) {
        Ok(packed) => {
            return unpacked(&packed)
                .and_then(|text| parse(&text))
                .map_err(reason(running))
                .map(at(running));
        }
        Err(Absent { why: Why::Missing, .. }) => {}
        Err(absent) => return Err(absent),
    }
    installed(root, &release.clone()?)
}

/// The one that was installed with a release.
pub fn installed(root: &Root, release: &str) -> Reading<KernelConfig> {
    let places = [format!("boot/config-{release}"), format!("lib/modules/{release}/config")];
    let mut missing = None;
    for path in &places {
        match root.parsed(path, parse) {
            Err(absent) if absent.why == Why::Missing => missing = missing.or(Some(absent)),
            read => return read.map(at(path)),
        }
    }
    let [path, _] = places;
    Err(missing.unwrap_or(Absent { path: format!("/{path}"), why: Why::Missing }))
}

fn at(path: &str) -> impl Fn(BTreeMap<String, String>) -> KernelConfig {
    move |options| KernelConfig { path: format!("/{path}"), options }
}

fn reason(path: &str) -> impl Fn(String) -> Absent {
    move |what| Absent { path: format!("/{path}"), why: Why::Malformed(what) }
}

/// The text of a `config.gz`.
///
/// # Errors
/// In words: no gzip, or more than 4 MiB.
pub fn unpacked(packed: &[u8]) -> Result<String, String> {
    let mut text = Vec::new();
    let mut from = flate2::read::GzDecoder::new(packed).take(LIMIT + 1);
    from.read_to_end(&mut text).map_err(|e| format!("cannot be unpacked: {e}"))?;
    match text.len() as u64 > LIMIT {
        true => Err(format!("is longer than {} MiB", LIMIT >> 20)),
        false => Ok(String::from_utf8_lossy(&text).into_owned()),
    }
}

/// Options by name, without `CONFIG_`.
///
/// # Errors
/// In words: not one option is in it.
pub fn parse(text: &str) -> Result<BTreeMap<String, String>, String> {
    let option = |line: &str| {
        if let Some(unset) = line.strip_prefix("# CONFIG_") {
            return Some((unset.strip_suffix(" is not set")?.to_owned(), "n".to_owned()));
        }
        let (name, value) = line.strip_prefix("CONFIG_")?.split_once('=')?;
        Some((name.to_owned(), value.trim_matches('"').to_owned()))
    };
    let options: BTreeMap<String, String> = text.lines().filter_map(|l| option(l.trim())).collect();
    if options.is_empty() {
        return Err("is no kernel configuration".into());
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const TEXT: &str = "# CONFIG_DRM_ACCEL is not set\nCONFIG_DRM=m\nCONFIG_DRM_SCHED=y\n\
                        CONFIG_LOCALVERSION=\"-x\"\nCONFIG_BROKEN\n";

    fn packed(text: &str) -> Vec<u8> {
        let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        to.write_all(text.as_bytes()).unwrap();
        to.finish().unwrap()
    }

    #[test]
    fn options() {
        let config = KernelConfig { path: String::new(), options: parse(TEXT).unwrap() };
        let got = ["DRM_ACCEL", "DRM", "DRM_SCHED", "LOCALVERSION", "NEVER_HEARD_OF", "BROKEN"];
        assert_eq!(got.map(|o| config.get(o)), ["n", "m", "y", "-x", "n", "n"]);
        assert!(config.has("DRM") && !config.has("DRM_ACCEL"));
        assert!(parse("").is_err() && parse("hello\n").is_err(), "nothing is not 'all off'");
    }

    #[test]
    fn of_this_release_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let set = |path: &str, bytes: &[u8]| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        };
        let root = Root::open(dir.path()).unwrap();
        let release = Ok("7.3.4".to_owned());
        set("boot/config-7.3.40", TEXT.as_bytes());
        set("boot/config-7.3", TEXT.as_bytes());
        assert_eq!(read(&root, &release).unwrap_err().why, Why::Missing);
        set("boot/config-7.3.4", TEXT.as_bytes());
        assert_eq!(read(&root, &release).unwrap().path, "/boot/config-7.3.4");
        set("proc/config.gz", &packed("CONFIG_DRM=y\n"));
        assert_eq!(read(&root, &release).unwrap().get("DRM"), "y", "the running one's own");
        set("proc/config.gz", b"\x1f\x8b no");
        assert!(matches!(read(&root, &release).unwrap_err().why, Why::Malformed(_)));
    }

    #[test]
    fn a_bomb_is_refused() {
        let much = "CONFIG_A=y\n".repeat((5 << 20) / 11);
        assert!(packed(&much).len() < 1 << 20);
        assert!(unpacked(&packed(&much)).unwrap_err().contains("longer than 4 MiB"));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            let _ = unpacked(&bytes);
            let _ = parse(&String::from_utf8_lossy(&bytes));
        }
    }
}
