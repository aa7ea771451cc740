mod docs;
mod file;

use super::suggest;
use super::value::{Bad, parse};
use super::*;
use crate::route::Wanted;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn env(vars: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    vars.iter().map(|(k, v)| (OsString::from(k), OsString::from(v))).collect()
}

fn no_file(_: &std::path::Path) -> std::io::Result<Option<Vec<u8>>> {
    Ok(None)
}

fn knobs(vars: &[(&str, &str)]) -> Knobs {
    Knobs::from_parts(&env(vars), &[], &no_file)
}

/// The values with nothing set, as the README, the behaviour notes and this project's own choices
/// have them.
#[test]
fn defaults() {
    let k = knobs(&[]);
    let expected = Knobs {
        experts: ExpertsPolicy {
            mode: ExpertsMode::Auto,
            native: true,
            min_tokens: 512,
            min_rows: 64,
            min_work: 340_000_000,
            group: None,
        },
        moe_cache: Budget::Auto,
        moe_wait: false,
        packed: Packed::On,
        packed_bytes: None,
        device: Device::Real,
        min_m: 32,
        min_m_quant: 128,
        attention: AttentionPolicy { on: true, min_kv: 1024, min_tokens: 16, unmasked: false },
        n_threads: 5,
        cache: Budget::Auto,
        reserve: None,
        min_m_given: false,
        quant_resident: Residency::Auto,
        f16_resident: Residency::Auto,
        no_prepack: false,
        fuse: true,
        wanted: Wanted::default(),
        quant_int8: None,
        dequant_threads: None,
        affinity: Affinity::Auto,
        verify: Verify::Auto,
        calibrate: Calibrate::Auto,
        abi_adapt: false,
        stats: false,
        counters: Counters::On,
        report: None,
        log_stderr: false,
        log_level: LogLevel::Info,
        warnings: vec![],
        notes: vec![],
    };
    assert_eq!(k, expected);
    assert_eq!(Knobs::read(|_| None), expected);
}

#[test]
fn set_but_empty_is_unset() {
    for empty in ["", " "] {
        let presence = |k: &&Knob| k.kind != Kind::Presence;
        let all: Vec<_> = KNOBS.iter().filter(presence).map(|k| (k.name, empty)).collect();
        assert!(all.len() > 60);
        assert_eq!(knobs(&all), knobs(&[]), "{empty:?}");
    }
}

/// The diagnostics that are on by being there (ggml-plugin-behaviour 10).
#[test]
fn presence_is_enough_for_these() {
    let presence = KNOBS.iter().filter(|k| k.kind == Kind::Presence).map(|k| k.name);
    let names: BTreeSet<_> = presence.collect();
    let expected = ["AB", "DEBUG", "DEBUG_GRAPH", "DUMP", "FA_TIMING", "MM_PROFILE"];
    assert_eq!(names, expected.iter().map(|n| format!("ROCKET_{n}").leak() as &str).collect());
    assert_eq!(knobs(&[("ROCKET_DEBUG", "")]).log_level, LogLevel::Debug);
    let named = knobs(&[("ROCKET_DEBUG", "1"), ("ROCKET_LOG_LEVEL", "error")]);
    assert_eq!(named.log_level, LogLevel::Error);
}

