//! Boards that several processes use, and processes that die.

use crate::wait::until;
use crate::{Sim, job, node_program, succeed};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rocket_sim::Alive;
use rocket_sim::serve::Client;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// `node hold` on a board, once it holds its job; and its process.
fn holding(sim: &Sim, options: &[&str], profile: &str) -> (Child, Pid) {
    let node = node_program();
    let command = [node.as_os_str(), "hold".as_ref(), profile.as_ref()];
    let mut child =
        sim.run(options, &command).stdout(Stdio::piped()).spawn().expect("rocketctl starts");
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    out.read_line(&mut line).expect("a line");
    let pid = line.trim().strip_prefix("holding ").unwrap_or_else(|| panic!("it said {line:?}"));
    (child, Pid::from_raw(pid.parse().expect("a number")))
}

fn connect(sim: &Sim, board: &str) -> Client {
    let node = sim.place(board).node();
    until("the board serves", || Client::connect(&node).ok())
}

fn is_empty(alive: Alive) -> bool {
    alive.files == 0 && alive.buffers == 0 && alive.bytes == 0 && alive.jobs == 0
}

/// After the last that was connected, the server leaves and takes its folder along.
fn ends(sim: &Sim, board: &str) {
    let place = sim.place(board);
    until("the lingering server ends", || (!place.dir().exists()).then_some(()));
    assert!(Client::connect(&place.node()).is_err());
}

#[test]
fn forty_processes_on_one_board() {
    const PROCESSES: usize = 40;
    const TIMES: usize = 10;
    let sim = Sim::ready();
    let (node, job) = (node_program(), job::constant().write(sim.scratch()));
    let times = TIMES.to_string();
    let command: [&OsStr; 5] =
        [node.as_os_str(), "compute".as_ref(), "stock".as_ref(), job.as_os_str(), times.as_ref()];
    let mut all: Vec<(Command, Child)> = (0..PROCESSES)
        .map(|_| {
            let mut c = sim.run(&["--board", "crowd"], &command);
            let child = c.stdout(Stdio::null()).spawn().expect("rocketctl starts");
            (c, child)
        })
        .collect();
    let client = connect(&sim, "crowd");
    for (command, child) in &mut all {
        assert!(child.wait().expect("ends").success(), "{command:?}");
    }
    let status = client.status().expect("a status");
    assert_eq!(status.counters.jobs as usize, PROCESSES * TIMES);
    assert_eq!(status.explanations, 0);
    let by_core = status.counters.jobs_by_core;
    assert_eq!(by_core.iter().sum::<u64>() as usize, PROCESSES * TIMES);
    assert!(by_core.iter().all(|n| *n > 0), "by core: {by_core:?}");
    until("nothing is left", || is_empty(client.status().expect("a status").alive).then_some(()));
    drop(client);
    ends(&sim, "crowd");
}

#[test]
fn a_killed_process_leaves_nothing() {
    for profile in ["stock", "full"] {
        let sim = Sim::ready();
        // Its first job still hangs when it is killed.
        let options = ["-q", "--board", "kill", "--driver", profile, "--timeout=2000"];
        let (mut run, pid) = holding(&sim, &options, profile);
        let client = connect(&sim, "kill");
        let alive = client.status().expect("a status").alive;
        assert_eq!((alive.files, alive.buffers, alive.jobs), (2, 3, 2));
        kill(pid, Signal::SIGKILL).expect("it is there");
        assert_eq!(run.wait().expect("ends").code(), Some(128 + 9));
        until("files are closed", || {
            (client.status().expect("a status").alive.files == 0).then_some(())
        });
        // A running job keeps its buffers until it has ended.
        until("nothing is left", || {
            is_empty(client.status().expect("a status").alive).then_some(())
        });
        let counters = client.status().expect("a status").counters;
        assert_eq!((counters.jobs_timed_out, counters.files_closed), (2, 2));
        let warned = u64::from(profile == "stock");
        assert_eq!(counters.closed_with_jobs_in_flight, warned);
    }
}

