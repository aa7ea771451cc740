use super::super::finding::Finding;
use super::super::remedy::other_plugin;
use super::super::{About, Case, Check};
use crate::elf::{Class, Elf, Kind, machine_name};
use rocket_runtime::board::{Absent, Why};

const ID: &str = "plugin.elf";

pub const CHECK: Check = Check {
    id: ID,
    explain: "A plugin is a shared library of 64 bits for the host's processor and the host's C library, with the \
              function ggml_backend_init. One that was built for another machine, or with its backend linked \
              into the program, cannot be loaded.",
    after: &["plugin.path"],
    about: About::Plugin,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let named = &case.named;
    let file = named.plugin.as_ref().and_then(|p| Some((p, p.path()?, p.file.as_ref()?)));
    let Some((plugin, path, file)) = file else {
        return Finding::unknown(ID, "what the plugin is", "there is no file");
    };
    let elf = match file {
        Ok(elf) => elf,
        Err(Absent { why: Why::Malformed(what), .. }) if !what.starts_with("is longer") => {
            let finding = Finding::fail(ID, "the plugin is no library")
                .cause("The loader refuses it.")
                .seen(path, what.clone());
            return other_plugin(finding, plugin, named.host.as_ref(), ID);
        }
        Err(absent) => return Finding::unread(ID, "what the plugin is", absent),
    };
    let wrong = |title: String, cause: &str| {
        let finding = Finding::fail(ID, title).cause(cause).seen(path, words(elf));
        other_plugin(finding, plugin, named.host.as_ref(), ID)
    };
    let machine = machine_name(elf.machine);
    if elf.class == Class::Bits32 {
        return wrong("the plugin is for 32 bits".into(), "Hosts are programs of 64 bits.");
    }
    // The host's files know better than the kernel, whose processor may run a system of another kind.
    let wanted = match named.host.as_ref().and_then(|h| h.machine()) {
        Some(m) => Some((machine_name(m), "the host is")),
        None => case.facts.machine.clone().ok().map(|m| (m, "this machine is")),
    };
    if let Some((wanted, whose)) = wanted.filter(|(w, _)| *w != machine) {
        return wrong(
            format!("the plugin is for {machine}, {whose} for {wanted}")
                .replace("this machine is for", "this machine is"),
            "A library of another processor cannot be loaded. Build it where it will run.",
        );
    }
    if elf.kind != Kind::Library {
        return wrong(
            "the plugin is no shared library".into(),
            "Only those can be loaded by a host.",
        );
    }
    if let Some((a, b)) = other_libc(case, elf) {
        return wrong(
            format!("the plugin is for {a}, the host runs with {b}"),
            "Two C libraries do not go together in one process.",
        );
    }
    if !elf.exports("ggml_backend_init") {
        return wrong(
            "the library has no ggml_backend_init".into(),
            "It is no plugin, or one that was built without GGML_BACKEND_DL, to be linked into a program.",
        );
    }
    Finding::ok(ID, format!("a shared library for {machine} with ggml_backend_init"))
}

fn words(elf: &Elf) -> String {
    let class = if elf.class == Class::Bits32 { 32 } else { 64 };
    format!("{:?} for {}, {class} bits", elf.kind, machine_name(elf.machine))
}

/// The C libraries of plugin and host where they are two.
fn other_libc(case: &Case, plugin: &Elf) -> Option<(&'static str, &'static str)> {
    let libc_of = |elf: &Elf| match () {
        () if elf.needs_library("libc.musl-") => Some("musl"),
        () if elf.needs_library("libc.so.6") => Some("glibc"),
        () if elf.interpreter.as_ref().is_some_and(|i| i.contains("ld-musl")) => Some("musl"),
        () => None,
    };
    let host = case.named.host.as_ref()?;
    let program = host.program.as_ref().and_then(|p| p.as_ref().ok());
    let (a, b) = (libc_of(plugin)?, libc_of(&program.or(host.base())?.elf)?);
    (a != b).then_some((a, b))
}
