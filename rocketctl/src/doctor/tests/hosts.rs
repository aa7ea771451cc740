//! Plugins and hosts made of a few lines of C: what people met with theirs (A11 to A14, A16), in variants. None of
//! the files is ever run.

use super::super::finding::{Finding, Report, Status};
use super::super::named::Options;
use super::super::{checks, look, opened};
use super::{Board, well_formed};
use crate::elf::stubs::{compile, libc, library};
use std::env::consts::ARCH;
use std::path::PathBuf;

/// What every plugin has; its constructor ends whoever runs it.
const PLUGIN: &str = "
    __attribute__((constructor)) void never(void) { __builtin_trap(); }
    void *ggml_backend_init(void) { return 0; }
    int ggml_backend_score(void) { return 1; }
";

/// By which this suite's own is known.
const OURS: &str = "const char line[] = \"ggml-rocket: \";";

/// A system with a plugin and perhaps a host.
struct System {
    board: Board,
    options: Options,
}

impl System {
    fn new() -> System {
        let board = Board::of("laptop")
            .set("proc/sys/kernel/arch", ARCH)
            .set("proc/cpuinfo", "flags : sse4_2 avx2\nFeatures : fp asimd\n")
            .set("cmd/env.txt", "HOME=/home/tom\nLANG=C\n");
        System { board, options: Options::default() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.board.0.path().join(path)
    }

    fn variable(self, line: &str) -> System {
        let board = self.board.set("cmd/env.txt", format!("HOME=/home/tom\n{line}\nLANG=C\n"));
        System { board, ..self }
    }

    fn plugin(mut self, path: &str) -> System {
        self.options.plugin = Some(path.to_owned());
        self
    }

    fn host(mut self, path: &str) -> System {
        self.options.host = Some(path.to_owned());
        self
    }

    fn ask(&self) -> Report {
        let report = look(&opened(self.board.0.path()).unwrap(), &self.options).unwrap();
        well_formed(&report);
        report
    }

    fn finding(&self, id: &str) -> Finding {
        self.ask().findings.into_iter().find(|f| f.id == id).unwrap_or_else(|| panic!("no {id}"))
    }

    /// What needs action or is not known, of plugin and host alone.
    fn wrong(&self) -> Vec<String> {
        let all = super::wrong(&self.ask());
        all.into_iter().filter(|w| w.contains(" plugin.") || w.contains(" host.")).collect()
    }
}

/// Text of a finding, its evidence and its fixes.
fn words(f: &Finding) -> String {
    serde_json::to_string(f).unwrap()
}

/// The `libc.so.6` of the fixture's kind of machine.
fn libc_path() -> String {
    format!("lib/{ARCH}-linux-gnu/libc.so.6")
}

#[test]
fn nothing_is_said_of_what_nobody_named() {
    let report = System::new().ask();
    let named = |f: &&Finding| f.id.starts_with("plugin.") || f.id.starts_with("host.");
    assert_eq!(report.findings.iter().filter(named).count(), 0);
    let knobs = System::new().variable("ROCKET_MIN_M=64").ask();
    let ids: Vec<&str> = knobs.findings.iter().filter(named).map(|f| f.id).collect();
    assert_eq!(ids, ["plugin.knobs"]);
    let missing = System::new().host("/opt/none");
    let error = look(&opened(missing.board.0.path()).unwrap(), &missing.options).unwrap_err();
    assert!(error.to_string().contains("/opt/none"), "{error}");
}

/// A plugin that takes symbols of these versions from libc, whose newest is 2.36.
fn floor(versions: &[(&str, &str)], newest: &str) -> System {
    let system = System::new().plugin("/opt/p.so");
    let real = system.at("build/libc.so.6");
    let all: Vec<&str> = versions.iter().map(|(v, _)| *v).collect();
    let (mut script, mut source, mut before) = (String::new(), String::new(), "");
    for version in &all {
        let names: Vec<&str> =
            versions.iter().filter(|(v, _)| v == version).map(|(_, s)| *s).collect();
        if !script.contains(&format!("{version} {{")) {
            script += &format!("{version} {{ global: {}; }} {before};\n", names.join("; "));
            before = version;
        }
    }
    let mut takes = String::new();
    for (_, symbol) in versions {
        source += &format!("void {symbol}(void) {{}}\n");
        takes += &format!("void {symbol}(void); void use_{symbol}(void) {{ {symbol}(); }}\n");
    }
    let file = system.at("build/versions");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, script).unwrap();
    library(&real, "libc.so.6", &source, &[&format!("-Wl,--version-script={}", file.display())]);
    let linked = real.to_str().unwrap();
    library(&system.at("opt/p.so"), "p.so", &format!("{PLUGIN}{OURS}{takes}"), &[linked]);
    libc(&system.at(&libc_path()), &["GLIBC_2.17", "GLIBC_2.34", newest]);
    system
}