/// One table of texts for each numeric field: what is taken, and whether a line says so.
#[test]
fn numbers() {
    let min_m = |k: &Knobs| k.min_m as u64;
    let quant = |k: &Knobs| k.min_m_quant as u64;
    let threads = |k: &Knobs| k.n_threads as u64;
    let decode = |k: &Knobs| k.dequant_threads.map_or(0, |n| n as u64);
    type Field<'a> = &'a dyn Fn(&Knobs) -> u64;
    type Row<'a> = (&'a str, Field<'a>, &'a [(&'a str, u64, bool)]);
    let rows: &[Row<'_>] = &[
        (
            "ROCKET_MIN_M",
            &min_m,
            &[
                ("32", 32, false),
                (" 32 ", 32, false),
                ("+32", 32, false),
                ("8", 8, false),
                ("7", 8, true),
                ("4", 8, true),
                ("-1", 8, true),
                ("99999999999999999999999", 1 << 20, true),
                ("9999999999999999999999999999999999999999999999999", 1 << 20, true),
                ("-9999999999999999999999999999999999999999999999999", 8, true),
                ("many", 32, true),
                ("0x20", 32, true),
                ("32.0", 32, true),
                ("-", 32, true),
            ],
        ),
        ("ROCKET_MIN_M_QUANT", &quant, &[("512", 512, false), ("8", 32, true), ("x", 128, true)]),
        ("ROCKET_N_THREADS", &threads, &[("8", 8, false), ("9", 8, true), ("0", 1, true)]),
        (
            "ROCKET_DEQUANT_THREADS",
            &decode,
            &[("1", 1, false), ("auto", 0, false), ("0", 1, true), ("big", 0, true)],
        ),
    ];
    for (name, field, texts) in rows {
        for (text, taken, warns) in *texts {
            let k = knobs(&[(name, text)]);
            assert_eq!(
                (field(&k), k.warnings.len()),
                (*taken, usize::from(*warns)),
                "{name}={text}"
            );
            for w in &k.warnings {
                for part in [*name, text, "environment"] {
                    assert!(w.contains(part), "{w:?} lacks {part}");
                }
            }
        }
    }
}

#[test]
fn a_warning_names_all_there_is_to_know() {
    assert_eq!(
        knobs(&[("ROCKET_MIN_M", "7")]).warnings,
        [r#"ROCKET_MIN_M="7" (environment) is not in the range 8..1048576; using 8"#]
    );
    assert_eq!(
        knobs(&[("ROCKET_ABI", "yes please")]).warnings,
        [r#"ROCKET_ABI="yes please" (environment) is not in the range adapt; using none"#]
    );
    assert_eq!(
        knobs(&[("ROCKET_TRACE", "1")]).warnings,
        [r#"ROCKET_TRACE="1" (environment) has no effect yet (later: this diagnostic)"#]
    );
    assert_eq!(
        knobs(&[("ROCKET_RK3576_NCAL", "x")]).warnings,
        [
            "ROCKET_RK3576_NCAL=\"x\" (environment) is not in the range 1..1000, and it has no effect \
          yet (later: the RK3576)"
        ]
    );
}

#[test]
fn quantized_products_never_start_below_the_others() {
    let k = knobs(&[("ROCKET_MIN_M", "200")]);
    assert_eq!((k.min_m_quant, k.warnings.len()), (200, 0));
    let k = knobs(&[("ROCKET_MIN_M", "200"), ("ROCKET_MIN_M_QUANT", "100")]);
    assert_eq!((k.min_m_quant, k.warnings.len()), (200, 1));
    assert!(k.warnings[0].contains("ROCKET_MIN_M_QUANT") && k.warnings[0].contains("using 200"));
}

#[test]
fn formats_of_products() {
    let wanted = |vars: &[(&str, &str)]| knobs(vars).wanted;
    let none = Wanted::default();
    assert_eq!(wanted(&[]), none);
    assert_eq!(wanted(&[("ROCKET_BF16", "1")]), Wanted { bf16: true, ..none });
    assert_eq!(wanted(&[("ROCKET_INT8_HADAMARD", "1")]), none, "of a format that is off");
    let int8 = [("ROCKET_INT8", "1"), ("ROCKET_INT8_HADAMARD", "1")];
    assert_eq!(wanted(&int8[..1]), Wanted { int8: Some(false), ..none });
    assert_eq!(wanted(&int8), Wanted { int8: Some(true), ..none });
    let int4 = [("ROCKET_INT4", "1"), ("ROCKET_INT4_GROUP", "64"), ("ROCKET_INT4_HADAMARD", "0")];
    assert_eq!(wanted(&int4[..1]), Wanted { int4: Some((128, true)), ..none });
    assert_eq!(wanted(&int4), Wanted { int4: Some((64, false)), ..none });
    assert!(!knobs(&[("ROCKET_NO_FUSE", "1")]).fuse);
    let native = |word| knobs(&[("ROCKET_QUANT_INT8", word)]).quant_int8;
    assert_eq!(["auto", "0", "1"].map(native), [None, Some(false), Some(true)]);
}

#[test]
fn budgets() {
    let cache = |vars: &[(&str, &str)]| knobs(vars).cache;
    assert_eq!(cache(&[("ROCKET_CACHE_MB", "0")]), Budget::Unlimited);
    assert_eq!(cache(&[("ROCKET_CACHE_MB", "3")]), Budget::Bytes(3 << 20));
    let reserve = ("ROCKET_QUANT_RESIDENT_RESERVE_MB", "512");
    assert_eq!((cache(&[reserve]), knobs(&[reserve]).reserve), (Budget::Auto, Some(512 << 20)));
    let both = knobs(&[reserve, ("ROCKET_CACHE_MB", "3")]);
    assert_eq!((both.cache, both.reserve), (Budget::Bytes(3 << 20), Some(512 << 20)));
    let auto = ("ROCKET_QUANT_RESIDENT_RESERVE_MB", "auto");
    assert_eq!((cache(&[auto]), knobs(&[auto]).reserve), (Budget::Auto, None));
    for (text, expected, warns) in [
        ("auto", Residency::Auto, 0),
        ("AUTO", Residency::Auto, 0),
        ("1", Residency::Auto, 0),
        ("true", Residency::Auto, 0),
        ("0", Residency::Off, 0),
        ("off", Residency::Off, 0),
        ("2", Residency::Bytes(2 << 20), 0),
        ("1000", Residency::Bytes(1000 << 20), 0),
        ("-5", Residency::Off, 1),
        ("1GB", Residency::Auto, 1),
    ] {
        let k = knobs(&[("ROCKET_QUANT_RESIDENT", text)]);
        assert_eq!((k.quant_resident, k.warnings.len()), (expected, warns), "{text}");
        assert_eq!(k.f16_resident, Residency::Auto);
        let k = knobs(&[("ROCKET_F16_RESIDENT", text)]);
        assert_eq!((k.f16_resident, k.warnings.len()), (expected, warns), "{text}");
        assert_eq!(k.quant_resident, Residency::Auto);
    }
}

#[test]
fn flags_and_words() {
    for (text, on, warns) in [
        ("1", true, 0),
        ("ON", true, 0),
        ("yes", true, 0),
        ("True", true, 0),
        ("0", false, 0),
        ("no", false, 0),
        ("off", false, 0),
        ("false", false, 0),
    ] {
        for name in ["STATS", "LOG_STDERR", "NO_PREPACK"] {
            let k = knobs(&[(&format!("ROCKET_{name}"), text)]);
            let got = [k.stats, k.log_stderr, k.no_prepack];
            let mut expected = [false; 3];
            let at = ["STATS", "LOG_STDERR", "NO_PREPACK"];
            expected[at.iter().position(|n| *n == name).unwrap()] = on;
            assert_eq!((got, k.warnings.len()), (expected, warns), "{name}={text}");
        }
    }

    for (text, expected) in [
        ("", Counters::On),
        ("1", Counters::On),
        ("on", Counters::On),
        ("0", Counters::Off),
        ("Off", Counters::Off),
        ("/x/y", Counters::In("/x/y".into())),
    ] {
        let k = knobs(&[("ROCKET_COUNTERS", text)]);
        assert_eq!((k.counters, k.warnings.len()), (expected, 0), "{text}");
    }

    for (text, verify, calibrate) in [
        ("auto", Verify::Auto, Calibrate::Auto),
        ("0", Verify::Off, Calibrate::Off),
        ("off", Verify::Off, Calibrate::Off),
        ("1", Verify::On, Calibrate::On),
        ("true", Verify::On, Calibrate::On),
    ] {
        let k = knobs(&[("ROCKET_VERIFY", text), ("ROCKET_CALIBRATE", text)]);
        assert_eq!((k.verify, k.calibrate), (verify, calibrate), "{text}");
        assert!(k.warnings.is_empty());
    }
    assert_eq!(knobs(&[("ROCKET_CALIBRATE", "Force")]).calibrate, Calibrate::Force);
    assert_eq!(knobs(&[("ROCKET_VERIFY", "force")]).warnings.len(), 1);
    assert!(knobs(&[("ROCKET_ABI", "adapt")]).abi_adapt);
    for (text, level) in [
        ("error", LogLevel::Error),
        ("warn", LogLevel::Warn),
        ("INFO", LogLevel::Info),
        ("debug", LogLevel::Debug),
        ("loud", LogLevel::Info),
    ] {
        assert_eq!(knobs(&[("ROCKET_LOG_LEVEL", text)]).log_level, level);
    }
}

#[test]
fn devices() {
    for (text, device) in [
        ("sim", Device::Sim),
        (" SIM ", Device::Sim),
        ("none", Device::None),
        ("gpu", Device::Unknown("gpu".into())),
    ] {
        let k = knobs(&[("ROCKET_DEVICE", text)]);
        // An unknown word has its own sentence where the board is looked for.
        assert_eq!((k.device, k.warnings.len()), (device, 0), "{text}");
    }
}

#[test]
fn cores() {
    for (text, expected) in [
        ("4-7", Some(vec![4, 5, 6, 7])),
        ("7, 4,5-6,4", Some(vec![4, 5, 6, 7])),
        ("0", Some(vec![0])),
        ("7-4", None),
        ("4-", None),
        ("1024", None),
        ("4;5", None),
        (",", None),
    ] {
        let k = knobs(&[("ROCKET_CPU_AFFINITY", text)]);
        let warns = usize::from(expected.is_none());
        let expected = expected.map_or(Affinity::Auto, Affinity::Cores);
        assert_eq!((k.affinity, k.warnings.len()), (expected, warns), "{text}");
    }
    for text in ["off", "no"] {
        assert_eq!(knobs(&[("ROCKET_CPU_AFFINITY", text)]).affinity, Affinity::Off);
    }
}

#[test]
fn unknown_names() {
    for (name, meant) in [
        ("ROCKET_MINM", "; did you mean ROCKET_MIN_M?"),
        ("ROCKET_MIN_N", "; did you mean ROCKET_MIN_M?"),
        ("ROCKET_NTHREADS", "; did you mean ROCKET_N_THREADS?"),
        ("ROCKET_QUANT_RESIDNET", "; did you mean ROCKET_QUANT_RESIDENT?"),
        ("ROCKET_STAT", "; did you mean ROCKET_STATS?"),
        ("ROCKET_stats", "; did you mean ROCKET_STATS?"),
        ("ROCKET_WARP_FACTOR", ""),
        ("ROCKET_", ""),
    ] {
        let k = knobs(&[(name, "1")]);
        assert_eq!(k.warnings, [format!("{name} is not known{meant}")]);
    }
    // Two names for two settings of one letter each would be a suggestion from nowhere.
    assert_eq!(knobs(&[("ROCKET_X", "1")]).warnings, ["ROCKET_X is not known"]);
    let others = [
        "ROCKET_SIM_BOARD",
        "ROCKET_TEST_NODE",
        "ROCKET_CACHE",
        "ROCKET_VECTORS",
        "ROCKET_HOST_SUITE",
        "ROCKETSHIP",
        "MIN_M",
    ];
    assert_eq!(knobs(&others.map(|n| (n, "1"))), knobs(&[]));
    assert_eq!(knobs(&[("ROCKET_CACHES", "1"), ("ROCKET_VECTORS_", "1")]).warnings.len(), 2);
}

/// Whatever this repository's scripts export reaches the plugin of a host they start: none of it
/// may be taken for a misspelt setting.
#[test]
fn variables_of_the_scripts_are_known() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let patterns = ["scripts/*", "scripts/lib/*", ".ci/*"].map(|p| format!("{root}/{p}"));
    let files = patterns.iter().flat_map(|p| glob::glob(p).unwrap()).flatten();
    let text: String = files.filter_map(|f| std::fs::read_to_string(f).ok()).collect();
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let names: std::collections::BTreeSet<&str> =
        text.split(word).filter(|w| w.starts_with("ROCKET_") && *w != "ROCKET_").collect();
    assert!(names.contains("ROCKET_CACHE") && names.contains("ROCKET_MUTATE_MOST"), "{names:?}");
    for name in names {
        let warnings = knobs(&[(name, "1")]).warnings;
        assert!(!warnings.iter().any(|w| w.contains("is not known")), "{name}: {warnings:?}");
    }
}

/// Each knob has a default of its own kind in its own range, a help of one sentence, and a name
/// and key that lead back to it.
#[test]
fn the_table_is_consistent() {
    let mut names = BTreeSet::new();
    for k in KNOBS {
        assert!(names.insert(k.name), "{} twice", k.name);
        assert!(k.name.starts_with(PREFIX) && !k.help.is_empty() && !k.help.ends_with('.'));
        assert!(!k.help.contains('|') && !k.kind.range().contains('|'), "{}", k.name);
        let default = parse(k, k.default.as_ref()).unwrap();
        let needs = matches!(k.kind, Kind::IntOr { .. } | Kind::Real { .. } | Kind::Flag);
        assert_eq!(default.is_some(), !k.default.is_empty() || k.kind == Kind::Presence);
        assert!(default.is_some() || !needs, "{}", k.name);
        assert_eq!(suggest::find(&k.key()), Some(k));
        assert_eq!(suggest::find(k.name), Some(k));
        assert!(!suggest::is_elsewhere(k.name), "{}", k.name);
    }
}

/// Every name of the reference's tables (ggml-plugin-behaviour 10).
#[test]
fn no_name_of_the_reference_is_missing() {
    let words = "KACC NO_KACC REUSE MM_ASYM N_THREADS CPU_AFFINITY WAIT_MS LOG_STDERR LOG_LEVEL \
        MIN_M MIN_M_QUANT DEQUANT_THREADS NO_FUSE NO_STREAM NO_PREPACK FORCE_PREPACK BF16 INT8 \
        INT8_HADAMARD INT8_RESIDENT INT4 INT4_RESIDENT INT4_GROUP INT4_HADAMARD QUANT_RESIDENT \
        F16_RESIDENT QUANT_RESIDENT_RESERVE_MB CACHE_MB INT8_CACHE_MB INT4_CACHE_MB BF16_CACHE_MB \
        DEQUANT_CACHE_MB PREPACK_MADVISE MOE MOE_NATIVE MOE_MIN_TOKENS MOE_MIN_WORK MOE_M_BUCKET \
        MOE_GROUP MOE_CACHE_MB MOE_CHARGE_ALL_SOURCE MOE_COSINE FLASH_ATTN FLASH_ATTN_MIN_KV \
        FLASH_ATTN_MIN_T FLASH_ATTN_UNMASKED FLASH_ATTN_NO_CTX FA_CHAIN FA_QSCALE FA_THREADS \
        ATTN_HOST_SOFTMAX RK3576_NCAL RK3576_CALSAFE RK3576_BOOTMARGIN RK3576_AROW RK3576_KSPLIT \
        RK3576_KCHUNK RK3576_FORCESPLIT RK3576_WSA RK3576_WDEV RK3576_CALSCAN RK3576_CALROWS \
        RK3576_CALMAP RK3576_PROF_CVT16 MM_PROFILE FA_TIMING FA_CHECKSUM FA_DUMP_OP FA_DUMP_DIR \
        DEBUG DEBUG_GRAPH VERIFY CPU_FORWARD TRACE AB DUMP";
    let ours = "DEVICE STATS COUNTERS REPORT CONFIG PROFILE CALIBRATE ABI QUANT_INT8 MOE_WAIT \
        PACKED_DIR PACKED_MB";
    let split = |s: &'static str| s.split_whitespace().map(|w| format!("ROCKET_{w}"));
    let expected: BTreeSet<_> = split(words).chain(split(ours)).collect();
    let got: BTreeSet<_> = KNOBS.iter().map(|k| k.name.to_owned()).collect();
    assert_eq!(got, expected);
    // Whatever comes later is answered, once, and changes nothing else.
    for k in KNOBS.iter().filter(|k| matches!(k.status, Status::Later(_))) {
        let mut got = knobs(&[(k.name, "1")]);
        assert_eq!(got.warnings.len(), 1, "{}", k.name);
        assert!(got.warnings[0].contains("has no effect yet"));
        got.warnings.clear();
        assert_eq!(got, knobs(&[]), "{}", k.name);
    }
}

fn in_range(knob: &Knob, value: &Value) -> bool {
    match (knob.kind, value) {
        (Kind::Int { min, max }, Value::Int(n)) => (min..=max).contains(n),
        (Kind::IntOr { min, max, .. }, Value::Int(n)) => (min..=max).contains(n),
        (Kind::IntOr { word, .. }, Value::Word(w)) => *w == word,
        (Kind::Real { min, max }, Value::Real(x)) => (min..=max).contains(x),
        (Kind::Flag | Kind::Presence, Value::Flag(_)) => true,
        (Kind::Word(words), Value::Word(w)) => words.contains(w),
        (Kind::Residency, Value::Int(n)) => *n <= 1 << 20,
        (Kind::Residency, Value::Word(w)) => *w == "auto",
        (Kind::Cores, Value::Word(w)) => ["auto", "off"].contains(w),
        (Kind::Cores, Value::Cores(c)) => {
            !c.is_empty() && c.is_sorted_by(|a, b| a < b) && c.iter().all(|&n| n < 1024)
        }
        (Kind::Folder, Value::Flag(_)) => true,
        (Kind::Path | Kind::Folder, Value::Path(p)) => !p.as_os_str().is_empty(),
        (Kind::Name, Value::Name(n)) => !n.is_empty(),
        _ => false,
    }
}

/// Text near what knobs take, and anything else.
fn texts() -> impl Strategy<Value = OsString> {
    use std::os::unix::ffi::OsStringExt;
    prop_oneof![
        any::<i128>().prop_map(|n| n.to_string().into()),
        (-9i32..2000).prop_map(|n| n.to_string().into()),
        any::<f64>().prop_map(|x| x.to_string().into()),
        "(auto|off|on|0|1|adapt|force|sim|[0-9,-]{0,9}) ?".prop_map(OsString::from),
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(OsString::from_vec),
    ]
}

proptest! {
    /// No value whatsoever panics, and what is taken is in range.
    #[test]
    fn any_text(text in texts()) {
        for knob in KNOBS {
            match parse(knob, &text) {
                Ok(Some(v)) | Err(Bad::Clamped(v)) => {
                    prop_assert!(in_range(knob, &v), "{} {text:?} {v:?}", knob.name);
                    // What is printed as used can be written again.
                    if !matches!(knob.kind, Kind::Path | Kind::Folder | Kind::Name) {
                        prop_assert_eq!(parse(knob, v.text().as_ref()), Ok(Some(v)));
                    }
                }
                Ok(None) | Err(Bad::Malformed) => {}
            }
        }
    }

    /// The same for a whole environment: at most one line for each variable, each with its name.
    #[test]
    fn any_environment(texts in proptest::collection::vec((0..KNOBS.len(), texts()), 0..12)) {
        let vars: std::collections::BTreeMap<OsString, OsString> =
            texts.into_iter().map(|(i, t)| (KNOBS[i].name.into(), t)).collect();
        let vars: Vec<_> = vars.into_iter().collect();
        let k = Knobs::from_parts(&vars, &[], &no_file);
        prop_assert!((8..=1 << 20).contains(&k.min_m) && k.min_m_quant >= k.min_m);
        prop_assert!((1..=8).contains(&k.n_threads));
        for (name, _) in &vars {
            let name = format!("{}=", name.to_string_lossy());
            let lines = k.warnings.iter().filter(|w| w.starts_with(&name)).count();
            prop_assert!(lines <= 1 || name == "ROCKET_MIN_M_QUANT=", "{:?}", k.warnings);
        }
        prop_assert!(k.warnings.len() <= vars.len() + 1);
    }
}
