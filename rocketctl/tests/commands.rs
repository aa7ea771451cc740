//! The program as people start it: statuses, streams, and the JSON that others read.

#![allow(clippy::unwrap_used)] // tests, and what they share

use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

fn rocketctl(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rocketctl"));
    command.args(arguments).env_remove("GGML_BACKEND_PATH").env("ROCKET_CONFIG", "none");
    command
}

fn run(arguments: &[&str]) -> Output {
    rocketctl(arguments).output().unwrap()
}

fn status(arguments: &[&str]) -> i32 {
    run(arguments).status.code().unwrap()
}

fn json(arguments: &[&str]) -> (i32, Value) {
    let done = run(arguments);
    let said = String::from_utf8_lossy(&done.stderr);
    (done.status.code().unwrap(), serde_json::from_slice(&done.stdout).expect(&said))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file that stands for the plugin: its path is all that `run` looks at.
fn plugin() -> tempfile::NamedTempFile {
    tempfile::NamedTempFile::new().unwrap()
}

fn host(plugin: &Path, command: &[&str]) -> Output {
    let plugin = plugin.display().to_string();
    run(&[&["run", "--plugin", &plugin, "--"], command].concat())
}

#[test]
fn a_host_runs_with_its_environment_and_its_status() {
    let file = plugin();
    let done = host(file.path(), &["sh", "-c", "echo $GGML_BACKEND_PATH; exit 7"]);
    assert_eq!(done.status.code(), Some(7));
    let path = file.path().canonicalize().unwrap();
    assert_eq!(text(&done.stdout).trim(), path.display().to_string());
    // A signal ends the host, and whoever waits for it sees that.
    let done = host(file.path(), &["sh", "-c", "kill -TERM $$"]);
    assert_eq!(done.status.signal(), Some(15), "{}", text(&done.stderr));
}

#[test]
fn what_does_not_start_has_the_status_that_env_has() {
    let file = plugin();
    assert_eq!(host(file.path(), &["/nowhere/host"]).status.code(), Some(127));
    assert_eq!(host(file.path(), &["/etc/passwd"]).status.code(), Some(126));
    assert_eq!(host(Path::new("/nowhere.so"), &["true"]).status.code(), Some(125));
    assert_eq!(status(&["run"]), 125);
    assert_eq!(status(&["run", "--no-such-option", "--", "true"]), 125);
    assert_eq!(status(&["--quiet", "run"]), 125);
    let file = file.path().display().to_string();
    let done = run(&["run", "--plugin", &file, "--profile", "absent", "--", "true"]);
    assert_eq!(done.status.code(), Some(125));
    assert!(text(&done.stderr).contains("absent"), "{}", text(&done.stderr));
}

/// Where there is no NPU the host runs all the same, and that is said on stderr alone.
#[test]
fn a_machine_without_an_npu_is_no_obstacle() {
    let file = plugin();
    let done = host(file.path(), &["echo", "answer"]);
    assert_eq!((done.status.code(), text(&done.stdout).trim()), (Some(0), "answer"));
    if !Path::new("/dev/accel").exists() {
        assert!(text(&done.stderr).contains("the host runs on the CPU"), "{}", text(&done.stderr));
    }
    let path = file.path().display().to_string();
    let quiet = run(&["run", "--quiet", "--plugin", &path, "--", "true"]);
    assert!(quiet.stderr.is_empty(), "{}", text(&quiet.stderr));
}

#[test]
fn selftest_and_its_report() {
    let (status, report) = json(&["selftest", "--sim", "--exact", "--json"]);
    assert_eq!((status, &report["exit"], &report["schema"]), (0, &0.into(), &1.into()));
    assert!(report["findings"].as_array().unwrap().len() > 15);
    let (status, report) =
        json(&["selftest", "--sim", "--fault", "refuse:submit:ENOMEM", "--json"]);
    assert_eq!((status, &report["exit"]), (1, &1.into()));
    // Without --sim nothing is injected into whatever is there.
    let done = run(&["selftest", "--fault", "drop-job:0"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("--sim"));
    if !Path::new("/dev/accel").exists() {
        let done = run(&["selftest", "--node", "/dev/null"]);
        assert_eq!(done.status.code(), Some(1));
        assert!(text(&done.stdout).contains("--sim"), "{}", text(&done.stdout));
    }
    assert_eq!(self::status(&["selftest", "--root", "/tmp"]), 2);
}

#[test]
fn bench_on_a_simulated_board() {
    let arguments = ["bench", "--sim", "--shape", "64x256x128", "--repetitions", "1", "--json"];
    let (status, output) = json(&arguments);
    assert_eq!((status, &output["simulated"]), (0, &true.into()));
    assert_eq!(output["products"].as_array().unwrap().len(), 7);
    assert_eq!(output["products"][0]["shape"], serde_json::json!([64, 256, 128]));
    assert_eq!(self::status(&["bench", "--sim", "--shape", "0x1x1"]), 2);
}

#[test]
fn names_and_settings() {
    let done = run(&["explain", "too_few_rows"]);
    assert!(done.status.success() && text(&done.stdout).contains("ROCKET_MIN_M"));
    assert_eq!(status(&["explain", "no-such-name"]), 2);
    let done = rocketctl(&["knobs", "--json"]).env("ROCKET_MIN_N", "4").output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    let output: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(output["warnings"][0].as_str().unwrap().contains("ROCKET_MIN_M"));
    assert!(output["settings"].as_array().unwrap().len() > 60);
}

#[test]
fn no_host_is_nothing_to_say_anything_of() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().display().to_string();
    let (status, output) = json(&["--root", &root, "why", "--json"]);
    assert_eq!((status, &output["exit"]), (3, &3.into()));
    assert_eq!(self::status(&["--root", &root, "stats"]), 3);
    let done = run(&["--root", &root, "stats", "--prometheus"]);
    assert!(done.status.success() && text(&done.stdout).contains("rocket_processes 0"));
}

#[test]
fn pages_and_completions_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display().to_string();
    assert_eq!(status(&["man", &path]), 0);
    assert!(
        dir.path().join("rocketctl.1").is_file() && dir.path().join("rocketctl-why.1").is_file()
    );
    assert_eq!(status(&["man", "/nowhere"]), 2);
    assert!(text(&run(&["completions", "bash"]).stdout).contains("_rocketctl"));
}

