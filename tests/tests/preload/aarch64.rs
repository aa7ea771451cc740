//! `tests/c/node.c` for aarch64 under qemu-user; scripts/test builds what is needed and runs these
//! under the profile 'aarch64'.

use crate::node::PROFILES;
use crate::{Sim, compiled, job, stdout_of, succeed};

/// What qemu-user 7.2 cannot do is not in this list.
const COMMANDS: &[&str] = &[
    "version",
    "alloc",
    "deadlines",
    "signals",
    "errors",
    "jobs",
    "map",
    "dup",
    "fork",
    "exec",
    "pass",
    "files",
    "stat",
    "threads",
    "meanwhile",
    "cores",
    "hang",
    "compute",
    "prime",
];

#[test]
fn aarch64_node_under_every_driver() {
    let root = std::env::var("ROCKET_TEST_A64_DRM").expect("set by scripts/test");
    let library = format!("{root}/usr/lib/aarch64-linux-gnu");
    let include = format!("-I{root}/usr/include/libdrm");
    let (path, rpath) = (format!("-L{library}"), format!("-Wl,-rpath,{library}"));
    let arguments = ["-std=gnu11", &include, &path, &rpath, "-ldrm"];
    let node = compiled("aarch64-linux-gnu-gcc", "node.c", &arguments);
    let sim = Sim::new();
    let job = job::constant().write(sim.scratch());
    for profile in PROFILES {
        for command in COMMANDS {
            let options = ["-q", "--driver", profile, "--timeout=2000"];
            let command = [node.as_os_str(), command.as_ref(), profile.as_ref(), job.as_os_str()];
            let out = succeed(&mut sim.run(&options, &command));
            assert!(stdout_of(&out).contains("ok: "), "{command:?}: nothing was checked");
        }
    }
}