/// A11: the symbols, the version, both sides.
#[test]
fn a_plugin_of_a_newer_system() {
    let newer = &[
        ("GLIBC_2.17", "memcpy"),
        ("GLIBC_2.38", "__isoc23_strtol"),
        ("GLIBC_2.38", "__isoc23_strtoull"),
    ];
    let system = floor(newer, "GLIBC_2.36");
    assert_eq!(system.wrong(), ["fail plugin.glibc"]);
    let f = system.finding("plugin.glibc");
    for word in ["GLIBC_2.38", "GLIBC_2.36", "__isoc23_strtol", "__isoc23_strtoull", "/libc.so.6"] {
        assert!(words(&f).contains(word), "{word}: {f:?}");
    }
    assert!(!words(&f).contains("memcpy"), "what is there is not named: {f:?}");
    // The portable build, not a newer libc, and the check of what was installed.
    assert_eq!(f.fix[0].run, "sudo rocketctl setup --plugin ./libggml-rocket.so");
    let installed = "/usr/local/lib/ggml-rocket/libggml-rocket.so";
    assert_eq!(
        f.fix[0].verify,
        format!("rocketctl doctor --plugin {installed} --only plugin.glibc")
    );
    assert_eq!(f.fix[0].undo, "sudo rocketctl setup --undo");
    // 2.9 is older than 2.34, whatever the letters say.
    let old = floor(&[("GLIBC_2.34", "dlopen"), ("GLIBC_2.17", "memcpy")], "GLIBC_2.9");
    assert_eq!(old.finding("plugin.glibc").title, "it needs GLIBC_2.34 at most, which is here");
    // The same file where the system is newer.
    let here = floor(newer, "GLIBC_2.38");
    assert_eq!(here.finding("plugin.glibc").status, Status::Ok);
    // Another library's versions are its own.
    let cxx = floor(&[("GLIBCXX_3.4.32", "_ZSt4cout")], "GLIBC_2.36");
    assert!(cxx.finding("plugin.glibc").title.contains("GLIBCXX_3.4.32"));
}

/// What is not there to compare with is unknown.
#[test]
fn a_libc_that_is_not_found() {
    let system = floor(&[("GLIBC_2.17", "memcpy")], "GLIBC_2.36");
    std::fs::remove_file(system.at(&libc_path())).unwrap();
    let f = system.finding("plugin.glibc");
    assert_eq!((f.status, f.why.is_some()), (Status::Unknown, true), "{f:?}");
}

/// A14: what the variable may be mistaken for, and the one candidate of a folder.
#[test]
fn names_that_hosts_do_not_find() {
    let plain = || {
        let system = System::new();
        library(&system.at("opt/npu/libggml-rocket.so"), "x", PLUGIN, &[]);
        library(&system.at("home/tom/r.so"), "x", PLUGIN, &[]);
        system
    };
    let right = "export GGML_BACKEND_PATH=/opt/npu/libggml-rocket.so";
    for (value, fix) in [
        ("/opt/npu", Some(right)),
        ("/opt/npu/", Some(right)),
        ("/opt/npu/libggml-rocket.so ", Some(right)),
        ("/opt/npu/libggml-rocket.so\t", Some(right)),
        ("\"/opt/npu/libggml-rocket.so\"", Some(right)),
        ("'/opt/npu/libggml-rocket.so'", Some(right)),
        ("/opt/npu/libggml-rocket.so:/opt/other.so", Some(right)),
        ("file:///opt/npu/libggml-rocket.so", Some(right)),
        ("~/r.so", Some("export GGML_BACKEND_PATH=/home/tom/r.so")),
        ("$HOME/r.so", Some("export GGML_BACKEND_PATH=/home/tom/r.so")),
        ("/opt/npu/libggml-rocke.so", None),
        ("libggml-rocket.so", None),
    ] {
        // What cannot be guessed is installed anew.
        let anew = "sudo rocketctl setup --plugin ./libggml-rocket.so && export \
                    GGML_BACKEND_PATH=/usr/local/lib/ggml-rocket/libggml-rocket.so";
        let fix = fix.or(Some(anew));
        let system = plain().variable(&format!("GGML_BACKEND_PATH={value}"));
        assert_eq!(system.wrong(), ["fail plugin.path"], "{value}");
        let f = system.finding("plugin.path");
        assert_eq!(f.fix.first().map(|f| &*f.run), fix, "{value}: {f:?}");
        assert_eq!(system.finding("plugin.glibc").because, Some("plugin.path"), "{value}");
    }
    let folder = plain().variable("GGML_BACKEND_PATH=/opt/npu").finding("plugin.path");
    assert!(folder.title.contains("must be the file"), "{folder:?}");
    // Of two candidates each is offered, this suite's first. The host's own CPU backend is none.
    let two = plain().variable("GGML_BACKEND_PATH=/opt/npu");
    library(&two.at("opt/npu/an other's.so"), "x", PLUGIN, &[]);
    let f = two.finding("plugin.path");
    let runs: Vec<&str> = f.fix.iter().map(|f| f.run.as_str()).collect();
    assert_eq!(runs, [right, r"export GGML_BACKEND_PATH='/opt/npu/an other'\''s.so'"]);
    let cpu = plain().variable("GGML_BACKEND_PATH=/opt/npu");
    library(&cpu.at("opt/npu/libggml-cpu.so"), "x", PLUGIN, &[]);
    library(&cpu.at("opt/npu/libggml-base.so"), "x", "void ggml_init(void) {}", &[]);
    assert_eq!(cpu.finding("plugin.path").fix[0].run, right);
    let none = System::new().variable("GGML_BACKEND_PATH=/proc").finding("plugin.path");
    assert!(words(&none).contains("holds no plugin"), "{none:?}");
    // The one that a package has put in its place is not installed again.
    let packaged = System::new().variable("GGML_BACKEND_PATH=/proc");
    let there = "usr/lib/ggml-rocket/libggml-rocket.so";
    library(&packaged.at(there), "x", PLUGIN, &[]);
    let fix = &packaged.finding("plugin.path").fix[0];
    assert_eq!(fix.run, format!("export GGML_BACKEND_PATH=/{there}"));
    assert_eq!(fix.undo, "export GGML_BACKEND_PATH=/proc");
    let good = plain().variable("GGML_BACKEND_PATH=/opt/npu/libggml-rocket.so");
    assert_eq!(good.finding("plugin.path").status, Status::Ok);
    let relative = plain().variable("GGML_BACKEND_PATH=opt/npu/libggml-rocket.so");
    assert_eq!(relative.finding("plugin.path").status, Status::Warn);
    let named = plain().plugin("opt/npu/libggml-rocket.so").finding("plugin.path");
    assert_eq!(named.status, Status::Ok, "on a command line: {named:?}");
    let empty = plain().variable("GGML_BACKEND_PATH=").finding("plugin.path");
    assert!(empty.status == Status::Warn && empty.title.contains("not set"), "{empty:?}");
}

