//! Without an NPU the host must run as if the plugin were not there, and say why once.

use crate::{Setup, lines_of_ours, run};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Output};

const PROMPT: [&str; 9] =
    ["-p", "The capital of France is", "-n", "8", "--temp", "0", "-no-cnv", "-t", "1"];

fn complete(s: &Setup, with_plugin: bool) -> Output {
    let mut c = s.command("llama-completion");
    if with_plugin {
        c.env("GGML_BACKEND_PATH", &s.plugin);
    }
    run(c.arg("-m").arg(&s.model).args(PROMPT))
}

#[test]
fn host_with_no_node_runs_as_before_and_says_why() {
    let s = Setup::named();
    let (alone, with) = (complete(&s, false), complete(&s, true));
    assert!(String::from_utf8_lossy(&alone.stdout).contains("Paris"));
    assert_eq!(alone.stdout, with.stdout);
    let lines = lines_of_ours(&with);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("no NPU") && lines[0].contains("modprobe rocket"), "{lines:?}");
}

/// A node of mode 0600 that belongs to somebody else.
#[test]
fn host_without_permission_runs_as_before_and_names_it() {
    let s = Setup::named();
    let alone = complete(&s, false);
    let accel = s.scratch.path().join("accel");
    std::fs::create_dir(&accel).expect("folder");
    let node = accel.join("accel0");
    std::fs::write(&node, "").expect("node");
    let root = nix::unistd::Uid::effective().is_root();
    // Nobody may read root's node; a user that is not root cannot give files away, but can lock
    // itself out.
    let mode = if root { 0o600 } else { 0o000 };
    std::fs::set_permissions(&node, std::fs::Permissions::from_mode(mode)).expect("mode");
    if root {
        chown(&node, Some(0), Some(0)).expect("owner");
        // The other user must reach everything else: the scratch folder is private by default.
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(s.scratch.path(), open).expect("mode");
    }

    let copy = |from: &std::path::Path, name: &str| {
        let to = s.scratch.path().join(name);
        std::fs::copy(from, &to).expect("copies");
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755)).expect("mode");
        to
    };
    let (plugin, model) = (copy(&s.plugin, "libggml-rocket.so"), copy(&s.model, "model.gguf"));

    // bubblewrap sets the scene as we are; the host itself runs as the other user.
    let mut c = Command::new("bwrap");
    c.args([
        "--die-with-parent",
        "--unshare-pid",
        "--tmpfs",
        "/tmp",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
    ]);
    for dir in ["usr", "etc"] {
        c.arg("--ro-bind").arg(s.host.join(dir)).arg(format!("/{dir}"));
    }
    for link in ["bin", "lib", "lib64"] {
        c.args(["--symlink", &format!("usr/{link}"), &format!("/{link}")]);
    }
    c.arg("--ro-bind").arg(&accel).arg("/dev/accel");
    for (file, inside) in [(&plugin, "/tmp/libggml-rocket.so"), (&model, "/tmp/model.gguf")] {
        c.arg("--ro-bind").arg(file).arg(inside);
    }
    c.env_remove("LD_LIBRARY_PATH").env("GGML_BACKEND_PATH", "/tmp/libggml-rocket.so");
    c.args(["--chdir", "/", "--setenv", "PATH", "/usr/bin"]);
    if root {
        // The host's root has no setpriv: ours, with the one library that it needs besides libc.
        for (file, inside) in [
            ("/usr/bin/setpriv".to_owned(), "/tmp/setpriv"),
            (libcap_ng(), "/tmp/lib/libcap-ng.so.0"),
        ] {
            c.args(["--ro-bind", &file, inside]);
        }
        c.args(["--setenv", "LD_LIBRARY_PATH", "/tmp/lib"]);
        c.args(["/tmp/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    c.args(["llama-completion", "-m", "/tmp/model.gguf"]).args(PROMPT);
    let with = run(&mut c);
    assert_eq!(alone.stdout, with.stdout);
    let lines = lines_of_ours(&with);
    assert_eq!(lines.len(), 1, "{lines:?}");
    for word in ["no permission", "/dev/accel/accel0", &format!("mode {mode:04o}"), "usermod"] {
        assert!(lines[0].contains(word), "{word:?} is not in {lines:?}");
    }
}

fn libcap_ng() -> String {
    let out = run(Command::new("ldd").arg("/usr/bin/setpriv"));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let line = text.lines().find(|l| l.contains("libcap-ng")).expect("setpriv uses libcap-ng");
    line.split_whitespace().find(|w| w.starts_with('/')).expect("a path").to_owned()
}
