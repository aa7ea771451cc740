//! `sim run` itself: what it starts, passes on and returns.

use crate::wait::until;
use crate::{Sim, compiled, job, node_program, stderr_of, stdout_of, succeed};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

fn shell(script: &str) -> [&str; 3] {
    ["sh", "-c", script]
}

#[test]
fn the_exit_status_is_the_programs() {
    let sim = Sim::ready();
    let status = |options: &[&str], command: &[&str]| {
        let out = sim.run(options, command).output().expect("runs");
        (out.status.code(), stderr_of(&out))
    };
    assert_eq!(status(&[], &["true"]), (Some(0), String::new()));
    assert_eq!(status(&[], &shell("exit 7")), (Some(7), String::new()));
    assert_eq!(status(&[], &shell("exit 255")), (Some(255), String::new()));
    assert_eq!(status(&[], &shell("kill -TERM $$")), (Some(128 + 15), String::new()));
    assert_eq!(status(&[], &shell("kill -KILL $$")), (Some(128 + 9), String::new()));
    let (code, told) = status(&[], &["no-such-program-anywhere"]);
    assert_eq!(code, Some(127), "{told}");
    let text = sim.scratch().join("text");
    std::fs::write(&text, "neither program nor script\n").expect("writes");
    let (code, told) = status(&[], &[&text.to_string_lossy()]);
    assert_eq!(code, Some(126), "{told}");
    std::fs::set_permissions(&text, std::fs::Permissions::from_mode(0o755)).expect("sets");
    let (code, told) = status(&[], &[&text.to_string_lossy()]);
    assert_eq!(code, Some(126), "{told}");
    let (code, told) = status(&["--board", "../up"], &["true"]);
    assert_eq!(code, Some(125), "{told}");
    assert!(told.contains("cannot name a board"), "{told}");
}

#[test]
fn strict_is_about_broken_rules() {
    let sim = Sim::ready();
    let (node, job) = (node_program(), job::constant().write(sim.scratch()));
    let run = |options: &[&str], command: &str| {
        let command = [node.as_os_str(), command.as_ref(), "stock".as_ref(), job.as_os_str()];
        let out = sim.run(options, &command).output().expect("runs");
        (out.status.code(), stderr_of(&out))
    };
    assert_eq!(run(&["--strict"], "compute"), (Some(0), String::new()));
    let (code, told) = run(&["--strict"], "hang");
    assert_eq!(code, Some(1));
    assert!(told.contains("rocket-sim: ") && told.contains("f0000000"), "{told}");
    assert_eq!(run(&[], "hang").0, Some(0));
    assert_eq!(run(&["--quiet"], "hang"), (Some(0), String::new()));
}

#[test]
fn without_an_exit_status_nothing_is_started() {
    let sim = Sim::ready();
    let plain = sim.run(&[], &["echo", "started"]);
    let mut c = Command::new("env");
    c.arg("--ignore-signal=CHLD").arg(plain.get_program()).args(plain.get_args());
    let out = c.env("XDG_RUNTIME_DIR", sim.scratch()).output().expect("runs");
    assert_eq!((out.status.code(), stdout_of(&out)), (Some(125), String::new()));
    assert!(stderr_of(&out).contains("SIGCHLD is ignored"), "{}", stderr_of(&out));
}

#[test]
fn signals_are_passed_on() {
    let sim = Sim::ready();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1] {
        let name = signal.as_str().trim_start_matches("SIG");
        let script =
            format!("trap 'echo got; exit 9' {name}; echo ready; while :; do sleep 0.05; done");
        let plain = sim.run(&[], &shell(&script));
        // Who starts this test may ignore some, which a program would inherit.
        let mut c = Command::new("env");
        c.arg("--default-signal").arg(plain.get_program()).args(plain.get_args());
        c.env("XDG_RUNTIME_DIR", sim.scratch()).stdout(Stdio::piped());
        let mut run = c.spawn().expect("starts");
        let mut lines = BufReader::new(run.stdout.take().expect("piped")).lines();
        assert_eq!(lines.next().expect("a line").expect("text"), "ready");
        kill(Pid::from_raw(run.id() as i32), signal).expect("it is there");
        let status = until("the program ends", || run.try_wait().expect("a child"));
        assert_eq!(status.code(), Some(9), "{signal}");
        assert_eq!(lines.next().expect("a line").expect("text"), "got");
    }
}

