use super::super::finding::Finding;
use super::super::host::{Asks, Host, asks, unreadable};
use super::super::remedy::{of_host, other_host};
use super::super::{About, Case, Check};
use crate::elf::Text;

const ID: &str = "host.dynamic";

pub const CHECK: Check = Check {
    id: ID,
    explain: "A plugin needs a host with ggml as shared libraries. Of those, builds with GGML_BACKEND_DL open every \
              backend from a file. Shared builds without it, CMake's default, have the CPU backend from the start, \
              and most of llama.cpp's programs load others only while there is none: llama-cli, llama-server, \
              llama-completion, llama-perplexity and llama-embedding pass over GGML_BACKEND_PATH without a word, \
              although --list-devices shows the device.",
    after: &[],
    about: About::Host,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let Some(host) = &case.named.host else {
        return Finding::unknown(ID, "how the host was built", "no host was named");
    };
    if let Some(absent) = unreadable(host) {
        return Finding::unread(ID, "how the host was built", absent);
    }
    if host.base().is_none() || host.ggml().is_none() {
        return without_ggml(host);
    }
    if host.loads_modules() == Some(true) {
        return Finding::ok(ID, "backends are files of their own");
    }
    let asked: Vec<(&str, Asks)> =
        host.all_programs().into_iter().map(|(p, c)| (p.name(), asks(p, c))).collect();
    let deaf = |a: &Asks| matches!(a, Asks::WhileEmpty(_));
    let names = |deafness: bool| -> Vec<&str> {
        asked.iter().filter(|(_, a)| deaf(a) == deafness).map(|(n, _)| *n).collect()
    };
    let (never, others) = (names(true), names(false));
    let unsure = asked.iter().find(|(_, a)| matches!(a, Asks::Perhaps(_)));
    if let (true, Some((name, _))) = (never.is_empty(), unsure) {
        return Finding::unknown(
            ID,
            format!("whether {name} asks for GGML_BACKEND_PATH"),
            format!(
                "its CPU backend is linked in; GGML_BACKEND_PATH=/none {name} prints a line if it asks"
            ),
        );
    }
    let cpu = host.ggml().map(|g| g.elf.needed.join(", ")).unwrap_or_default();
    let found = |f: Finding| {
        let f = f.cause(
            "Its CPU backend is linked in (no GGML_BACKEND_DL), and these programs load others only while none \
             is there.",
        );
        let ggml = host.ggml().map(|g| g.path.clone()).unwrap_or_default();
        other_host(f.seen(ggml, format!("needs {cpu}")), &host.path, of_host(ID))
    };
    match (never.is_empty(), others.is_empty()) {
        (true, true) => {
            found(Finding::warn(ID, "most programs of this host ignore GGML_BACKEND_PATH"))
        }
        (true, false) => {
            Finding::ok(ID, "the CPU backend is linked in; its program loads others all the same")
        }
        (false, true) => {
            found(Finding::fail(ID, format!("{} ignores GGML_BACKEND_PATH", list(&never))))
        }
        (false, false) => {
            found(Finding::warn(ID, format!("{} ignore GGML_BACKEND_PATH", list(&never))))
                .seen("not so", list(&others))
        }
    }
}

fn list(names: &[&str]) -> String {
    match names.len() {
        n if n > 6 => format!("{} and {} more", names[..6].join(", "), n - 6),
        _ => names.join(", "),
    }
}

/// No libggml-base comes along: ggml is inside the program, is not there at all, or is not found.
fn without_ggml(host: &Host) -> Finding {
    let program = host.program.as_ref().and_then(|p| p.as_ref().ok());
    if let Some((name, by)) = host.libraries.missing.iter().find(|(n, _)| n.starts_with("libggml"))
    {
        return Finding::unknown(
            ID,
            "how the host was built",
            format!("{by} needs {name}, which is not found"),
        );
    }
    let mended = |f: Finding| other_host(f, &host.path, of_host(ID));
    let Some(program) = program else {
        return mended(
            Finding::fail(ID, "there are no shared libraries of ggml in this folder")
                .cause("A host with ggml linked into its programs can load no plugin.")
                .seen(host.path.clone(), "no libggml.so with libggml-base.so"),
        );
    };
    let inside = program.elf.has(Text::BackendPath)
        || program.elf.exports("ggml_init")
        || host.libraries.objects.iter().any(|o| o.elf.exports("ggml_init"));
    let needs = match program.elf.needed.is_empty() {
        true => "needs no library".to_owned(),
        false => format!("needs {}", program.elf.needed.join(", ")),
    };
    let (title, cause) = match inside {
        true => (
            "ggml is linked into this program",
            "A static build has no libggml-base that a plugin could use.",
        ),
        false => (
            "this program does not use ggml's libraries",
            "It is no host, or has all of ggml inside and does not show it: no plugin can be loaded.",
        ),
    };
    mended(Finding::fail(ID, title).cause(cause).seen(program.path.clone(), needs))
}
