//! `tests/c/node.c` for aarch64 under qemu-user; scripts/test builds what is needed and runs these
//! under the profile 'aarch64'.

use crate::node::PROFILES;
use crate::{Sim, compiled, job, stdout_of, succeed};

/// All but `exec`: qemu-user starts no aarch64 program from another unless the kernel is told to
/// (binfmt_misc), which is not this test's to do. `hold` waits to be killed.
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
    let sim = Sim::ready();
    let job = job::constant().write(sim.scratch());
    for profile in PROFILES {
        for command in COMMANDS {
            // A busy machine needs a while for the calls in between.
            let long = matches!(*command, "deadlines" | "cores");
            let timeout = if long { "--timeout=3000" } else { "--timeout=500" };
            let options = ["-q", "--driver", profile, timeout];
            let command = [node.as_os_str(), command.as_ref(), profile.as_ref(), job.as_os_str()];
            let out = succeed(&mut sim.run(&options, &command));
            assert!(stdout_of(&out).contains("ok: "), "{command:?}: nothing was checked");
        }
    }
}
