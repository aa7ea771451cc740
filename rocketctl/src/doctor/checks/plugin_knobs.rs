use super::super::finding::{Finding, Fix, word};
use super::super::{About, Case, Check};

const ID: &str = "plugin.knobs";

pub const CHECK: Check = Check {
    id: ID,
    explain: "The plugin's settings are ROCKET_* variables and a configuration file (docs/knobs.md). A name that it \
              does not know changes nothing, and a value that is none leaves the default: this check says what the \
              plugin would say, with the nearest name.",
    after: &[],
    about: About::Knobs,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let Some(words) = &case.named.knobs else {
        return Finding::unknown(ID, "the settings", "no ROCKET_* variable is set");
    };
    let variables = case.environment.iter().flatten().filter(|(n, _)| n.starts_with("ROCKET_"));
    if words.is_empty() {
        let count = variables.count();
        return Finding::ok(
            ID,
            format!("{count} ROCKET_* variable(s), each known and in its range"),
        );
    }
    let set = variables.map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" ");
    let mut finding = Finding::warn(
        ID,
        match words.len() {
            1 => "a setting of the plugin is not as it was meant".to_owned(),
            n => format!("{n} settings of the plugin are not as they were meant"),
        },
    )
    .cause("The plugin says the same when it is loaded, and goes on without them.")
    .seen("environment", set);
    for said in words {
        finding = finding.seen("settings", said.clone());
    }
    words.iter().fold(finding, |finding, said| match mended(case, said) {
        // Several words may be about one of them.
        Some(fix) if finding.fix.iter().all(|f| f.run != fix.run) => {
            finding.fix(fix.run, fix.verify, fix.undo)
        }
        _ => finding,
    })
}

/// What the plugin takes for "no file".
const NO_FILE: &str = "export ROCKET_CONFIG=none";

/// What mends one: a misspelled name is set right with its value, a value that is none gives way to the default, and
/// a file that has something wrong in it is left out.
fn mended(case: &Case, said: &str) -> Option<Fix> {
    let fix =
        |run: String, verify: &str, undo: String| Some(Fix { run, verify: verify.into(), undo });
    let environment = case.environment.as_ref().ok()?;
    let about = |name: &str| {
        said.strip_prefix(name).is_some_and(|r| r.starts_with([' ', '=']) && !r.contains(" (/"))
    };
    if let Some((name, value)) = environment.iter().find(|(name, _)| about(name)) {
        let value = word(value);
        let meant = said.split("did you mean ").nth(1).map(|m| m.trim_end_matches('?'));
        let meant = meant.filter(|_| said.contains(" is not known"));
        return match meant {
            Some(meant) => fix(
                format!("unset {name}; export {meant}={value}"),
                "rocketctl doctor --only plugin.knobs",
                format!("unset {meant}; export {name}={value}"),
            ),
            None => {
                fix(format!("unset {name}"), "rocketctl knobs", format!("export {name}={value}"))
            }
        };
    }
    let undo = match environment.get("ROCKET_CONFIG") {
        Some(path) => format!("export ROCKET_CONFIG={}", word(path)),
        None => "unset ROCKET_CONFIG".to_owned(),
    };
    fix(NO_FILE.to_owned(), "rocketctl knobs", undo)
}
