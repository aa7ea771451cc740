//! The configuration file.

use super::*;
use crate::knobs::file::{Place, parse, read};
use crate::knobs::profile::models;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The settings of an environment, a command line and files.
fn with(vars: &[(&str, &str)], words: &[&str], files: &[(&str, &str)]) -> Knobs {
    let files: BTreeMap<&str, &str> = files.iter().copied().collect();
    let read =
        |path: &Path| Ok(files.get(path.to_str().unwrap()).map(|text| text.as_bytes().to_vec()));
    let words: Vec<_> = words.iter().map(OsString::from).collect();
    Knobs::from_parts(&env(vars), &words, &read)
}

const FILE: &str = "/f.yaml";
/// With one file, named by `ROCKET_CONFIG`.
fn file(vars: &[(&str, &str)], words: &[&str], text: &str) -> Knobs {
    let vars = [vars, &[("ROCKET_CONFIG", FILE)]].concat();
    with(&vars, words, &[(FILE, text)])
}

#[test]
fn where_it_lies() {
    let usual = |paths: &[&str]| Place::Usual(paths.iter().map(PathBuf::from).collect());
    for (vars, expected) in [
        (&[][..], usual(&["/etc/ggml-rocket/config.yaml"])),
        (
            &[("HOME", "/h")],
            usual(&["/h/.config/ggml-rocket/config.yaml", "/etc/ggml-rocket/config.yaml"]),
        ),
        (
            &[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x"), ("ROCKET_CONFIG", "")],
            usual(&["/x/ggml-rocket/config.yaml", "/etc/ggml-rocket/config.yaml"]),
        ),
        (
            &[("HOME", "/h"), ("XDG_CONFIG_HOME", "x")],
            usual(&["/h/.config/ggml-rocket/config.yaml", "/etc/ggml-rocket/config.yaml"]),
        ),
        (&[("HOME", "/h"), ("ROCKET_CONFIG", "a b.yaml")], Place::Named("a b.yaml".into())),
        (&[("HOME", "/h"), ("ROCKET_CONFIG", "none")], Place::Nowhere),
    ] {
        assert_eq!(Place::of(&env(vars)), expected, "{vars:?}");
    }
}

#[test]
fn the_first_that_is_there() {
    let user = "/h/.config/ggml-rocket/config.yaml";
    let system = "/etc/ggml-rocket/config.yaml";
    let (a, b) = ("settings: {min_m: 40}", "settings: {min_m: 50}");
    let home = [("HOME", "/h")];
    assert_eq!(with(&home, &[], &[(user, a), (system, b)]).min_m, 40);
    assert_eq!(with(&home, &[], &[(system, b)]).min_m, 50);
    let none = with(&home, &[], &[]);
    assert_eq!(none, knobs(&[]), "no file is no reason for a line");
    // A broken file is not passed over in silence for the next.
    let broken = with(&home, &[], &[(user, "settings: ["), (system, b)]);
    assert_eq!((broken.min_m, broken.warnings.len()), (32, 1));
    let off = with(&[("HOME", "/h"), ("ROCKET_CONFIG", "none")], &[], &[(user, a)]);
    assert_eq!(off, knobs(&[]));
    let lost = with(&[("HOME", "/h"), ("ROCKET_CONFIG", "/lost")], &[], &[(user, a)]);
    assert_eq!(lost.min_m, 32);
    assert_eq!(lost.warnings, ["ROCKET_CONFIG=/lost: there is no such file"]);
}

/// Each form of a value means what the same text in a variable means.
#[test]
fn values() {
    let text = "
settings:
  min_m: 40
  ROCKET_N_THREADS: 3
  cpu_affinity: [4, 5, '6-7']
  f16_resident: false
  quant_resident: true
  verify: yes
  stats: True
  log_level: debug
  report: /tmp/x.json
  wait_ms: ~
  device: sim
";
    let k = file(&[], &[], text);
    assert_eq!(k.warnings, [""; 0]);
    assert_eq!(k.notes, ["settings from /f.yaml"]);
    assert_eq!((k.min_m, k.n_threads, k.wait_ms), (40, 3, 8000));
    assert_eq!(k.affinity, Affinity::Cores(vec![4, 5, 6, 7]));
    assert_eq!((k.f16_resident, k.quant_resident), (Residency::Off, Residency::Auto));
    assert_eq!((k.verify, k.stats, k.log_level), (Verify::On, true, LogLevel::Debug));
    assert_eq!((k.report, k.device), (Some("/tmp/x.json".into()), Device::Sim));
}

#[test]
fn the_environment_wins_over_a_profile_over_settings() {
    let text = "
settings: {min_m: 40, n_threads: 2, wait_ms: 1000, dequant_threads: 2}
profiles:
  - {name: other, settings: {min_m: 99, wait_ms: 9999}}
  - {name: mine, settings: {min_m: 60, n_threads: 4, dequant_threads: 4}}
  - {model: 'a*.gguf', settings: {min_m: 50, n_threads: 3}}
  - {model: '*.GGUF', settings: {n_threads: 6, dequant_threads: 6}}
";
    let of = |vars: &[(&str, &str)], words: &[&str]| {
        let k = file(vars, words, text);
        assert_eq!(k.warnings, [""; 0]);
        (k.min_m, k.n_threads, k.wait_ms, k.dequant_threads, k.notes[0].clone())
    };
    let words = ["tool", "-m", "/m/a-Q4_K.gguf"];
    let from = "settings from /f.yaml".to_owned();
    assert_eq!(of(&[], &["tool"]), (40, 2, 1000, Some(2), from.clone()));
    let both = "a*.gguf (for a-Q4_K.gguf), *.GGUF (for a-Q4_K.gguf)";
    let by_model = format!("{from}, profile {both}");
    assert_eq!(of(&[], &words), (50, 6, 1000, Some(6), by_model), "a later one over an earlier");
    let mine = ("ROCKET_PROFILE", "mine");
    let by_name = format!("{from}, profile mine, {both}");
    assert_eq!(of(&[mine], &words), (60, 4, 1000, Some(4), by_name), "the named one over those");
    let own = [mine, ("ROCKET_MIN_M", "70"), ("ROCKET_WAIT_MS", ""), ("ROCKET_N_THREADS", "x")];
    let k = file(&own, &words, text);
    assert_eq!((k.min_m, k.wait_ms), (70, 1000), "an empty variable says nothing");
    assert_eq!((k.n_threads, k.warnings.len()), (5, 1), "a malformed one means the default");
}

#[test]
fn models_of_a_command_line() {
    for (words, expected) in [
        (&["llama-cli", "-m", "/a/b.gguf", "-p", "x"][..], &["b.gguf"][..]),
        (&["whisper-cli", "-m", "models/ggml-base.en.bin", "-f", "a.wav"], &["ggml-base.en.bin"]),
        (&["mtmd", "--model", "odd.name", "--mmproj", "mm.GGUF"], &["odd.name", "mm.GGUF"]),
        (&["bench", "-m", "a.gguf,b/c.gguf"], &["a.gguf", "c.gguf"]),
        (&["python", "run.py", "x.gguf", "x.gguf"], &["x.gguf"]),
        (&["self.bin", "-m"], &[]),
        (&["tool", "-m", "/"], &[]),
        (&[], &[]),
    ] {
        let words: Vec<_> = words.iter().map(OsString::from).collect();
        assert_eq!(models(&words), expected, "{words:?}");
    }
}

#[test]
fn what_is_not_known_is_named_with_its_place() {
    let text = "
setings: {}
settings: {minm: 1, warp: 9, config: x}
profiles:
  - {name: big, modell: x, settings: {ROCKET_MIN_N: 1}}
  - {settings: {}}
  - {name: odd, model: '[a', settings: {min_m: 7}}
";
    let k = file(&[("ROCKET_PROFILE", "bigg")], &["t", "-m", "x.gguf"], text);
    assert_eq!(
        k.warnings,
        [
            "/f.yaml: setings is not known; did you mean settings?; this place takes settings, \
             profiles",
            "/f.yaml: minm is not known; did you mean min_m?",
            "/f.yaml: warp is not known",
            "/f.yaml: config has no effect in a file; set ROCKET_CONFIG",
            "/f.yaml, profile big: modell is not known; did you mean model?; this place takes \
             name, model, settings",
            "/f.yaml, profile big: ROCKET_MIN_N is not known; did you mean ROCKET_MIN_M?",
            "/f.yaml, profile without a name: it has neither name nor model, so never applies",
            "/f.yaml, profile odd: \"[a\" is no pattern: Pattern syntax error near position 0: \
             invalid range pattern",
            "ROCKET_PROFILE=\"bigg\": /f.yaml has no such profile; did you mean big?",
        ]
    );
    let k =
        file(&[("ROCKET_PROFILE", "odd")], &[], "profiles: [{name: odd, settings: {min_m: 7}}]");
    let said = "ROCKET_MIN_M=\"7\" (/f.yaml, profile odd) is not in the range 8..1048576; using 8";
    assert_eq!(k.warnings, [said]);
    let k = knobs(&[("ROCKET_PROFILE", "odd")]);
    assert_eq!(k.warnings, ["ROCKET_PROFILE=\"odd\": there is no configuration file"]);
}

/// Malformed files: one line with the place, and nothing of the file.
#[test]
fn malformed_files() {
    // A thousand million values in a page of text.
    let level =
        |i: usize| format!("  k{i}: &k{i} [{}]\n", vec![format!("*k{}", i - 1); 9].join(","));
    let bomb = format!("settings:\n  k0: &k0 x\n{}", (1..10).map(level).collect::<String>());
    for (text, place) in [
        ("settings: {min_m: 40\nprofiles: []\n", "/f.yaml:2:"),
        ("settings:\n\tmin_m: 40\n", "/f.yaml:2:1"),
        ("settings:\n  min_m: 40\n  min_m: 50\n", "/f.yaml:"),
        ("settings: 5\n", "/f.yaml:1:11"),
        ("settings:\n  min_m: {a: 1}\n", "/f.yaml:2:10"),
        ("- a\n", "/f.yaml:1:1"),
        ("settings: {min_m: 40}\nprofiles: {}\n", "/f.yaml:2:11"),
        ("settings: {min_m: 40}\n---\nsettings: {}\n", "/f.yaml"),
        ("settings: {min_m: &a [*a]}\n", "/f.yaml"),
        (&bomb, "/f.yaml"),
        ("\u{0}", "/f.yaml"),
    ] {
        let k = file(&[], &[], text);
        assert_eq!((k.min_m, k.warnings.len(), k.notes.len()), (32, 1, 0), "{text:?} {k:?}");
        let line = &k.warnings[0];
        println!("{line}");
        assert!(line.starts_with(place) && line.ends_with("; the file is ignored"), "{line}");
    }
    for empty in ["", "\n", "# nothing yet\n", "---\n", "{}", "settings:\nprofiles:\n", "~"] {
        let k = file(&[], &[], empty);
        assert_eq!((k.warnings.len(), k.notes.len()), (0, 1), "{empty:?} {:?}", k.warnings);
    }
}

/// What the file system may hold instead of a file.
#[test]
fn reading() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.yaml");
    assert!(read(&path).unwrap().is_none());
    assert!(read(&path.join("below")).unwrap().is_none());
    std::fs::write(&path, "x").unwrap();
    assert_eq!(read(&path).unwrap(), Some(b"x".to_vec()));
    assert!(read(&path.join("below")).unwrap().is_none(), "a folder that is a file");
    assert!(read(dir.path()).unwrap_err().to_string().contains("regular"));
    std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(read(&path).unwrap_err().to_string().contains("larger"));
    let fail = |_: &Path| Err(io::Error::from(io::ErrorKind::PermissionDenied));
    let k = Knobs::from_parts(&env(&[("ROCKET_CONFIG", "/x")]), &[], &fail);
    assert_eq!(k.warnings, ["/x: permission denied; the file is ignored"]);
}

