//! From the lines of `rocket-load-test` and how it ended to findings.

use super::lines::{Device, Line, lines};
use super::run::{End, Ended};
use super::steps::{DEVICES, NO_DEVICE, OPEN, STEPS};
use crate::doctor::finding::{Finding, Status};
use nix::sys::signal::Signal;

/// What cannot be run, because of a finding or because no libraries were found.
pub fn unrun(because: Option<&'static str>) -> Vec<Finding> {
    let skipped = |id| match because {
        Some(because) => Finding::skipped(id, because),
        None => {
            Finding::unknown(id, "whether the plugin loads", "there is nothing to load it with")
        }
    };
    vec![skipped(OPEN), skipped(DEVICES)]
}

/// A finding for each step.
pub fn findings(ended: &Ended) -> Vec<Finding> {
    let lines = lines(&ended.said);
    let mut all: Vec<Finding> = Vec::new();
    let mut broken: Option<&'static str> = None;
    for (step, id, _) in STEPS {
        let line = lines.iter().rev().find(|l| l.step == step && l.status != "begin");
        let begun = lines.iter().any(|l| l.step == step);
        let finding = match (line, broken) {
            (Some(line), _) => said(id, step, line, &lines, ended),
            (None, Some(because)) => Finding::skipped(id, because),
            (None, None) if begun || step == STEPS[0].0 => stopped(id, step, ended),
            (None, None) => Finding::unknown(id, "not come to", "the load test said nothing of it"),
        };
        if finding.status == Status::Fail && broken.is_none() {
            broken = Some(id);
        }
        all.push(finding);
    }
    // Everything was well, and then the process was ended by what it had loaded.
    let over = lines.iter().any(|l| l.step == "end");
    if broken.is_none()
        && ended.end != End::Status(0)
        && let Some(last) = all.last_mut()
    {
        *last = stopped(DEVICES, if over { "end" } else { "devices" }, ended);
    }
    all
}

/// The process ended in a step.
fn stopped(id: &'static str, step: &str, ended: &Ended) -> Finding {
    let during = match step {
        "libraries" => "while the host's libraries were opened",
        "backends" => "while the host loaded its own backends",
        "interface" => "while the host's interface was measured",
        "open" => "while the plugin was opened (its constructors)",
        "score" => "in ggml_backend_score",
        "init" => "in ggml_backend_init",
        "end" => "when the process ended (destructors)",
        _ => "while the plugin's devices were listed",
    };
    let (title, cause) = match ended.end {
        End::Signal(n) => {
            let name = Signal::try_from(n).map_or(format!("signal {n}"), |s| s.as_str().to_owned());
            let why = match name.as_str() {
                "SIGILL" => {
                    "It has instructions that this processor does not know (plugin.cpu), or stopped itself."
                }
                "SIGABRT" => "It stopped itself: an assertion failed, or it called abort.",
                "SIGSEGV" | "SIGBUS" => {
                    "It used memory that is not there; a table of another layout does that (host.abi)."
                }
                "SIGKILL" => "Somebody ended it; the kernel does where memory runs out.",
                _ => "A host would have ended there too.",
            };
            (format!("ended by {name} {during}"), why.to_owned())
        }
        End::Late(limit) => (
            format!("hung {during}"),
            format!("It was ended after {} s. A host would wait for ever.", limit.as_secs()),
        ),
        End::Status(status) => (
            format!("left with status {status} {during}"),
            "Something that was loaded ended the process. A host would have ended there too."
                .to_owned(),
        ),
    };
    tail(Finding::fail(id, title).cause(cause).seen("run", ended.way.clone()), ended)
}

/// The last lines that host or plugin printed.
fn tail(mut finding: Finding, ended: &Ended) -> Finding {
    let lines: Vec<&str> = ended.errors.lines().filter(|l| !l.trim().is_empty()).collect();
    for line in &lines[lines.len().saturating_sub(4)..] {
        finding = finding.seen("stderr", short(line));
    }
    finding
}

fn short(line: &str) -> String {
    line.chars().filter(|c| !c.is_control()).take(600).collect()
}

/// What a step said of itself.
fn said(id: &'static str, step: &str, line: &Line, lines: &[Line], ended: &Ended) -> Finding {
    let fine = line.status == "ok";
    let why = line.why.clone().unwrap_or_default();
    match (step, fine) {
        ("libraries", true) => {
            Finding::ok(id, format!("{}, {}", line.version.clone().unwrap_or_default(), ended.way))
        }
        ("libraries", false) => Finding::fail(id, "the host's own libraries cannot be opened")
            .cause("The host would not start here either, or is run in another way.")
            .seen("dlopen", short(&why))
            .seen("run", ended.way.clone()),
        ("backends", _) => backends(id, line),
        ("interface", _) => interface(id, line),
        ("open", true) => Finding::ok(id, "the plugin can be opened"),
        ("open", false) => Finding::fail(id, "the loader refuses the plugin")
            .cause("What it says is the reason; hosts show it in a line, or not at all.")
            .seen("dlopen", short(&why)),
        ("score", true) => Finding::ok(
            id,
            match line.score {
                Some(score) => format!("rates itself {score}"),
                None => "does not rate itself, which loading by path does not ask for".into(),
            },
        ),
        ("score", false) => Finding::fail(id, "the plugin rates itself 0 on this processor").cause(
            "By that it says that it cannot work here (plugin.cpu), and the host passes it over.",
        ),
        ("init", true) => Finding::ok(
            id,
            format!(
                "{} announces API {}",
                line.name.clone().unwrap_or_default(),
                line.api.unwrap_or(0)
            ),
        ),
        ("init", false) => refused(id, line, lines, ended),
        ("register", true) => Finding::ok(id, "the host has registered it"),
        ("register", false) => tail(
            Finding::fail(id, "the host does not list the plugin after loading it")
                .cause("Its loader took the file and its registry has no backend of that name."),
            ended,
        ),
        ("devices", true) => devices(id, line),
        _ => heard(
            Finding::fail(id, NO_DEVICE).cause(
                "It found no NPU that it may use; its own line says why. Hosts go on without it.",
            ),
            lines,
            ended,
        ),
    }
}

