//! rocketctl's doctor and load test against what real hosts do with the same plugin.

use crate::{Setup, named};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What rocketctl prints as JSON, with nothing of this test's own environment.
fn rocketctl(arguments: &[&str], variables: &[(&str, &str)]) -> Value {
    let mut c = Command::new(named("ROCKET_TEST_ROCKETCTL"));
    clean(&mut c);
    let out =
        c.args(arguments).arg("--json").envs(variables.iter().copied()).output().expect("runs");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let report: Value =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
    assert_eq!(report["exit"].as_i64(), out.status.code().map(i64::from));
    report
}

fn clean(c: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["ROCKET_", "GGML_", "LLAMA_", "LD_"].iter().any(|p| text.starts_with(p)) {
            c.env_remove(&name);
        }
    }
}

fn finding<'a>(report: &'a Value, id: &str) -> &'a Value {
    let all = report["findings"].as_array().expect("findings");
    all.iter().find(|f| f["id"] == id).unwrap_or_else(|| panic!("no {id} in {report:#}"))
}

fn title<'a>(report: &'a Value, id: &str) -> &'a str {
    finding(report, id)["title"].as_str().expect("a title")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The generation that the plugin found in a host, by its own line: `..., interface C`.
fn interface(out: &Output) -> String {
    let log = String::from_utf8_lossy(&out.stderr);
    let found =
        log.lines().find_map(|l| l.split_once("ggml-rocket: ")?.1.rsplit_once("interface "));
    found.unwrap_or_else(|| panic!("the plugin was not loaded: {log}")).1.trim().to_owned()
}

/// A program of a host with the plugin, as far as a model that is not there.
fn started(s: &Setup, program: &str, arguments: &[&str], plugin: &Path) -> Output {
    let mut c = s.command(program);
    c.env("GGML_BACKEND_PATH", plugin).env("ROCKET_DEVICE", "sim").env("ROCKET_LOG_STDERR", "1");
    c.args(arguments).output().expect("runs")
}

/// What the doctor reads, what the load test measures and what the plugin says in the real program is one
/// generation; the device is there.
fn agree(s: &Setup, program: &str, path: &Path, arguments: &[&str], repacks: bool) {
    let real = interface(&started(s, program, arguments, &s.plugin));
    let (host, file, plugin) = (text(&s.host), text(path), text(&s.plugin));
    for named in [host, file] {
        let read = rocketctl(&["doctor", "--host", named, "--plugin", plugin], &[]);
        println!("{named}: {real}; {}; {}", title(&read, "host.abi"), title(&read, "host.dynamic"));
        assert!(title(&read, "host.abi").starts_with(&format!("generation {real} (")), "{real}");
        for id in
            ["plugin.elf", "plugin.glibc", "plugin.symbols", "host.dynamic", "host.loads-backends"]
        {
            let status = &finding(&read, id)["status"];
            assert!(status == "ok" || (status == "note" && named == host), "{id}: {read:#}");
        }
        let loaded =
            rocketctl(&["load-test", plugin, "--host", named], &[("ROCKET_DEVICE", "sim")]);
        let measured = title(&loaded, "load.interface");
        assert!(measured.starts_with(&format!("host generation {real} (")), "{measured}");
        assert_eq!(loaded["exit"], 0, "{loaded:#}");
        assert!(title(&loaded, "load.devices").contains("ROCKET"), "{loaded:#}");
        let backends = title(&loaded, "load.backends");
        assert_eq!(backends.contains("CPU_REPACK"), repacks, "{backends}");
        // The files alone must not say otherwise.
        let by_files = finding(&read, "host.repack");
        let says = (by_files["status"] == "ok", by_files["status"] == "note");
        assert!(says != (repacks, !repacks) || by_files["status"] == "unknown", "{by_files:#}");
    }
}

#[test]
fn host_doctor_and_load_test_agree_with_llama() {
    let s = Setup::named();
    let program = s.host.join("usr/bin/llama-completion");
    agree(&s, "llama-completion", &program, &["-m", "/none"], true);
}

#[test]
fn host_doctor_and_load_test_agree_with_whisper() {
    let all = named("ROCKET_TEST_WHISPER_HOSTS");
    let mut seen = 0;
    for host in std::env::split_paths(&all).filter(|p| !p.as_os_str().is_empty()) {
        let s = Setup::in_host(host);
        let program = s.host.join("bin/whisper-cli");
        // Any file that is there: the model is looked for first.
        agree(&s, "whisper-cli", &program, &["-m", "/none", "-f", text(&program)], false);
        seen += 1;
    }
    assert!(seen >= 2, "{seen}");
}

