//! Processes that end in every way, and what is said of them. Those of `rocketctl/load-test` load real libraries.

use super::chain::{findings, merged};
use super::run::{End, Ended, watch};
use crate::doctor::finding::{Finding, Report, Status};
use crate::doctor::tests::well_formed;
use proptest::prelude::*;
use std::process::Command;
use std::time::{Duration, Instant};

/// What a shell script says and how it ends.
fn script(text: &str, wrapped: bool) -> Ended {
    let mut c = Command::new("sh");
    c.args(["-c", text]);
    watch(c, Duration::from_millis(700), wrapped, "in a test".into()).unwrap()
}

fn report(all: Vec<Finding>) -> Report {
    let report = super::report(all, "/opt/p.so", "/opt/a host");
    well_formed(&report);
    report
}

/// The one finding that fails.
fn failing(ended: &Ended) -> Finding {
    let report = report(findings(ended));
    let bad: Vec<&Finding> = report.findings.iter().filter(|f| f.needs_action()).collect();
    assert_eq!(bad.len(), 1, "one cause, one finding: {bad:?}");
    assert_eq!(report.exit, 1);
    bad[0].clone()
}

/// Lines of a run until a step, which is begun.
fn until(step: &str) -> String {
    let lines = [
        ("libraries", r#""version":"ggml 1""#),
        ("backends", r#""registered":["CPU"],"extra":["CPU_REPACK"]"#),
        (
            "interface",
            r#""generation":{"name":"B2","era":"2026","api":2},"supported":["A1/A2","C"],"host_api":2"#,
        ),
        ("open", r#""x":0"#),
        ("score", r#""score":1"#),
        ("init", r#""api":2,"name":"ROCKET""#),
        ("register", r#""after":["CPU","ROCKET"]"#),
        ("devices", r#""devices":[{"name":"ROCKET","description":"NPU","accelerator":true}]"#),
        ("end", r#""x":0"#),
    ];
    let mut text = String::new();
    for (name, words) in lines {
        text += &format!("echo '{{\"step\":\"{name}\",\"status\":\"begin\"}}'\n");
        if name == step {
            break;
        }
        text += &format!("echo '{{\"step\":\"{name}\",\"status\":\"ok\",{words}}}'\n");
    }
    text
}

/// A step that fails, with these words.
fn fails(step: &str, words: &str) -> Ended {
    script(
        &(until(step) + &format!("echo '{{\"step\":\"{step}\",\"status\":\"fail\",{words}}}'")),
        false,
    )
}

#[test]
fn a_plugin_that_loads() {
    let all = report(findings(&script(&until(""), false)));
    assert_eq!((all.exit, all.findings.len()), (0, 8), "{all:?}");
    assert!(all.verdict.ends_with("loads in this host"));
    let title = |id: &str| all.findings.iter().find(|f| f.id == id).unwrap().title.clone();
    assert!(
        title("load.interface").starts_with(
            "host generation B2 (API 2; 2026), this suite's plugin supports A1/A2 to C"
        )
    );
    assert!(title("load.backends").contains("go to CPU_REPACK"));
    assert_eq!(title("load.devices"), "ROCKET (NPU)");
}

/// Crash, abort, exit and hang, at any step: which, and where.
#[test]
fn processes_that_are_ended() {
    for (step, end, words) in [
        ("open", "kill -ILL $$", "SIGILL while the plugin was opened"),
        ("open", "kill -ABRT $$", "SIGABRT while the plugin was opened"),
        ("init", "kill -SEGV $$", "SIGSEGV in ggml_backend_init"),
        ("score", "exit 3", "left with status 3 in ggml_backend_score"),
        ("backends", "kill -BUS $$", "SIGBUS while the host loaded"),
        ("libraries", "exit 127", "status 127 while the host's libraries"),
        ("end", "kill -SEGV $$", "SIGSEGV when the process ended"),
        ("open", "sleep 60", "hung while the plugin was opened"),
    ] {
        let ended = script(&format!("{}echo 'last words' >&2\n{end}", until(step)), false);
        let f = failing(&ended);
        assert!(f.title.contains(words), "{words}: {f:?}");
        assert!(f.evidence.iter().any(|e| e.value == "last words"), "{f:?}");
    }
    // What bubblewrap ran: it ends with 128 and the signal.
    let wrapped = script(&(until("open") + "exit 132"), true);
    assert_eq!((wrapped.end, script("exit 132", false).end), (End::Signal(4), End::Status(132)));
    assert!(failing(&wrapped).title.contains("SIGILL"));
}

/// Neither a child that stays behind nor a flood of words keeps rocketctl.
#[test]
fn processes_that_do_not_let_go() {
    let begun = Instant::now();
    let hung = script("sleep 60 & sleep 60", false);
    assert!(matches!(hung.end, End::Late(_)));
    let left = script("sleep 60 & exit 0", false);
    assert_eq!(left.end, End::Status(0));
    let flood = script("yes >&2 & yes & sleep 60", false);
    assert!(flood.said.len() < 2 << 20 && flood.errors.len() < 2 << 20);
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
}

/// A12: both sides' numbers; and the reasons of other refusals.
#[test]
fn refusals() {
    let api = failing(&fails("init", r#""api":1,"null":false"#));
    assert_eq!(api.title, "host API 2, plugin API 1");
    assert!(api.cause.contains("generation B2"), "{api:?}");
    let log =
        r#"echo '{"log":"18 slots, not known","level":4}'; echo '{"log":"chatter","level":2}';"#;
    let refuses = fails("init", r#""api":null,"null":true"#);
    let text = String::from_utf8(refuses.said).unwrap();
    let refuses = script(&format!("{log} echo '{}'", text.replace('\n', "'\necho '")), false);
    let f = failing(&refuses);
    assert_eq!(f.title, "the plugin refuses this host");
    assert_eq!(f.evidence.len(), 1, "warnings and errors alone: {f:?}");
    assert_eq!(f.evidence[0].value, "18 slots, not known");
    let open = failing(&fails("open", r#""why":"undefined symbol: x""#));
    assert!(open.id == "load.open" && open.evidence[0].value.contains("undefined symbol: x"));
    assert!(failing(&fails("score", r#""score":0"#)).title.contains("rates itself 0"));
    let none = fails("devices", r#""devices":[]"#);
    assert_eq!(failing(&none).title, "the plugin is loaded and has no device");
    assert!(report(findings(&none)).verdict.ends_with("finds no NPU"));
    assert_eq!(failing(&none).fix[0].run, "sudo rocketctl setup");
    // Another plugin in the same host; another host where it is that.
    let installed = "/usr/local/lib/ggml-rocket/libggml-rocket.so";
    let again = format!("rocketctl load-test {installed} --host '/opt/a host'");
    assert_eq!(open.fix[0].verify, again);
    let host = failing(&fails("libraries", r#""why":"libomp.so.5: cannot open""#));
    assert_eq!(host.fix[0].verify, "rocketctl load-test /opt/p.so --host build/bin");
    let gpu = until("devices")
        + r#"echo '{"step":"devices","status":"ok","devices":[{"name":"ROCKET","accelerator":false}]}'; echo '{"step":"end","status":"ok"}'"#;
    assert_eq!(failing(&script(&gpu, false)).status, Status::Warn);
}

/// What files say and what was seen are one finding; what was seen wins.
#[test]
fn files_and_what_was_seen() {
    let seen = |f: Finding| f.seen("/x", "y").fix("true", "true", "none needed");
    let glibc = || seen(Finding::fail("plugin.glibc", "needs GLIBC_2.99").cause("newer"));
    let refused = findings(&fails("open", r#""why":"GLIBC_2.99 not found""#));
    let all = report(merged(vec![glibc()], refused.clone()));
    let fails: Vec<&Finding> = all.findings.iter().filter(|f| f.status == Status::Fail).collect();
    assert_eq!((fails.len(), fails[0].id), (1, "plugin.glibc"), "{all:?}");
    assert!(fails[0].evidence.iter().any(|e| e.value.contains("GLIBC_2.99 not found")));
    let loaded = report(merged(vec![glibc()], findings(&script(&until(""), false))));
    assert_eq!(loaded.exit, 0, "{loaded:?}");
    let deaf = Finding::fail("host.dynamic", "llama-cli ignores GGML_BACKEND_PATH").cause("linked");
    let deaf = seen(deaf);
    let deaf = report(merged(vec![deaf], findings(&script(&until(""), false))));
    assert!(deaf.exit == 1 && deaf.verdict.starts_with("this host does not use"), "{deaf:?}");
}

proptest! {
    /// Whatever the process says, each step has a finding, and the rules hold.
    #[test]
    fn any_words(
        said in proptest::collection::vec(prop_oneof![
            Just(r#"{"step":"open","status":"ok"}"#.to_owned()),
            Just(r#"{"step":"init","status":"fail","api":-1}"#.to_owned()),
            Just(r#"{"step":"devices","status":"ok"}"#.to_owned()),
            Just(r#"{"step":"interface","status":"begin","generation":3}"#.to_owned()),
            ".{0,40}",
        ], 0..12),
        status in 0..4,
    ) {
        let ended = Ended {
            end: if status == 3 { End::Signal(999) } else { End::Status(status) },
            said: said.join("\n").into_bytes(),
            errors: said.concat(),
            way: "in a test".into(),
        };
        let all = findings(&ended);
        prop_assert_eq!(all.len(), 8);
        let report = report(all);
        let fine = report.findings.iter().filter(|f| matches!(f.status, Status::Ok | Status::Note)).count();
        prop_assert!(report.exit != 0 || fine == 8, "{:?}", report);
    }

    #[test]
    fn any_bytes(data in proptest::collection::vec(any::<u8>(), 0..300)) {
        crate::fuzz::load_test(&data);
        crate::fuzz::elf(&data);
        crate::fuzz::ld_so_conf(&data);
    }
}
