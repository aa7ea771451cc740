use super::super::finding::Finding;
use super::super::host::{Asks, asks};
use super::super::remedy::{newer_host, of_host};
use super::super::{About, Case, Check};
use crate::elf::Text;

const ID: &str = "host.loads-backends";

pub const CHECK: Check = Check {
    id: ID,
    explain: "ggml's loader reads GGML_BACKEND_PATH when a program calls ggml_backend_load_all, itself or through \
              llama_backend_init. Libraries of whisper.cpp never do, its programs since 1.7.6. A program that does \
              not call it uses the backends that are linked in, or none.",
    after: &["host.dynamic"],
    about: About::Host,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let host = match &case.named.host {
        Some(host) if host.ggml().is_some() => host,
        _ => return Finding::unknown(ID, "whether it loads backends", "no shared ggml was found"),
    };
    if let Some(ggml) = host.ggml().filter(|g| !g.elf.has(Text::BackendPath)) {
        let finding = Finding::fail(ID, "this ggml does not know GGML_BACKEND_PATH")
            .cause("It is older than January 2025. Use a newer host.")
            .seen(ggml.path.clone(), "no such text in it");
        return newer_host(finding, &host.path, of_host(ID));
    }
    let all: Vec<(&str, Asks)> =
        host.all_programs().into_iter().map(|(p, c)| (p.name(), asks(p, c))).collect();
    let never: Vec<&str> = all.iter().filter(|(_, a)| *a == Asks::Never).map(|(n, _)| *n).collect();
    if let Some(name) = never.first() {
        let cause = "Neither it nor a library of its calls ggml_backend_load_all, so GGML_BACKEND_PATH is not read. \
                     Use a newer version: whisper-cli does since 1.7.6.";
        let title = match never.len() {
            1 => format!("{name} never loads backends"),
            n => format!("{name} and {} more never load backends", n - 1),
        };
        let path = host.all_programs().into_iter().find(|(p, _)| p.name() == *name);
        let path = path.map(|(p, _)| p.path.clone()).unwrap_or_default();
        let found = |f: Finding| f.cause(cause).seen(path, "does not import ggml_backend_load_all");
        return match all.len() == never.len() {
            true => newer_host(found(Finding::fail(ID, title)), name, of_host(ID)),
            // Tools that only look at files need none.
            false => found(Finding::note(ID, title)),
        };
    }
    match all.as_slice() {
        [] => match host.libraries.named("libllama.so") {
            Some(_) => Finding::ok(ID, "llama_backend_init loads them"),
            None => Finding::unknown(
                ID,
                "whether its programs load backends",
                "there is no program in this folder; name one with --host",
            ),
        },
        [(name, Asks::Itself)] => Finding::ok(ID, format!("{name} loads them itself")),
        // Nothing is registered before that in a host with modules; others were dealt with by host.dynamic.
        [(name, Asks::WhileEmpty(by) | Asks::Perhaps(Some(by)))] => {
            Finding::ok(ID, format!("{name} loads them through {by}"))
        }
        [(name, _)] => Finding::unknown(
            ID,
            format!("whether {name} loads them when it works"),
            "it can, by its imports; run it with a GGML_BACKEND_PATH that is not there: it says so if it does",
        ),
        many => Finding::ok(ID, format!("all of {} programs can load them", many.len())),
    }
}
