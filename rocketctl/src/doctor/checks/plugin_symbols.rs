use super::super::finding::Finding;
use super::super::host::{Host, Object};
use super::super::remedy::other_plugin;
use super::super::{About, Case, Check};
use crate::elf::Elf;

const ID: &str = "plugin.symbols";

pub const CHECK: Check = Check {
    id: ID,
    explain: "Hosts open a plugin with RTLD_NOW and RTLD_LOCAL: every symbol that it takes from elsewhere must be \
              found at once, in the program, in what comes along with the program, or in libraries that the plugin \
              itself names. Other backends, the CPU's among them, are opened for themselves alone, and nothing of \
              theirs is seen.",
    after: &["plugin.elf", "plugin.glibc"],
    about: About::Plugin,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let named = &case.named;
    let plugin = named.plugin.as_ref().and_then(|p| Some((p, p.path()?, p.elf()?)));
    let Some((plugin, path, elf)) = plugin else {
        return Finding::unknown(ID, "what it takes from elsewhere", "the file cannot be read");
    };
    let host = named.host.as_ref();
    let with_host = host.is_some_and(|h| h.base().is_some());
    let visible = |name: &str| {
        named.libraries.objects.iter().any(|o| o.elf.exports(name))
            || host.is_some_and(|h| in_scope(h, name))
    };
    // The host brings libggml-base, under one name: ld.so takes what is loaded already where the names agree.
    let brought = |name: &str| match host {
        None => name.starts_with("libggml"),
        Some(h) => h.libraries.objects.iter().any(|o| o.elf.soname.as_deref() == Some(name)),
    };
    if let Some((name, by)) = named.libraries.missing.iter().find(|(n, _)| !brought(n)) {
        let finding = Finding::fail(ID, format!("the plugin needs {name}, which is not here"))
            .cause("The loader refuses a file whose libraries it does not find.")
            .seen(path, format!("{by} needs {name}"));
        return other_plugin(finding, plugin, host, ID);
    }
    let copy = named.libraries.named("libggml-base");
    if let (Some(copy), Some(base)) = (copy, host.and_then(|h| h.base()))
        && copy.elf.soname != base.elf.soname
    {
        let finding = Finding::warn(ID, "the plugin brings a second libggml-base")
            .cause("Two copies do not know each other's buffers and log: weights are refused, lines are lost.")
            .seen(base.path.clone(), "the host's")
            .seen(copy.path.clone(), "the plugin's");
        return other_plugin(finding, plugin, host, ID);
    }
    let missing: Vec<&str> = elf
        .imports
        .iter()
        .filter(|i| !i.weak && !visible(&i.name))
        .map(|i| i.name.as_str())
        .collect();
    let Some(first) = missing.first() else {
        return Finding::ok(ID, "all that it takes from elsewhere is there");
    };
    let lives = host.and_then(|h| lives_in(h, first));
    if !with_host && lives.is_none() && home(first).is_some_and(|h| h != CPU) {
        return Finding::unknown(
            ID,
            format!("whether the host has {first}"),
            "the host brings it; name that with --host",
        );
    }
    let place = lives.map(|o| o.name().to_owned()).or(home(first).map(str::to_owned));
    let cause = match &place {
        Some(p) if p.starts_with("libggml-cpu") => format!(
            "{first} lives in {p}, which hosts open for itself alone (RTLD_LOCAL): no other backend sees it. The \
             plugin has to do without, or bring its own."
        ),
        Some(p) => format!("{first} lives in {p}, which is not loaded where the plugin sees it."),
        None => "Nothing that the host or the plugin loads has it.".to_owned(),
    };
    let more = match missing.len() {
        1 => String::new(),
        n => format!(", and {} more are", n - 1),
    };
    let finding = Finding::fail(ID, format!("{first} is not found{more}"))
        .cause(cause)
        .seen(path, missing[..missing.len().min(6)].join(", "))
        .seen("normally in", place.unwrap_or_else(|| "not known".into()));
    other_plugin(finding, plugin, host, ID)
}

/// Whether a plugin sees it: in the program, or in what is loaded along with the program. A folder has no program;
/// then ggml's libraries are taken to come along, as they do with most.
fn in_scope(host: &Host, name: &str) -> bool {
    let program = host.program.as_ref().and_then(|p| p.as_ref().ok());
    let has = |e: &Elf| e.exports(name);
    program.is_some_and(|p| has(&p.elf)) || host.libraries.objects.iter().any(|o| has(&o.elf))
}

/// The module of the host that has it.
fn lives_in<'a>(host: &'a Host, name: &str) -> Option<&'a Object> {
    host.modules.iter().find(|o| o.elf.exports(name))
}

const CPU: &str = "libggml-cpu";

/// The library of ggml that normally has a symbol of that name (ggml-abi 3 and 8).
fn home(name: &str) -> Option<&'static str> {
    const LOADER: [&str; 9] = [
        "ggml_backend_load",
        "ggml_backend_unload",
        "ggml_backend_register",
        "ggml_backend_device_register",
        "ggml_backend_reg_count",
        "ggml_backend_reg_by_name",
        "ggml_backend_dev_by_",
        "ggml_backend_dev_count",
        "ggml_backend_init_b",
    ];
    const OF_CPU: [&str; 8] = [
        "ggml_get_type_traits_cpu",
        "ggml_backend_cpu_reg",
        "ggml_backend_cpu_init",
        "ggml_backend_cpu_set_",
        "ggml_backend_is_cpu",
        "ggml_cpu_",
        "ggml_graph_plan",
        "ggml_threadpool_",
    ];
    let begins = |all: &[&str]| all.iter().any(|p| name.starts_with(p));
    match () {
        () if begins(&OF_CPU) => Some(CPU),
        () if begins(&LOADER) => Some("libggml"),
        () if name.starts_with("ggml_") || name.starts_with("gguf_") => Some("libggml-base"),
        () => None,
    }
}
