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