/// Under the profile `source-host`: llama.cpp of API 2 and of API 1.
#[test]
fn host_source_doctor_and_load_test_agree() {
    for (variable, program) in [
        ("ROCKET_TEST_SOURCE_HOST", "llama-completion"),
        ("ROCKET_TEST_SIMPLE_HOST", "llama-simple"),
    ] {
        let s = Setup::in_host(named(variable));
        let path = s.host.join("bin").join(program);
        agree(&s, program, &path, &["-m", "/none"], false);
    }
}

/// A name that is a folder: the real host passes it over, the doctor says why.
#[test]
fn host_doctor_on_names_that_a_real_host_passes_over() {
    let s = Setup::named();
    let folder = s.scratch.path().join("plugins");
    std::fs::create_dir(&folder).expect("folder");
    let file = folder.join("libggml-rocket.so");
    std::fs::copy(&s.plugin, &file).expect("copies");
    for value in
        [text(&folder).to_owned(), format!("{} ", text(&file)), format!("\"{}\"", text(&file))]
    {
        let real = started(&s, "llama-completion", &["-m", "/none"], Path::new(&value));
        let log = String::from_utf8_lossy(&real.stderr).into_owned();
        assert!(!log.contains("ggml-rocket: "), "{value:?} was loaded: {log}");
        let read = rocketctl(&["doctor"], &[("GGML_BACKEND_PATH", &value)]);
        let f = finding(&read, "plugin.path");
        assert_eq!((&f["status"], &read["exit"]), (&"fail".into(), &1.into()), "{f:#}");
        let fix = format!("export GGML_BACKEND_PATH={}", text(&file));
        assert_eq!(f["fix"][0]["run"], fix, "{f:#}");
    }
    let right = started(&s, "llama-completion", &["-m", "/none"], &file);
    assert_eq!(interface(&right), "C");
}

/// A plugin of a few lines in the scratch folder.
fn plugin(s: &Setup, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let at = |name: &str| s.scratch.path().join(name);
    let (file, out) = (at("plugin.c"), at(name));
    std::fs::write(&file, source).expect("writes");
    let mut c = Command::new("gcc");
    c.args(["-shared", "-fPIC", "-O1", "-w", "-o"]).arg(&out).arg(file).args(options);
    let built = c.output().expect("gcc");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    out
}

/// What ends a real host ends the load test alone, which says how and where; also inside another system.
#[test]
fn host_load_test_outlives_a_plugin_that_aborts() {
    let whisper = named("ROCKET_TEST_WHISPER_HOSTS");
    let whisper = std::env::split_paths(&whisper).next().expect("a host");
    for (s, program) in
        [(Setup::named(), "llama-completion"), (Setup::in_host(whisper), "whisper-cli")]
    {
        let source = "#include <stdlib.h>
            __attribute__((constructor)) void f(void) { abort(); }
            void *ggml_backend_init(void) { return 0; }";
        let aborts = plugin(&s, "aborts.so", source, &[]);
        let real = started(&s, program, &["-m", "/none", "-f", text(&aborts)], &aborts);
        assert!(!real.status.success(), "{program} goes on");
        let loaded = rocketctl(&["load-test", text(&aborts), "--host", text(&s.host)], &[]);
        let expected = "ended by SIGABRT while the plugin was opened (its constructors)";
        assert_eq!(title(&loaded, "load.open"), expected, "{loaded:#}");
    }
}

/// A11 with the real loader: the version that the files show to be missing is the one that it misses.
#[test]
fn host_load_test_names_the_version_that_the_loader_misses() {
    let s = Setup::named();
    let script = s.scratch.path().join("versions");
    std::fs::write(&script, "GLIBC_2.99 { global: from_tomorrow; };\n").expect("writes");
    let option = format!("-Wl,--version-script={}", script.display());
    let options = ["-nostdlib", "-Wl,-soname,libc.so.6", &option];
    let libc = plugin(&s, "libc.so.6", "void from_tomorrow(void) {}", &options);
    let source =
        "void from_tomorrow(void); void *ggml_backend_init(void) { from_tomorrow(); return 0; }";
    let newer = plugin(&s, "newer.so", source, &["-nostdlib", text(&libc)]);
    let loaded = rocketctl(&["load-test", text(&newer), "--host", text(&s.host)], &[]);
    let f = finding(&loaded, "plugin.glibc");
    assert_eq!(f["title"], "the plugin needs GLIBC_2.99", "{loaded:#}");
    let evidence = f["evidence"].to_string();
    assert!(evidence.contains("from_tomorrow"), "by the files: {evidence}");
    assert!(evidence.contains("version `GLIBC_2.99' not found"), "by the loader: {evidence}");
    assert_eq!(finding(&loaded, "load.open")["because"], "plugin.glibc");
}

