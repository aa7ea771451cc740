//! `tests/c/node.c`, command by command, under every kind of driver.

use crate::{Sim, job, node_program, stdout_of, succeed};

/// Drivers that differ in what a program sees.
pub const PROFILES: [&str; 4] = ["stock", "stock-6.18", "1.1", "full"];

/// Runs a command of node.c on boards of every profile.
fn under_every_driver(command: &str, options: &[&str]) {
    let sim = Sim::ready();
    let (node, job) = (node_program(), job::constant().write(sim.scratch()));
    for profile in PROFILES {
        let options = [&["-q", "--driver", profile], options].concat();
        let command = [node.as_os_str(), command.as_ref(), profile.as_ref(), job.as_os_str()];
        let out = succeed(&mut sim.run(&options, &command));
        assert!(stdout_of(&out).contains("ok: "), "{profile}: nothing was checked");
    }
}

/// One test for each command.
macro_rules! commands {
    ($($test:ident: $command:literal $($option:literal)*;)*) => {$(
        #[test]
        fn $test() {
            under_every_driver($command, &[$($option),*]);
        }
    )*};
}

commands! {
    node_version: "version";
    node_alloc: "alloc";
    // Longer than a busy machine may take for the calls in between.
    node_deadlines: "deadlines" "--timeout=2000";
    node_signals: "signals";
    node_errors: "errors";
    node_jobs: "jobs";
    node_map: "map";
    node_dup: "dup";
    node_fork: "fork";
    node_exec: "exec";
    node_pass: "pass";
    node_files: "files";
    node_stat: "stat";
    node_threads: "threads";
    node_meanwhile: "meanwhile";
    node_hang: "hang";
    node_compute: "compute";
    node_prime: "prime";
}

#[test]
fn three_files_run_on_three_cores() {
    let sim = Sim::ready();
    let node = node_program();
    for profile in PROFILES {
        let path = sim.scratch().join("status.json");
        let at = path.to_string_lossy();
        // At work at once, for longer than a busy machine takes to look.
        let options = ["-q", "--driver", profile, "--timeout=2000", "--status", &at];
        succeed(&mut sim.run(&options, &[node.as_os_str(), "cores".as_ref(), profile.as_ref()]));
        let text = std::fs::read_to_string(&path).expect("a status");
        let status: rocket_sim::serve::Status = serde_json::from_str(&text).expect("a status");
        assert_eq!(status.counters.jobs_by_core, [1, 1, 1], "{profile}");
        assert_eq!(status.counters.jobs_timed_out, 3, "{profile}");
    }
}

#[test]
fn golden_programs_compute_in_a_program_of_their_own() {
    let jobs = job::vectors();
    if jobs.is_empty() {
        println!("no vectors beside this clone: skipped");
        return;
    }
    assert!(jobs.len() >= 16, "{} vectors", jobs.len());
    let sim = Sim::ready();
    let node = node_program();
    for job in jobs {
        let file = job.write(sim.scratch());
        let command = [node.as_os_str(), "compute".as_ref(), "stock".as_ref(), file.as_os_str()];
        let out = succeed(&mut sim.run(&["--strict", "--exact"], &command));
        assert_eq!(stdout_of(&out), "ok: right every time\n", "{}", job.name);
    }
}