proptest! {
    /// No bytes whatsoever panic, and a file that cannot be read is one line.
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let read = |_: &Path| Ok(Some(bytes.clone()));
        let k = Knobs::from_parts(&env(&[("ROCKET_CONFIG", FILE)]), &[], &read);
        if parse(&bytes).is_err() {
            prop_assert_eq!((k.warnings.len(), k.min_m), (1, 32));
        }
    }

    /// The same for what is nearly YAML.
    #[test]
    fn any_text_of_yaml(parts in proptest::collection::vec(
        prop::sample::select(&["settings", "profiles", "name", "model", "min_m", ": ", ":", "- ",
            "[", "]", "{", "}", ",", "\n", "  ", "\t", "'", "\"", "&a ", "*a", "!!int ", "!x ", "|",
            "---\n", "...\n", "40", "-1", "1e400", ".nan", "~", "#", "*", "<<", "?", "é", "\u{0}"][..]),
        0..60,
    )) {
        let text = parts.concat();
        let k = file(&[], &["t", "-m", "min_m.gguf"], &text);
        prop_assert!(k.min_m >= 8 && k.min_m_quant >= k.min_m);
    }

    /// A value in a file means what it means in a variable.
    #[test]
    fn a_file_is_an_environment(i in 0..KNOBS.len(), text in "[a-z0-9,-]{0,8}") {
        let knob = &KNOBS[i];
        prop_assume!(!["ROCKET_CONFIG", "ROCKET_PROFILE"].contains(&knob.name));
        let mut a = file(&[], &[], &format!("settings: {{{}: '{text}'}}", knob.key()));
        let mut b = knobs(&[(knob.name, &text)]);
        for w in &mut b.warnings {
            *w = w.replace("(environment)", "(/f.yaml)");
        }
        a.notes.clear();
        prop_assert_eq!(a, b);
    }
}