fn backends(id: &'static str, line: &Line) -> Finding {
    let all = line.registered.clone().unwrap_or_default();
    if !all.iter().any(|n| n == "CPU") {
        let cause =
            "Its CPU backend was not found, as where a host looks beside its programs alone.";
        return Finding::note(id, "the host registered no CPU backend").cause(cause);
    }
    let list = all.join(", ");
    match line.extra.as_deref() {
        Some([]) => Finding::ok(id, format!("{list}; quantized weights stay as they are")),
        Some(types) => Finding::note(id, format!("{list}; quantized weights go to {}", types.join(", ")))
            .cause("What is there does not reach the NPU: give --no-repack where the program has it (host.repack)."),
        None => Finding::ok(id, list),
    }
}

fn interface(id: &'static str, line: &Line) -> Finding {
    let supported = line.supported.clone().unwrap_or_default().join(" to ");
    match &line.generation {
        Some(g) => Finding::ok(
            id,
            format!(
                "host generation {} (API {}; {}), this suite's plugin supports {supported}",
                g.name, g.api, g.era
            ),
        ),
        // No failure by itself: another plugin may be made for it.
        None => Finding::note(
            id,
            format!("host generation unknown, this suite's plugin supports {supported}"),
        )
        .cause("The host's tables are of no generation that is known here.")
        .seen("measured", line.numbers.clone().unwrap_or_default())
        .seen("verdict", short(&line.why.clone().unwrap_or_default())),
    }
}

/// The host refused what init returned, or init returned nothing.
fn refused(id: &'static str, line: &Line, lines: &[Line], ended: &Ended) -> Finding {
    if let Some(why) = &line.why {
        return Finding::fail(id, why.clone()).cause(
            "It is no plugin, or was built without GGML_BACKEND_DL, to be linked into a program.",
        );
    }
    let interface = lines.iter().rev().find(|l| l.step == "interface" && l.status != "begin");
    let host = interface.and_then(|l| l.host_api.or(l.generation.as_ref().map(|g| g.api)));
    let named = interface.and_then(|l| l.generation.as_ref()).map(|g| g.name.clone());
    match (line.api, host) {
        (Some(plugin), host) if host != Some(plugin) => {
            let host = host.map_or("unknown".to_owned(), |h| h.to_string());
            let title = format!("host API {host}, plugin API {plugin}");
            let named = named.map_or(String::new(), |n| format!(" (generation {n})"));
            heard(
                Finding::fail(id, title).cause(format!(
                    "The plugin was built for another interface than this host's{named}. Use one that was built \
                     for it, or this suite's, which fits itself to the host."
                )),
                lines,
                ended,
            )
        }
        (Some(_), _) => heard(
            Finding::fail(id, "the host refuses the plugin's registration")
                .cause("Its loader gives the reason, if any."),
            lines,
            ended,
        ),
        (None, _) => heard(
            Finding::fail(id, "the plugin refuses this host")
                .cause("Its ggml_backend_init returned nothing; its own line says why."),
            lines,
            ended,
        ),
    }
}

fn devices(id: &'static str, line: &Line) -> Finding {
    let all = line.devices.clone().unwrap_or_default();
    let list: Vec<String> = all.iter().map(|d| format!("{} ({})", d.name, d.description)).collect();
    // Other backends have CPUs and GPUs.
    let ours = |d: &&Device| d.name == "ROCKET";
    match all.iter().filter(ours).find(|d| d.accelerator == Some(false)) {
        Some(d) => Finding::warn(id, format!("{} is no accelerator to this host", d.name))
            .cause("Its kind has another number in this generation: the host may take it for a GPU and move layers to it.")
            .seen("devices", list.join(", ")),
        None => Finding::ok(id, list.join(", ")),
    }
}

/// What was logged at warning or above, and printed.
fn heard(mut finding: Finding, lines: &[Line], ended: &Ended) -> Finding {
    const WARN: i64 = 3;
    let logged: Vec<&Line> = lines.iter().filter(|l| l.log.is_some() && l.level >= WARN).collect();
    for line in &logged[logged.len().saturating_sub(4)..] {
        finding = finding.seen("log", short(line.log.as_deref().unwrap_or_default()));
    }
    match logged.is_empty() {
        true => tail(finding, ended),
        false => finding,
    }
}

/// What the files say and what was seen, one finding for one cause: where both say that the plugin cannot be opened,
/// the files know why; where it was opened, they were wrong.
pub fn merged(mut told: Vec<Finding>, mut seen: Vec<Finding>) -> Vec<Finding> {
    let opened = seen.iter().any(|f| f.id == OPEN && f.status == Status::Ok);
    told.retain(|f| !(opened && f.id.starts_with("plugin.")));
    let reason = told.iter().position(|f| f.id.starts_with("plugin.") && f.status == Status::Fail);
    let refused = seen.iter().position(|f| f.id == OPEN && f.status == Status::Fail);
    if let (Some(reason), Some(refused)) = (reason, refused) {
        let id = told[reason].id;
        for e in seen[refused].evidence.clone() {
            told[reason].evidence.push(e);
        }
        for f in &mut seen {
            if f.id == OPEN || f.because == Some(OPEN) {
                *f = Finding::skipped(f.id, id);
            }
        }
    }
    told.extend(seen);
    told
}
