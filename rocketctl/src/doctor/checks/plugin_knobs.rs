use super::super::finding::Finding;
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
    for word in words {
        finding = finding.seen("settings", word.clone());
    }
    // A misspelled name: the right one with the same value.
    for (name, value) in case.environment.iter().flatten() {
        let said = words.iter().find(|w| w.starts_with(&format!("{name} is not known")));
        let meant = said.and_then(|w| w.split("did you mean ").nth(1));
        if let Some(meant) = meant.map(|m| m.trim_end_matches('?')) {
            let value = super::super::plugin::quoted(value);
            finding = finding.fix(
                format!("unset {name}; export {meant}={value}"),
                "rocketctl doctor --only plugin.knobs",
                format!("unset {meant}; export {name}={value}"),
            );
        }
    }
    finding
}
