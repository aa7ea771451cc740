use super::super::finding::Finding;
use super::super::named::VARIABLE;
use super::super::plugin::{Origin, Place, Plugin};
use super::super::remedy::{back, installed_plugin, set};
use super::super::{About, Case, Check};

const ID: &str = "plugin.path";

pub const CHECK: Check = Check {
    id: ID,
    explain: "Hosts take the value of GGML_BACKEND_PATH word for word, as one file: no folder, no list, no quotes, \
              no ~, no blank at its end. What is not there they pass over with one line, which some of them mute, \
              and go on without the NPU. A relative name holds in one folder only.",
    after: &[],
    about: About::Plugin,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let Some(plugin) = &case.named.plugin else {
        return Finding::unknown(ID, "the plugin's file", "no plugin was named");
    };
    if plugin.given.is_empty() {
        let finding = Finding::warn(ID, format!("{VARIABLE} is empty, which counts as not set"))
            .cause("A host that is started from here loads no plugin.")
            .seen(name(plugin), "''");
        return installed_plugin(finding, plugin, VERIFY);
    }
    match &plugin.place {
        // On a command line a relative name is an ordinary one.
        Place::File(path) if plugin.given.starts_with('/') || plugin.origin == Origin::Option => {
            Finding::ok(ID, path.clone())
        }
        Place::File(path) => Finding::warn(ID, "the plugin's name is relative")
            .cause("It is found from this folder alone: a host that is started elsewhere loads no plugin.")
            .seen(name(plugin), plugin.given.clone())
            .fix(set(path), VERIFY, back(plugin)),
        Place::Folder(path, inside) => folder(plugin, path, inside),
        Place::Meant(path, slips) => Finding::fail(ID, format!("the plugin's name {}", slips.join(" and ")))
            .cause("Hosts take it word for word, so there is no such file for them.")
            .seen(name(plugin), format!("'{}'", plugin.given.escape_debug()))
            .seen(path.clone(), "is there")
            .fix(set(path), VERIFY, back(plugin)),
        Place::Bare => {
            let finding = Finding::fail(ID, "the plugin's name has no folder")
                .cause("The loader looks for it among the system's libraries alone. Give the whole path.")
                .seen(name(plugin), plugin.given.clone());
            installed_plugin(finding, plugin, VERIFY)
        }
        Place::Missing => {
            let finding = Finding::fail(ID, "there is no such plugin")
                .cause("Hosts go on without it, and without the NPU.")
                .seen(name(plugin), format!("'{}'", plugin.given.escape_debug()));
            installed_plugin(finding, plugin, VERIFY)
        }
        Place::Unseen(absent) => Finding::unread(ID, "whether the plugin is there", absent),
    }
}

const VERIFY: &str = "rocketctl doctor --only plugin.path";
/// Most plugins of a folder that are offered.
const MOST: usize = 3;

fn name(plugin: &Plugin) -> &'static str {
    match plugin.origin {
        Origin::Option => "--plugin",
        Origin::Variable => VARIABLE,
    }
}

fn folder(plugin: &Plugin, path: &str, inside: &[String]) -> Finding {
    let found = Finding::fail(ID, "the plugin's name must be the file, and is a folder")
        .cause("Hosts open what it names as a library. They look into no folder for it.")
        .seen(name(plugin), path);
    match inside {
        [] => installed_plugin(found.seen(path, "holds no plugin"), plugin, VERIFY),
        [one] => found.fix(set(one), VERIFY, back(plugin)),
        many => {
            let mut likely: Vec<&String> = many.iter().collect();
            likely.sort_by_key(|p| !p.contains("rocket"));
            let found = found.seen("plugins in it", many.join(", "));
            let each = |f: Finding, one: &&String| f.fix(set(one), VERIFY, back(plugin));
            likely.iter().take(MOST).fold(found, each)
        }
    }
}