/// Files that are no plugin for this machine.
#[test]
fn files_of_another_kind() {
    let of = |bytes: &[u8]| {
        let system = System::new().plugin("/opt/p.so");
        std::fs::create_dir_all(system.at("opt")).unwrap();
        std::fs::write(system.at("opt/p.so"), bytes).unwrap();
        assert_eq!(system.wrong(), ["fail plugin.elf"]);
        system.finding("plugin.elf")
    };
    for (bytes, word) in [
        (&b"#!/bin/sh\n"[..], "a script"),
        (b"GGUF\x03\0\0\0", "a GGUF model"),
        (b"", "an empty file"),
        (b"\x7fELF\x02\x01\x01", "damaged"),
    ] {
        assert!(words(&of(bytes)).contains(word), "{word}: {:?}", of(bytes));
    }
    let system = System::new().plugin("/opt/p.so");
    library(&system.at("opt/p.so"), "p", PLUGIN, &[]);
    let mut bytes = std::fs::read(system.at("opt/p.so")).unwrap();
    assert_eq!(system.finding("plugin.elf").status, Status::Ok);
    // e_machine: RISC-V.
    bytes[18] = 243;
    assert!(of(&bytes).title.contains("for riscv"));
    library(&system.at("opt/p.so"), "p", "void other(void) {}", &[]);
    assert!(system.finding("plugin.elf").title.contains("no ggml_backend_init"));
    compile(&system.at("opt/p.so"), PLUGIN, &["-pie", "-Wl,-e,ggml_backend_score"]);
    assert!(system.finding("plugin.elf").title.contains("no shared library"));
    compile(&system.at("opt/p.so"), PLUGIN, &["-shared"]);
    assert_eq!(system.finding("plugin.elf").status, Status::Ok);
}

/// Two C libraries in one process.
#[test]
fn a_plugin_for_musl_in_a_host_with_glibc() {
    for (theirs, ours, status) in [
        ("libc.so.6", "libc.musl-x.so.1", Status::Fail),
        ("libc.musl-x.so.1", "libc.so.6", Status::Fail),
        ("libc.so.6", "libc.so.6", Status::Ok),
    ] {
        let system = System::new().plugin("/opt/p.so").host("/opt/x");
        let needing = |name: &str| {
            let file = system.at(&format!("build/{name}"));
            library(&file, name, "void f(void) {}", &[]);
            file.to_str().unwrap().to_owned()
        };
        let options = ["-Wl,--no-as-needed", &needing(ours)];
        library(&system.at("opt/p.so"), "p", PLUGIN, &options);
        let options = ["-Wl,--no-as-needed", "-Wl,-e,main", &needing(theirs)];
        compile(&system.at("opt/x"), "int main(void) { return 0; }", &options);
        let f = system.finding("plugin.elf");
        assert_eq!(f.status, status, "{f:?}");
    }
}

/// What a host of a generation exports from its base library.
const BASE: [&str; 3] =
    ["ggml_init", "ggml_backend_dev_get_props", "ggml_backend_sched_split_graph"];
const B2: [&str; 2] = ["ggml_backend_tensor_set_2d_async", "ggml_op_can_inplace"];
const C: [&str; 1] = ["ggml_backend_buft_alloc_buffer_n"];

fn functions(names: &[&str]) -> String {
    names.iter().map(|n| format!("void {n}(void) {{}}\n")).collect()
}

fn calls(names: &[&str]) -> String {
    let all = names.iter().map(|n| format!("void {n}(void);\nvoid by_{n}(void) {{ {n}(); }}\n"));
    all.collect()
}

/// How a stub of a host is made.
struct Recipe {
    base: Vec<&'static str>,
    /// Whether the CPU backend is a module.
    dl: bool,
    cpu: String,
    /// What the program holds beside its calls.
    text: &'static str,
}

