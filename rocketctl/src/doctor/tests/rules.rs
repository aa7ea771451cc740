//! The rules for every answer (operator-tools), on whatever the doctor says of anything.

use super::super::finding::{Finding, Fix, Report, Status};
use std::collections::HashMap;
use std::process::Command;
use std::sync::{LazyLock, Mutex};

/// Cause first, each fix a command with its verification and its way back, unknown with a reason, one root one
/// finding, exit status and findings of one mind in text and JSON, 80 columns.
pub fn well_formed(report: &Report) {
    of_one_mind(report);
    for f in &report.findings {
        finding(report, f);
        f.fix.iter().for_each(fix);
    }
    text(report);
    let json = serde_json::to_value(report).unwrap();
    assert_eq!((&json["exit"], &json["schema"]), (&report.exit.into(), &1.into()));
    assert_eq!(json["verdict"], report.verdict);
    assert_eq!(json["findings"].as_array().unwrap().len(), report.findings.len());
}

/// Rule 5: what the exit status says is what the findings say; 1 beats 3.
fn of_one_mind(report: &Report) {
    let bad = |s: Status| report.findings.iter().any(|f| f.status == s);
    match bad(Status::Fail) || bad(Status::Warn) {
        true => assert_eq!(report.exit, 1, "{report:?}"),
        false => assert!(matches!(report.exit, 0 | 3), "{report:?}"),
    }
    assert!(report.exit != 3 || bad(Status::Unknown), "{report:?}");
    let ids: std::collections::BTreeSet<&str> = report.findings.iter().map(|f| f.id).collect();
    assert_eq!(ids.len(), report.findings.len(), "one finding a check");
}

/// Rules 1, 3 and 4.
fn finding(report: &Report, f: &Finding) {
    // What a load test says is the plugin's own, which may be nothing.
    assert!((f.id.starts_with("load.") || !f.title.is_empty()) && !f.title.contains('\n'), "{f:?}");
    assert_eq!(f.status == Status::Skipped, f.because.is_some(), "{f:?}");
    assert_eq!(f.status == Status::Unknown, f.why.as_ref().is_some_and(|w| !w.is_empty()), "{f:?}");
    if f.needs_action() {
        assert!(!f.cause.is_empty(), "no cause: {f:?}");
        let whole = f.evidence.iter().any(|e| !e.path.is_empty() && !e.value.is_empty());
        assert!(whole, "nothing seen: {f:?}");
        assert!(!f.fix.is_empty(), "nothing to do: {f:?}");
    }
    if let Some(id) = f.because {
        let root = report.findings.iter().find(|r| r.id == id).unwrap();
        assert!(matches!(root.status, Status::Fail | Status::Warn | Status::Unknown), "{f:?}");
    }
}

/// Rules 2 and 10.
fn fix(fix: &Fix) {
    assert!(!fix.run.is_empty() && !fix.verify.is_empty() && !fix.undo.is_empty(), "{fix:?}");
    for line in [&fix.run, &fix.verify] {
        assert!(parses(line), "no command: {line}");
    }
    for line in [&fix.run, &fix.verify, &fix.undo] {
        let pins = ["control=on", "echo on", "debug/clk", "/dev/mem", "devmem"];
        assert!(!pins.iter().any(|p| line.contains(p)), "never: {line}");
        commands(line).iter().for_each(|words| ours(words));
    }
}

/// A command of ours parses, and names what there is.
fn ours(words: &[String]) {
    let Some(at) = words.iter().position(|w| w == "rocketctl") else { return };
    // "sudo rocketctl", and not a path or a text that has the word in it.
    if !words[..at].iter().all(|w| w == "sudo" || w.starts_with("--preserve-env")) {
        return;
    }
    crate::parsed(&words[at..]).unwrap_or_else(|e| panic!("{words:?}: {e}"));
    if let Some(id) = words.iter().skip_while(|w| *w != "--only").nth(1) {
        assert!(is_known(id), "{id}");
    }
    if let [explain, id, ..] = &words[at + 1..]
        && explain == "explain"
    {
        assert!(is_known(id), "{id}");
    }
}

fn is_known(id: &str) -> bool {
    super::super::known(id).is_ok() || crate::load_test::explained().any(|(known, _)| known == id)
}