#[test]
fn a_second_run_joins_the_board_of_the_first() {
    let sim = Sim::ready();
    let options = ["-q", "--board", "both", "--driver", "1.1", "--timeout=60000"];
    let (mut first, pid) = holding(&sim, &options, "1.1");
    let (node, job) = (node_program(), job::constant().write(sim.scratch()));
    // It finds the driver of the board that is there, and cores that are free.
    for command in ["version", "compute"] {
        let command = [node.as_os_str(), command.as_ref(), "1.1".as_ref(), job.as_os_str()];
        succeed(&mut sim.run(&["-q", "--board", "both", "--driver", "stock"], &command));
    }
    let out = succeed(sim.rocketctl().args(["sim", "status", "--board", "both", "--json"]));
    let status: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(status["driver"], "1.1");
    assert_eq!(status["counters"]["jobs"], 3);
    kill(pid, Signal::SIGKILL).expect("it is there");
    first.wait().expect("ends");
}

#[test]
fn faults_come_while_a_board_runs() {
    let sim = Sim::ready();
    let mut serve = sim.rocketctl();
    serve.args(["sim", "serve", "--board", "inject"]).stdout(Stdio::null());
    let mut server = serve.spawn().expect("rocketctl starts");
    drop(connect(&sim, "inject"));
    let (node, job) = (node_program(), job::constant().write(sim.scratch()));
    let compute = [node.as_os_str(), "compute".as_ref(), "stock".as_ref(), job.as_os_str()];
    let run = || sim.run(&["-q", "--board", "inject"], &compute).status().expect("runs").code();
    let inject = |what: &str| {
        succeed(sim.rocketctl().args(["sim", "inject", "--board", "inject", what]));
    };
    assert_eq!(run(), Some(0), "before any fault");
    // Each run makes five buffers.
    inject("fail:create-bo:5:ENOMEM");
    assert_eq!(run(), Some(1), "the sixth buffer fails");
    assert_eq!(run(), Some(0), "once");
    inject("fail:create-bo:12:ENOMEM");
    inject("--clear");
    assert_eq!(run(), Some(0), "a fault taken back");
    kill(Pid::from_raw(server.id() as i32), Signal::SIGTERM).expect("it is there");
    assert!(server.wait().expect("ends").success());
    assert!(!sim.place("inject").dir().exists(), "the folder goes with the server");
}

#[test]
fn a_crashed_server_is_in_nobodys_way() {
    let sim = Sim::ready();
    let mut serve = sim.rocketctl();
    serve.args(["sim", "serve", "--board", "crash"]).stdout(Stdio::null());
    let mut server = serve.spawn().expect("rocketctl starts");
    drop(connect(&sim, "crash"));
    // Another may not take its name.
    let second = serve.output().expect("runs");
    assert_eq!(second.status.code(), Some(2));
    assert!(crate::stderr_of(&second).contains("is being served already"));
    server.kill().expect("it is there");
    server.wait().expect("ends");
    assert!(sim.place("crash").node().exists(), "it had no time to clean up");
    let node = node_program();
    let command = [node.as_os_str(), "version".as_ref(), "full".as_ref()];
    succeed(&mut sim.run(&["-q", "--board", "crash", "--driver", "full"], &command));
    ends(&sim, "crash");
}

#[test]
fn a_server_about_to_end_is_waited_for() {
    // It still has the name, but serves nobody any more.
    let sim = Sim::ready();
    let place = sim.place("end");
    std::fs::create_dir_all(place.dir().parent().expect("a folder")).expect("makes it");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(place.dir().parent().expect("a folder"), mode).expect("sets");
    let name = std::fs::File::create(place.dir().with_extension("lock")).expect("a file");
    name.lock().expect("nobody else has it");
    let mut run = sim.run(&["--board", "end"], &["true"]).spawn().expect("rocketctl starts");
    // Longer than the first server that it starts takes to find the name taken.
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(run.try_wait().expect("a child"), None);
    name.unlock().expect("it was ours");
    let status = until("the run ends", || run.try_wait().expect("a child"));
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_board_that_dies_is_a_device_that_is_gone() {
    let sim = Sim::ready();
    let mut serve = sim.rocketctl();
    serve.args(["sim", "serve", "--board", "gone", "--timeout=60000"]).stdout(Stdio::null());
    let mut server = serve.spawn().expect("rocketctl starts");
    drop(connect(&sim, "gone"));
    let (mut run, _) = holding(&sim, &["-q", "--board", "gone"], "stock");
    server.kill().expect("it is there");
    server.wait().expect("ends");
    // Its wait ends with an error, so the program ends by itself.
    until("the program ends", || run.try_wait().expect("a child"));
}