impl Recipe {
    fn new() -> Recipe {
        let base = BASE.into_iter().chain(B2).chain(C).collect();
        Recipe { base, dl: true, cpu: functions(&["ggml_get_type_traits_cpu"]), text: "" }
    }

    /// A host at opt/host: libraries, and one program of llama.cpp's form, one of whisper.cpp's.
    fn make(&self, system: &System) {
        let at = |name: &str| system.at(&format!("opt/host/{name}"));
        let file = |name: &str| at(name).to_str().unwrap().to_owned();
        let origin = "-Wl,-rpath,$ORIGIN";
        library(&at("libggml-base.so"), "libggml-base.so.0", &functions(&self.base), &[]);
        std::os::unix::fs::symlink("libggml-base.so", at("libggml-base.so.0")).unwrap();
        let base = file("libggml-base.so");
        library(&at("libggml-cpu.so"), "libggml-cpu.so.0", &self.cpu, &[&base, origin]);
        std::os::unix::fs::symlink("libggml-cpu.so", at("libggml-cpu.so.0")).unwrap();
        let loader = "const char *variable(void) { return \"GGML_BACKEND_PATH\"; }\n".to_owned()
            + &functions(&["ggml_backend_load_all", "ggml_backend_load", "ggml_backend_reg_count"]);
        let cpu = file("libggml-cpu.so");
        let with = if self.dl { vec![&*base] } else { vec![&*base, &*cpu] };
        let mut options = vec!["-Wl,--no-as-needed", origin];
        options.extend(with);
        library(&at("libggml.so"), "libggml.so.0", &loader, &options);
        std::os::unix::fs::symlink("libggml.so", at("libggml.so.0")).unwrap();
        let ggml = file("libggml.so");
        let llama = calls(&["ggml_backend_load_all"]) + &functions(&["llama_backend_init"]);
        let options = ["-Wl,--no-as-needed", origin, &ggml, &base];
        library(&at("libllama.so"), "libllama.so", &llama, &options);
        library(&at("libwhisper.so"), "libwhisper.so", &functions(&["whisper_init"]), &options);
        let (llama, whisper) = (file("libllama.so"), file("libwhisper.so"));
        let options = ["-Wl,--no-as-needed", "-Wl,-e,main", origin, &ggml, &base];
        let main = format!("const char text[] = \"{}\"; int main(void) {{ return 0; }}", self.text);
        for (name, library, source) in [
            // Both import the loader: one for --list-devices.
            ("llama-cli", &llama, calls(&["llama_backend_init", "ggml_backend_load_all"])),
            ("llama-bench", &llama, calls(&["llama_backend_init", "ggml_backend_load_all"])),
            ("whisper-cli", &whisper, calls(&["whisper_init", "ggml_backend_load_all"])),
            ("whisper-old", &whisper, calls(&["whisper_init"])),
            ("llama-other", &llama, calls(&["llama_backend_init", "ggml_backend_load_all"])),
        ] {
            let options: Vec<&str> = options.iter().copied().chain([library.as_str()]).collect();
            compile(&at(name), &format!("{source}{main}"), &options);
        }
    }

    fn system(&self, named: &str) -> System {
        let system = System::new().host(&format!("/opt/host{named}"));
        self.make(&system);
        system
    }
}

/// A12, as far as files tell: the generation by what the base library exports.
#[test]
fn generations_of_hosts() {
    let of = |base: Vec<&'static str>| {
        let system = Recipe { base, ..Recipe::new() }.system("/llama-cli");
        system.finding("host.abi")
    };
    let with = |more: &[&'static str]| BASE.iter().chain(more).copied().collect::<Vec<_>>();
    let newest = of(with(&[B2[0], C[0]]));
    assert!(
        newest.title.starts_with("generation C (") && newest.title.ends_with("API 3"),
        "{newest:?}"
    );
    let middle = of(with(&B2));
    assert!(
        middle.title.starts_with("generation B2 (") && middle.title.ends_with("API 2"),
        "{middle:?}"
    );
    let b1 = of(with(&["ggml_build_forward_select"]));
    assert!(b1.title.starts_with("generation B1 ("), "{b1:?}");
    let odd = of(with(&[C[0]]));
    assert_eq!(odd.status, Status::Warn, "{odd:?}");
    let old = of(vec!["ggml_init"]);
    assert_eq!(old.status, Status::Fail, "{old:?}");
}

/// A shared build without GGML_BACKEND_DL: which programs are deaf, and that there is one finding for it.
#[test]
fn hosts_that_have_their_cpu_backend_linked_in() {
    let linked = |named: &str| Recipe { dl: false, ..Recipe::new() }.system(named);
    let deaf = linked("/llama-cli");
    assert_eq!(deaf.wrong(), ["fail host.dynamic"]);
    let f = deaf.finding("host.dynamic");
    assert!(f.title.contains("llama-cli ignores GGML_BACKEND_PATH"), "{f:?}");
    assert!(f.fix[0].run.contains("GGML_BACKEND_DL=ON"), "{f:?}");
    assert_eq!(deaf.finding("host.loads-backends").because, Some("host.dynamic"));
    assert_eq!(linked("/llama-bench").finding("host.dynamic").status, Status::Ok);
    assert_eq!(linked("/whisper-cli").finding("host.dynamic").status, Status::Ok);
    let other = linked("/llama-other").finding("host.dynamic");
    assert_eq!(other.status, Status::Unknown, "{other:?}");
    let all = linked("").finding("host.dynamic");
    assert_eq!(all.status, Status::Warn);
    assert!(all.title.starts_with("llama-cli ") && words(&all).contains("llama-bench"), "{all:?}");
    for named in ["", "/llama-cli", "/llama-bench", "/whisper-cli"] {
        let dl = Recipe::new().system(named).finding("host.dynamic");
        assert_eq!(dl.status, Status::Ok, "{named}");
    }
}