/// The series of this repository on a source: conflicts are named, and nothing is half done.
#[test]
fn patches_of_a_source_and_of_a_module() {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("rocket_job.c");
    std::fs::write(&job, "int rocket_job_run(void)\n{\n\treturn 0;\n}\n").unwrap();
    let source = dir.path().display().to_string();
    let patches = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernel-patches");
    let done = run(&["patch", "apply", &source, "--patches", patches, "--yes"]);
    let said = text(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.contains("nothing was changed") && said.contains("domain-allocator"), "{said}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let series = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/boards/rk3588-series");
    let (status, output) = json(&["patch", "status", "--root", series, "--json"]);
    let states = output["patches"].as_array().unwrap();
    let of = |id: &str| states.iter().find(|p| p["id"] == id).unwrap()["state"].clone();
    assert_eq!((&output["schema"], of("keep-attached")), (&1.into(), "applied".into()));
    assert_eq!(output["exit"], status);
    let stock = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/boards/rk3588-stock");
    let (status, output) = json(&["patch", "status", "--root", stock, "--json"]);
    assert_eq!((status, &output["exit"]), (1, &1.into()));
    let laptop = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/boards/laptop");
    assert_eq!(self::status(&["patch", "status", "--root", laptop]), 3);
    assert_eq!(self::status(&["patch", "check", "--root", stock]), 1);
    assert_eq!(self::status(&["patch", "check", "--root", stock, "--release", "../x"]), 2);
}

/// Another process's counters: it runs while it holds its file, and has ended once it does not.
#[test]
fn counters_of_another_process() {
    use rocket_runtime::telemetry::{Directory, Place, RowKey, Writer};
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("dev/shm");
    std::fs::create_dir_all(&place).unwrap();
    let writer = Writer::create(&[Directory::existing(&place)], &[("program", "host")]).unwrap();
    let key = RowKey {
        place: Place::Declined,
        op: "MUL_MAT",
        weight: "q4_k",
        k: 64,
        n: 64,
        rows: 1,
        outcome: "too_few_rows",
    };
    writer.update(|image| image.count(&key, 5, 0, 0));
    assert!(writer.publish());
    let root = dir.path().display().to_string();
    let state = || {
        let (status, output) = json(&["--root", &root, "why", "--json"]);
        assert_eq!((status, &output["processes"][0]["rows"][0]["calls"]), (0, &5.into()));
        output["processes"][0]["state"].clone()
    };
    assert_eq!(state(), "running");
    drop(writer);
    assert_eq!(state(), "ended");
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 1, "nothing is removed below a root");
    let (status, output) = json(&["--root", &root, "why", "--json", "--pid", "1"]);
    assert_eq!((status, &output["exit"]), (3, &3.into()));
}

/// A report is looked at: what would change the system that it is of refuses, in words.
#[test]
fn reports_are_not_changed() {
    let board = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/boards/rk3588-stock");
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("r.tar.gz").display().to_string();
    assert_eq!(status(&["--root", &board.display().to_string(), "report", &report]), 0);
    let source = dir.path().join("source").display().to_string();
    for words in [
        &["setup", "--yes"][..],
        &["setup", "--undo", "--yes"],
        &["udev", "install", "--yes"],
        &["udev", "remove", "--yes"],
        &["overlay", "install", "--yes"],
        &["overlay", "remove", "--yes"],
        &["clock", "set", "600MHz", "--yes"],
        &["clock", "undo", "--yes"],
        &["unit", "install", "--yes"],
        &["unit", "remove", "--yes"],
        &["patch", "apply", &source, "--yes"],
        &["patch", "install", &source, "--yes"],
        &["patch", "revert", "--yes"],
    ] {
        let refusal = "is a report, which is looked at and not changed";
        let with = |more: &[&str]| run(&[&["--root", report.as_str()], words, more].concat());
        let done = with(&[]);
        assert_eq!(done.status.code(), Some(2), "{words:?}");
        assert!(text(&done.stderr).contains(refusal), "{words:?}: {}", text(&done.stderr));
        let shown = with(&["--dry-run"]);
        assert!(!text(&shown.stderr).contains(refusal), "{words:?}");
    }
    // Looking is what it is for, and files for elsewhere may be made of it.
    assert_eq!(status(&["--root", &report, "udev", "show"]), 0);
    let out = dir.path().join("out").display().to_string();
    assert_eq!(status(&["--root", &report, "udev", "install", "--emit", &out]), 0);
}