#[test]
fn the_program_starts_as_without_a_board() {
    let sim = Sim::ready();
    let same = |command: &[&str]| {
        let bare = succeed(Command::new(command[0]).args(&command[1..]));
        let held = succeed(&mut sim.run(&[], command));
        assert_eq!(stdout_of(&held), stdout_of(&bare), "{command:?}");
        stdout_of(&held)
    };
    // Not through a shell, which lets all signals in.
    let signals = same(&["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"]);
    assert!(signals.contains("SigBlk:\t0000000000000000"), "{signals}");
    same(&["sh", "-c", "ulimit -a; umask; pwd; id"]);
    same(&["ls", "/proc/self/fd"]);
}

#[test]
fn other_preloads_are_kept() {
    let sim = Sim::ready();
    let mut run = sim.run(&[], &shell("echo $LD_PRELOAD"));
    let said = stdout_of(&succeed(run.env("LD_PRELOAD", "libm.so.6")));
    let (ours, others) = said.trim().split_once(':').expect("two libraries");
    assert!(ours.ends_with("/librocket_sim_preload.so"), "{said}");
    assert_eq!(others, "libm.so.6");
}

#[test]
fn standard_streams_are_the_programs() {
    let sim = Sim::ready();
    let data: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    let mut c = sim.run(&[], &["cat"]);
    c.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = c.spawn().expect("starts");
    let mut stdin = run.stdin.take().expect("piped");
    let out = std::thread::scope(|scope| {
        scope.spawn(|| {
            stdin.write_all(&data).expect("writes");
            drop(stdin);
        });
        run.wait_with_output().expect("ends")
    });
    assert!(out.status.success());
    assert!(out.stdout == data, "{} bytes of {}", out.stdout.len(), data.len());
    assert_eq!(stderr_of(&out), "");
}

fn static_program() -> std::path::PathBuf {
    compiled("gcc", "raw.c", &["-static"])
}

fn output(mut c: Command) -> Output {
    c.output().expect("runs")
}

#[test]
fn a_static_program_is_refused() {
    let sim = Sim::ready();
    let program = static_program();
    let out = output(sim.run(&[], &[&program]));
    assert_eq!(out.status.code(), Some(125));
    assert_eq!(stdout_of(&out), "", "it was not started");
    let told = stderr_of(&out);
    assert!(told.contains("is linked statically"), "{told}");
    assert!(told.contains(&*program.to_string_lossy()), "{told}");
}

#[test]
fn a_set_user_id_program_is_refused() {
    let sim = Sim::ready();
    let program = sim.scratch().join("privileged");
    std::fs::copy("/bin/true", &program).expect("copies");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).expect("sets");
    let out = output(sim.run(&[], &[&program]));
    assert_eq!(out.status.code(), Some(125));
    assert!(stderr_of(&out).contains("set-user-id"), "{}", stderr_of(&out));
}

#[test]
fn a_static_child_is_told_of() {
    let sim = Sim::ready();
    let program = static_program();
    let script = sim.scratch().join("script");
    std::fs::write(&script, format!("#!/bin/sh\n{}\n:\n", program.display())).expect("writes");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("sets");
    let out = output(sim.run(&[], &[&script]));
    assert_eq!(out.status.code(), Some(0), "it runs all the same");
    assert_eq!(stdout_of(&out), "-2\n", "and finds no node");
    let told = stderr_of(&out);
    let warning = format!(
        "rocket-sim: {} is linked statically: it cannot see the simulated board\n",
        program.display()
    );
    assert!(told.contains(&warning), "{told}");
    // One that another program looks for in PATH, and one that it is given the path of.
    let link = sim.scratch().join("a-static-program");
    std::os::unix::fs::symlink(&program, &link).expect("links");
    let path = std::env::var("PATH").expect("set");
    let path = format!("{}:{path}", sim.scratch().display());
    for name in ["a-static-program".to_owned(), link.display().to_string()] {
        let out = sim.run(&[], &["env", &name]).env("PATH", &path).output().expect("runs");
        let told = stderr_of(&out);
        let warning = format!("{} is linked statically", link.display());
        assert!(told.contains(&warning), "{name}: {told}");
    }
}

#[test]
fn system_calls_of_its_own_are_told_of() {
    let sim = Sim::ready();
    let program = compiled("gcc", "raw.c", &[]);
    let out = output(sim.run(&[], &[&program]));
    assert_eq!((out.status.code(), stdout_of(&out)), (Some(0), "-2\n".to_owned()));
    assert!(stderr_of(&out).contains("system call instructions of its own"), "{}", stderr_of(&out));
    // A program that has no business with the node gets no hint.
    let quiet = output(sim.run(&[], &["true"]));
    assert_eq!(stderr_of(&quiet), "");
}