#[test]
fn hosts_that_never_load_backends() {
    let f = |named: &str| Recipe::new().system(named).finding("host.loads-backends");
    assert_eq!(f("/llama-cli").status, Status::Ok);
    assert_eq!(f("/llama-other").status, Status::Ok);
    assert_eq!(f("/whisper-cli").title, "whisper-cli loads them itself");
    assert_eq!(f("/whisper-old").status, Status::Fail);
    assert!(f("/whisper-old").cause.contains("1.7.6"));
    let all = f("");
    assert!(all.status == Status::Note && all.title.starts_with("whisper-old "), "{all:?}");
    assert_eq!(f("/libllama.so").status, Status::Ok, "as Python loads it");
}

/// Programs with ggml inside, without it, and what is no program.
#[test]
fn hosts_without_shared_libraries() {
    let system = System::new().host("/opt/x");
    let main = "int main(void) { return 0; }";
    compile(
        &system.at("opt/x"),
        &format!("const char t[] = \"GGML_BACKEND_PATH\"; {main}"),
        &["-Wl,-e,main"],
    );
    assert_eq!(system.wrong(), ["fail host.dynamic"]);
    assert!(system.finding("host.dynamic").title.contains("linked into"));
    compile(&system.at("opt/x"), main, &["-Wl,-e,main"]);
    assert!(system.finding("host.dynamic").title.contains("does not use"));
    std::fs::write(system.at("opt/x"), "#!/bin/sh\n").unwrap();
    let script = system.finding("host.dynamic");
    assert!(script.why.as_ref().unwrap().contains("a script"), "{script:?}");
    let empty = System::new().host("/proc");
    assert_eq!(empty.wrong(), ["fail host.dynamic"]);
}

/// A13: where the symbol lives, and why it is not seen there.
#[test]
fn symbols_of_a_sibling() {
    let system = |takes: &[&str], named: Option<&str>| {
        let mut system = Recipe::new().system("").plugin("/opt/p.so");
        library(&system.at("opt/p.so"), "p", &(PLUGIN.to_owned() + &calls(takes)), &[]);
        system.options.host = named.map(|n| format!("/opt/host{n}"));
        system
    };
    let cpu = "ggml_get_type_traits_cpu";
    for named in [Some(""), Some("/llama-cli")] {
        let s = system(&["ggml_init", cpu], named);
        let f = s.finding("plugin.symbols");
        assert_eq!(f.status, Status::Fail);
        for word in [cpu, "libggml-cpu", "RTLD_LOCAL"] {
            assert!(words(&f).contains(word), "{word}: {f:?}");
        }
        assert!(f.title.starts_with(cpu), "the first that is missing: {f:?}");
        assert_eq!(system(&["ggml_init"], named).finding("plugin.symbols").status, Status::Ok);
    }
    let weak = system(&[], Some(""));
    let source = "__attribute__((weak)) void may(void); void use(void) { if (may) may(); }";
    library(&weak.at("opt/p.so"), "p", &format!("{PLUGIN}{source}"), &[]);
    assert_eq!(weak.finding("plugin.symbols").status, Status::Ok, "it may be missing");
    // Without a host: the CPU module's are never seen, those of libggml-base may be.
    assert_eq!(system(&[cpu], None).finding("plugin.symbols").status, Status::Fail);
    let may = system(&["ggml_init"], None).finding("plugin.symbols");
    assert!(
        may.status == Status::Unknown && may.why.as_ref().unwrap().contains("--host"),
        "{may:?}"
    );
    let nobody = system(&["vendor_open"], Some("")).finding("plugin.symbols");
    assert!(nobody.status == Status::Fail && nobody.cause.starts_with("Nothing"), "{nobody:?}");
    // In a build without modules the CPU's library comes along with the program, and is seen.
    let linked = Recipe { dl: false, ..Recipe::new() }.system("/llama-cli").plugin("/opt/p.so");
    library(&linked.at("opt/p.so"), "p", &(PLUGIN.to_owned() + &calls(&[cpu])), &[]);
    assert_eq!(linked.finding("plugin.symbols").status, Status::Ok);
}