/// The simple commands of a line, in words. Quotes as a shell has them; nothing is expanded.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let (mut word, mut quote, mut some) = (String::new(), None, false);
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => (quote, some) = (Some(c), true),
            (None, c) if c.is_whitespace() || "|&;".contains(c) => {
                if some || !word.is_empty() {
                    all.last_mut().unwrap().push(std::mem::take(&mut word));
                    some = false;
                }
                if "|&;".contains(c) {
                    all.push(Vec::new());
                }
            }
            (None, c) => word.push(c),
        }
    }
    if some || !word.is_empty() {
        all.last_mut().unwrap().push(word);
    }
    all
}

/// Whether a shell can parse it. Asked once a line: it is a process each time.
fn parses(line: &str) -> bool {
    static KNOWN: LazyLock<Mutex<HashMap<String, bool>>> = LazyLock::new(Mutex::default);
    if let Some(known) = KNOWN.lock().unwrap().get(line) {
        return *known;
    }
    let parsed = Command::new("sh").args(["-n", "-c", line]).status().unwrap().success();
    KNOWN.lock().unwrap().insert(line.to_owned(), parsed);
    parsed
}

/// 80 columns, but for commands that are to be copied; what needs action and its cause come first, the verdict last.
fn text(report: &Report) {
    let text = report.text(false, false);
    for line in text.lines() {
        let command =
            ["      fix:", "      verify:", "      undo:"].iter().any(|p| line.starts_with(p));
        let next = line.starts_with("    ")
            && report.findings.iter().flat_map(|f| &f.fix).any(|f| f.run == line.trim());
        assert!(command || next || line.chars().count() <= 80, "{line}");
    }
    let place = |f: &Finding| {
        text.find(&format!(" {} ", f.id)).unwrap_or_else(|| panic!("{} is not in the text", f.id))
    };
    let last_bad = report.findings.iter().filter(|f| f.needs_action()).map(place).max();
    let first_good = report.findings.iter().filter(|f| !f.needs_action()).map(place).min();
    assert!(last_bad.is_none_or(|b| first_good.is_none_or(|g| b < g)), "{text}");
    assert!(text.trim_end().rsplit("\n\n").next().unwrap().starts_with(&report.verdict), "{text}");
    let quiet = report.text(true, false);
    let act = report.findings.iter().filter(|f| f.needs_action()).count();
    assert_eq!(
        quiet.lines().filter(|l| l.starts_with("x fail") || l.starts_with("! warn")).count(),
        act
    );
    let colored = report.text(false, true);
    assert_eq!(anstream(&colored), text, "colour adds nothing but colour");
}

/// Without colour.
fn anstream(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\x1b') {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain + rest
}

#[test]
fn the_helper_finds_what_is_wrong() {
    let fine = || {
        Finding::warn("speed.clock", "slow").cause("it is").seen("/sys/x", "1").fix(
            "echo 1 | sudo tee /sys/x",
            "rocketctl doctor --only speed.clock",
            "none needed",
        )
    };
    let report = |f: Finding| Report::new(vec![f], &[]);
    well_formed(&report(fine()));
    let mut exit = report(fine());
    exit.exit = 0;
    let twice = Report::new(vec![fine(), fine()], &[]);
    let with =
        |run: &str, verify: &str| Finding { fix: vec![], ..fine() }.fix(run, verify, "none needed");
    let mut nothing_seen = fine();
    nothing_seen.evidence.clear();
    let bad = [
        exit,
        twice,
        report(nothing_seen),
        report(Finding { cause: String::new(), ..fine() }),
        report(Finding { fix: vec![], ..fine() }),
        report(with("echo 'open", "true")),
        report(with("echo on | sudo tee /sys/power/control", "true")),
        report(with("sudo rocketctl doctor --all-of-it", "true")),
        report(with("true && rocketctl explain speed.clocks", "true")),
        report(with("true", "rocketctl doctor --only speed.clocks")),
        report(with("true", "")),
        report(Finding::skipped("speed.clock", "speed.clock")),
        report(Finding { why: None, ..Finding::unknown("speed.clock", "x", "y") }),
    ];
    for (i, report) in bad.into_iter().enumerate() {
        let caught = std::panic::catch_unwind(|| well_formed(&report));
        assert!(caught.is_err(), "number {i}");
    }
}
