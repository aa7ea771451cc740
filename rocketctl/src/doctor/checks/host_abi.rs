use super::super::finding::Finding;
use super::super::host::{Static, generation};
use super::super::remedy::{newer_host, of_host};
use super::super::{About, Case, Check};
use crate::elf::Text;
use ggml_rocket::abi::{Generation, SUPPORTED};

const ID: &str = "host.abi";

pub const CHECK: Check = Check {
    id: ID,
    explain: "The tables between ggml and its backends have had several layouts, some under one version number, and \
              the numbers of operations moved without any. Which layout a host has shows in what its libraries \
              export. This suite's plugin measures it again when it is loaded, finds operations by their names, \
              and refuses what it does not know; rocketctl load-test shows what it measured.",
    after: &["host.dynamic"],
    about: About::Host,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let Some(base) = case.named.host.as_ref().and_then(|h| h.base()) else {
        return Finding::unknown(ID, "the host's interface", "no libggml-base was found");
    };
    let named = case.named.host.as_ref().map_or("", |h| h.path.as_str());
    let newer = |f: Finding| newer_host(f, named, of_host(ID));
    let supported = format!("{} to {}", SUPPORTED[0].name, SUPPORTED[SUPPORTED.len() - 1].name);
    match generation(&base.elf) {
        Static::TooOld => newer(
            Finding::fail(ID, "this ggml is older than loadable backends")
                .cause(format!(
                    "Plugins are for generations {supported}. Use a host of 2025 or newer."
                ))
                .seen(base.path.clone(), "no ggml_backend_dev_get_props"),
        ),
        Static::Odd(why) => newer(
            Finding::warn(ID, "this ggml is of no known release")
                .cause(format!(
                    "The plugin measures it and may refuse, as rocketctl load-test shows; it is for {supported}."
                ))
                .seen(base.path.clone(), format!("has {why}")),
        ),
        Static::OneOf(all) => match all.as_slice() {
            [one] => linked(case, one, &base.path),
            many => {
                let names: Vec<&str> = many.iter().map(|g| g.name).collect();
                Finding::ok(
                    ID,
                    format!("generation {}: no symbol tells these apart", names.join(", ")),
                )
            }
        },
    }
}

/// A plugin that was linked against ggml has one layout compiled in: which, its file does not say.
fn linked(case: &Case, one: &Generation, base: &str) -> Finding {
    let title = format!("generation {} ({}), API {}", one.name, one.era, one.api);
    let plugin = case.named.plugin.as_ref().and_then(|p| p.elf());
    match plugin {
        Some(p) if !p.has(Text::Ours) && p.imports.iter().any(|i| i.name.starts_with("ggml_")) => {
            Finding::note(ID, title)
                .cause("This plugin was compiled for one generation, which its file does not tell; rocketctl load-test does.")
                .seen(base, "exports of that generation")
        }
        _ => Finding::ok(ID, title),
    }
}