/// A plugin that is linked with ggml: the names of the libraries must be one.
#[test]
fn plugins_that_are_linked_with_ggml() {
    let with = |soname: &str, keep: bool| {
        let system = Recipe::new().system("").plugin("/opt/p.so");
        let theirs = system.at(&format!("usr/lib/{soname}"));
        library(&theirs, soname, &functions(&["ggml_init"]), &[]);
        let source = PLUGIN.to_owned() + &calls(&["ggml_init"]);
        library(&system.at("opt/p.so"), "p", &source, &[theirs.to_str().unwrap()]);
        if !keep {
            std::fs::remove_file(theirs).unwrap();
        }
        system.finding("plugin.symbols")
    };
    assert_eq!(with("libggml-base.so.0", false).status, Status::Ok, "the host has it loaded");
    let other = with("libggml-base.so.9", false);
    assert!(other.status == Status::Fail && other.title.contains("libggml-base.so.9"), "{other:?}");
    let two = with("libggml-base.so.9", true);
    assert!(two.status == Status::Warn && two.title.contains("second"), "{two:?}");
    let absent = with("libx.so.1", false);
    assert!(absent.status == Status::Fail && absent.title.contains("libx.so.1"), "{absent:?}");
}

/// A16, the host's side: what tells, the switch, and the switch thrown.
#[test]
fn hosts_that_repack() {
    let packs = "const char name[] = \"CPU_REPACK\\0REPACK\"; ".to_owned();
    let recipe = |cpu: &str, text| Recipe { cpu: cpu.to_owned(), text, ..Recipe::new() };
    let f = recipe(&packs, "--no-repack").system("/llama-cli").finding("host.repack");
    assert_eq!(f.status, Status::Note);
    assert!(f.title.contains("--no-repack") && f.cause.contains("Q4_K"), "{f:?}");
    assert_eq!(f.fix[0].run, "export LLAMA_ARG_REPACK=0");
    let off = recipe(&packs, "--no-repack").system("/llama-cli").variable("LLAMA_ARG_REPACK=0");
    assert_eq!(off.finding("host.repack").status, Status::Ok);
    let none = recipe(&packs, "").system("/whisper-cli").finding("host.repack");
    assert!(none.status == Status::Note && none.title.contains("no switch"), "{none:?}");
    // Without a switch the variable changes nothing.
    let deaf = recipe(&packs, "").system("/whisper-cli").variable("LLAMA_ARG_REPACK=0");
    assert_eq!(deaf.finding("host.repack").status, Status::Note);
    let plain = recipe(&functions(&["ggml_cpu_x"]), "").system("/llama-cli");
    assert_eq!(plain.finding("host.repack").status, Status::Ok);
    // The name is in every build: on x86 nothing more can be told.
    let unsure = recipe("const char name[] = \"CPU_REPACK\";", "--no-repack");
    let unsure = unsure.system("/llama-cli").finding("host.repack");
    let wants = if ARCH == "x86_64" { Status::Unknown } else { Status::Ok };
    assert_eq!(unsure.status, wants, "{unsure:?}");
    let kleidi = recipe(&functions(&["ggml_backend_cpu_kleidiai_buffer_type"]), "");
    assert_eq!(kleidi.system("/llama-cli").finding("host.repack").status, Status::Note);
}

/// A16: host and model in one finding, which has the cause; the switch is the one that this host has.
#[test]
fn hosts_that_repack_this_model() {
    let packs = "const char name[] = \"CPU_REPACK\\0REPACK\"; ";
    let recipe = |cpu: &str, text| Recipe { cpu: cpu.to_owned(), text, ..Recipe::new() };
    let (q5_0, q8_0, q4_k, q6_k) = (6, 8, 12, 14);
    let with = |mut system: System, model: &crate::model::write::Gguf| {
        let system_board = system.board.set("proc/sys/kernel/arch", "aarch64");
        let dir = system_board.0.path().join("a model");
        std::fs::create_dir_all(&dir).unwrap();
        model.write(&dir.join("m.gguf"));
        system.options.model = Some(dir.join("m.gguf"));
        System { board: system_board, options: system.options }
    };
    // What warns of host and model together.
    let warned = |system: &System| -> Vec<String> {
        let all = super::wrong(&system.ask());
        let of_both = |w: &String| w.contains(" host.") || w.contains(" model.");
        all.into_iter().filter(of_both).collect()
    };
    let llama = |kinds: &[u32]| crate::model::write::llama(4, kinds);
    for kinds in [&[q4_k, q6_k][..], &[q8_0]] {
        let host = recipe(packs, "--no-repack LLAMA_ARG_REPACK").system("/llama-cli");
        let system = with(host, &llama(kinds));
        assert_eq!(warned(&system), ["warn host.repack"]);
        let f = system.finding("host.repack");
        assert_eq!(f.title, "97 % of quantized weights never reach the NPU", "29 of 30");
        assert!(f.evidence.iter().any(|e| e.path == "/opt/host/libggml-cpu.so"), "{f:?}");
        assert_eq!(f.fix[0].run, "export LLAMA_ARG_REPACK=0");
        let verify = &f.fix[0].verify;
        assert!(verify.contains("--host /opt/host/llama-cli --model '"), "{verify}");
        assert!(verify.ends_with("m.gguf' --repack off"), "{verify}");
        let run = &f.fix[1].run;
        assert!(
            run.starts_with("/opt/host/llama-cli -m '") && run.ends_with(" --no-repack"),
            "{run}"
        );
        assert_eq!(system.finding("model.types").because, Some("host.repack"));
        // The switch thrown: nothing is left to say of either.
        let off = system.variable("LLAMA_ARG_REPACK=0");
        assert_eq!(warned(&off), [""; 0]);
        assert_eq!(off.finding("model.types").status, Status::Ok);
    }
    // Only the flag, and no switch at all.
    let flag = with(recipe(packs, "--no-repack").system("/llama-cli"), &llama(&[q8_0]));
    let f = flag.finding("host.repack");
    assert!(f.fix.len() == 1 && f.fix[0].run.ends_with("--no-repack"), "{f:?}");
    let none = with(recipe(packs, "").system("/llama-cli"), &llama(&[q8_0]));
    let f = none.finding("host.repack");
    assert_eq!(f.fix[0].run, "cmake -B build -DGGML_CPU_REPACK=OFF && cmake --build build");
    // A model of which nothing is packed, and a host that packs nothing.
    let plain = with(recipe(packs, "--no-repack").system("/llama-cli"), &llama(&[q5_0]));
    assert_eq!(warned(&plain), ["note host.repack"]);
    let keeps = recipe(&functions(&["ggml_cpu_x"]), "").system("/llama-cli");
    assert_eq!(warned(&with(keeps, &llama(&[q8_0]))), [""; 0]);
    // A host that hears of no plugin has that as its one finding.
    let deaf = Recipe { dl: false, cpu: packs.to_owned(), text: "--no-repack", ..Recipe::new() };
    let deaf = with(deaf.system("/llama-cli"), &llama(&[q8_0]));
    assert_eq!(warned(&deaf), ["fail host.dynamic"]);
    assert_eq!(deaf.finding("model.types").because, Some("host.dynamic"));
}