/// Where there is no bubblewrap, the host's own loader serves.
#[test]
fn host_load_test_without_bubblewrap() {
    let s = Setup::named();
    let arguments = ["load-test", text(&s.plugin), "--host", text(&s.host)];
    let loaded = rocketctl(&arguments, &[("ROCKET_DEVICE", "sim"), ("PATH", "/nowhere")]);
    assert!(title(&loaded, "load.libraries").contains("no bubblewrap"), "{loaded:#}");
    assert_eq!(loaded["exit"], 0, "{loaded:#}");
}

/// A host of llama.cpp's form, whose CPU backend is a module or linked in.
struct Built(tempfile::TempDir);

impl Built {
    fn new(modules: bool) -> Built {
        let built = Built(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("folder"));
        let library = |name: &str| vec!["-shared".to_owned(), format!("-Wl,-soname,{name}")];
        let numbers = ["-DSLOTS=16", "-DPROPS=56", "-DAPI=3", "-DBUFT=8"].map(str::to_owned);
        let mut base = library("libggml-base.so");
        base.extend(numbers);
        base.extend(modules.then(|| "-DEMPTY".to_owned()));
        built.part("libggml-base.so", "loading.c", &base, &[]);
        built.part(
            "libggml-cpu.so",
            "llama.c",
            &[library("libggml-cpu.so"), vec!["-DCPU".into()]].concat(),
            &["libggml-base.so"],
        );
        let mut with = vec!["libggml-base.so"];
        with.extend((!modules).then_some("libggml-cpu.so"));
        built.part(
            "libggml.so",
            "llama.c",
            &[library("libggml.so"), vec!["-DGGML".into()]].concat(),
            &with,
        );
        let ggml = ["libggml.so", "libggml-base.so"];
        built.part(
            "libllama.so",
            "llama.c",
            &[library("libllama.so"), vec!["-DLLAMA".into()]].concat(),
            &ggml,
        );
        let all = ["libllama.so", "libggml.so", "libggml-base.so"];
        built.part("llama-cli", "llama.c", &["-DCLI".to_owned()], &all);
        built.part("llama-bench", "llama.c", &["-DBENCH".to_owned()], &all);
        built
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn part(&self, name: &str, source: &str, options: &[String], with: &[&str]) {
        let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/c")).join(source);
        let mut c = Command::new("gcc");
        c.args(["-std=gnu11", "-O1", "-fPIC", "-w", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN"]);
        c.args(options).arg(source).arg("-o").arg(self.at(name));
        let out = c.args(with.iter().map(|w| self.at(w))).arg("-ldl").output().expect("gcc");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }

    /// Whether a program opens the plugin.
    fn opens(&self, program: &str, plugin: &Path) -> bool {
        let mut c = Command::new(self.at(program));
        clean(&mut c);
        c.env("GGML_BACKEND_PATH", plugin)
            .env("ROCKET_DEVICE", "sim")
            .env("ROCKET_LOG_STDERR", "1");
        let out = c.output().expect("runs");
        assert!(out.status.success(), "{program}: {}", out.status);
        let both = [out.stdout, out.stderr].concat();
        String::from_utf8_lossy(&both).contains("ggml-rocket: ")
    }
}

/// Shared builds without GGML_BACKEND_DL: the program that ignores the variable without a word is named before it is
/// run, and the one that does not is not.
#[test]
fn host_doctor_knows_which_programs_ignore_the_variable() {
    let plugin = named("ROCKET_TEST_PLUGIN");
    let mut deaf = Vec::new();
    for modules in [true, false] {
        let host = Built::new(modules);
        for program in ["llama-cli", "llama-bench"] {
            let opens = host.opens(program, &plugin);
            let path = host.at(program);
            let read =
                rocketctl(&["doctor", "--host", text(&path), "--plugin", text(&plugin)], &[]);
            let statuses = ["host.dynamic", "host.loads-backends"]
                .map(|id| finding(&read, id)["status"].clone());
            let fine = statuses.iter().all(|s| s == "ok");
            assert_eq!(fine, opens, "{program}, modules {modules}: {read:#}");
            let loaded = rocketctl(
                &["load-test", text(&plugin), "--host", text(&path)],
                &[("ROCKET_DEVICE", "sim")],
            );
            assert_eq!(finding(&loaded, "load.devices")["status"], "ok", "it could: {loaded:#}");
            assert_eq!(loaded["exit"] == 0, opens, "{loaded:#}");
            if !opens {
                assert!(title(&read, "host.dynamic").contains("ignores GGML_BACKEND_PATH"));
                deaf.push((modules, program));
            }
        }
    }
    assert_eq!(deaf, [(false, "llama-cli")]);
}