#[test]
fn other_accelerators() {
    let with = |name: &str| {
        let system = Recipe::new().system("/llama-cli");
        library(&system.at(&format!("opt/host/libggml-{name}.so")), "x", PLUGIN, &[]);
        system
    };
    assert_eq!(Recipe::new().system("").finding("host.rival").status, Status::Ok);
    let gpu = with("vulkan");
    assert_eq!(gpu.finding("host.rival").status, Status::Note);
    assert_eq!(gpu.variable("LLAMA_ARG_N_GPU_LAYERS=0").finding("host.rival").status, Status::Ok);
    let blas = with("blas").finding("host.rival");
    assert_eq!(blas.status, Status::Warn);
    assert!(blas.fix[0].run.starts_with("sudo mv /opt/host/libggml-blas.so "), "{blas:?}");
    // One that is linked in is built out.
    let linked = Recipe::new().system("/llama-cli");
    let at = |n: &str| linked.at(&format!("opt/host/{n}")).to_str().unwrap().to_owned();
    library(&linked.at("opt/host/libggml-blas.so.0"), "libggml-blas.so.0", PLUGIN, &[]);
    let main = format!("int main(void) {{ return 0; }} {}", calls(&["ggml_backend_load_all"]));
    let libraries = [at("libggml.so"), at("libggml-base.so"), at("libggml-blas.so.0")];
    let mut options = vec!["-Wl,--no-as-needed", "-Wl,-e,main", "-Wl,-rpath,$ORIGIN"];
    options.extend(libraries.iter().map(String::as_str));
    compile(&linked.at("opt/host/llama-cli"), &main, &options);
    let f = linked.finding("host.rival");
    assert_eq!(f.fix[0].run, "cmake -B build -DGGML_BLAS=OFF && cmake --build build", "{f:?}");
    for name in ["rpc", "rocket", "cpu-haswell"] {
        assert_eq!(with(name).finding("host.rival").status, Status::Ok, "{name}");
    }
}

#[test]
fn image_encoders() {
    let with = |text: &'static str, variable: &str| {
        let recipe = Recipe { text, ..Recipe::new() };
        let system = recipe.system("/llama-cli").variable(variable);
        let source = functions(&["mtmd_init_from_file"]);
        let encoder = system.at("opt/host/libmtmd.so");
        library(&encoder, "libmtmd.so", &source, &[]);
        let main = format!(
            "const char text[] = \"{text}\"; int main(void) {{ return 0; }} {}",
            calls(&["mtmd_init_from_file"])
        );
        let at = |n: &str| system.at(&format!("opt/host/{n}")).to_str().unwrap().to_owned();
        let libraries = [at("libggml.so"), at("libggml-base.so"), at("libmtmd.so")];
        let mut options = vec!["-Wl,--no-as-needed", "-Wl,-e,main", "-Wl,-rpath,$ORIGIN"];
        options.extend(libraries.iter().map(String::as_str));
        compile(&system.at("opt/host/llama-cli"), &main, &options);
        system.finding("host.mmproj-device")
    };
    assert_eq!(Recipe::new().system("/llama-cli").finding("host.mmproj-device").status, Status::Ok);
    let unnamed = with("MTMD_BACKEND_DEVICE", "A=b");
    assert_eq!(unnamed.status, Status::Note);
    assert_eq!(unnamed.fix[0].run, "export MTMD_BACKEND_DEVICE=ROCKET");
    assert_eq!(with("MTMD_BACKEND_DEVICE", "MTMD_BACKEND_DEVICE=ROCKET").status, Status::Ok);
    let other = with("MTMD_BACKEND_DEVICE", "MTMD_BACKEND_DEVICE=Vulkan0");
    assert!(other.status == Status::Note && other.cause.contains("Vulkan0"), "{other:?}");
    assert!(with("", "A=b").title.contains("GPUs alone"));
}

/// The plugin's own words about its settings.
#[test]
fn settings() {
    let f = |line: &str| System::new().variable(line).finding("plugin.knobs");
    assert_eq!(f("ROCKET_MIN_M=64").status, Status::Ok);
    let near = f("ROCKET_MIN_N=64");
    assert_eq!(near.fix[0].run, "unset ROCKET_MIN_N; export ROCKET_MIN_M=64");
    assert_eq!(near.status, Status::Warn);
    let odd = f("ROCKET_MIN_M=many");
    assert!(odd.status == Status::Warn && words(&odd).contains("is not in the range"), "{odd:?}");
    assert_eq!(f("ROCKET_SIM_BOARD=x").status, Status::Ok, "another tool's");
    let file = f("ROCKET_CONFIG=/etc/npu.yaml");
    assert!(words(&file).contains("there is no such file"), "{file:?}");
    let system = System::new().variable("ROCKET_CONFIG=/etc/npu.yaml");
    std::fs::create_dir_all(system.at("etc")).unwrap();
    std::fs::write(system.at("etc/npu.yaml"), "settings: {min_n: 3}\n").unwrap();
    let file = system.finding("plugin.knobs");
    assert!(file.status == Status::Warn && words(&file).contains("min_n"), "of the tree: {file:?}");
    let two = f("ROCKET_MIN_N=64\nROCKET_XYZZY=1");
    assert!(two.title.starts_with("2 settings") && two.fix.len() == 2, "{two:?}");
    assert_eq!(two.fix[1].run, "unset ROCKET_XYZZY");
    assert_eq!(
        (&*odd.fix[0].run, &*odd.fix[0].undo),
        ("unset ROCKET_MIN_M", "export ROCKET_MIN_M=many")
    );
    assert_eq!(file.fix[0].run, "export ROCKET_CONFIG=none", "{file:?}");
}

/// What processors are asked for.
#[test]
fn instructions() {
    let ours = OURS;
    let system = |source: &str, options: &[&str]| {
        let system = System::new().plugin("/opt/p.so");
        library(&system.at("opt/p.so"), "p", &format!("{PLUGIN}{source}"), options);
        system
    };
    assert_eq!(system(ours, &[]).finding("plugin.cpu").status, Status::Ok);
    let foreign = system("", &[]).finding("plugin.cpu");
    assert_eq!(foreign.status, Status::Unknown, "{foreign:?}");
    if ARCH == "x86_64" {
        let newer = system("", &["-Wl,-z,x86-64-v4"]);
        let f = newer.finding("plugin.cpu");
        assert!(f.status == Status::Fail && words(&f).contains("avx512f"), "{f:?}");
        assert_eq!(system("", &["-Wl,-z,x86-64-v3"]).finding("plugin.cpu").status, Status::Ok);
    }
    let unseen = system(ours, &[]);
    std::fs::remove_file(unseen.at("proc/cpuinfo")).unwrap();
    assert_eq!(unseen.finding("plugin.cpu").status, Status::Unknown);
}

/// A host in a system of its own has that system's C library and loader.
#[test]
fn a_host_in_a_root_of_its_own() {
    let system = floor(&[("GLIBC_2.38", "__isoc23_strtol")], "GLIBC_2.36").host("/srv/root");
    let inside = |path: &str| system.at(&format!("srv/root/{path}"));
    libc(&inside(&libc_path()), &["GLIBC_2.17", "GLIBC_2.43"]);
    library(&inside("usr/lib/libggml-base.so"), "libggml-base.so.0", &functions(&BASE), &[]);
    assert_eq!(system.finding("plugin.glibc").status, Status::Fail, "no loader: no root");
    // Where /lib is /usr/lib, the loader is in /usr as well: that is no system of its own.
    let mut app = floor(&[("GLIBC_2.17", "memcpy")], "GLIBC_2.36").host("/usr/lib/app");
    library(&app.at("usr/lib/app/libggml-base.so"), "libggml-base.so.0", &functions(&BASE), &[]);
    libc(&app.at("usr/lib/libc.so.6"), &["GLIBC_2.4"]);
    let loaders = ["lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"];
    let put = |path: PathBuf| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    };
    for loader in loaders {
        put(app.at(&format!("usr/{loader}")));
    }
    assert_eq!(app.finding("plugin.glibc").status, Status::Ok);
    app.options.host = None;
    assert_eq!(app.finding("plugin.glibc").status, Status::Ok);
    loaders.into_iter().for_each(|loader| put(inside(loader)));
    let f = system.finding("plugin.glibc");
    assert!(f.status == Status::Fail && words(&f).contains("GLIBC_2.43"), "{f:?}");
}

#[test]
fn every_check_of_these_says_what_it_is_about() {
    let named = |id: &str| id.starts_with("plugin.") || id.starts_with("host.");
    assert_eq!(checks::ALL.iter().filter(|c| named(c.id)).count(), 12);
}
