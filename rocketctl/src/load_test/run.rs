//! Starting the process that loads, with a limit on its time and on what it prints: whatever becomes of it, this one
//! goes on.

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Most bytes of each stream that are kept.
const MOST: u64 = 1 << 20;

/// What is to be loaded, with paths as the process will see them.
#[derive(Debug, Clone)]
pub struct Job {
    pub program: PathBuf,
    pub base: String,
    pub ggml: String,
    pub modules: Option<String>,
    pub plugin: PathBuf,
    /// Another system that the host lives in.
    pub own_root: Option<PathBuf>,
    pub limit: Duration,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Status(i32),
    /// By a signal of this number.
    Signal(i32),
    /// It was ended after this long.
    Late(Duration),
}

/// What was seen of it.
#[derive(Debug, Clone)]
pub struct Ended {
    pub end: End,
    /// Lines of JSON.
    pub said: Vec<u8>,
    /// What host and plugin printed.
    pub errors: String,
    /// How it was run, in words.
    pub way: String,
}

/// Runs a job: as it is, or inside the host's own system.
///
/// # Errors
/// The program cannot be started.
pub fn run(job: &Job) -> Result<Ended> {
    let Some(root) = &job.own_root else {
        let mut command = Command::new(&job.program);
        command.args(arguments(job, ""));
        return watch(command, job.limit, false, "in a process of this system".into());
    };
    if let Some(command) = inside(job, root) {
        let ended =
            watch(command, job.limit, true, format!("inside {} (bubblewrap)", root.display()))?;
        // Where users may not make namespaces it does not come to our program at all.
        let refused =
            ended.said.is_empty() && ended.errors.lines().any(|l| l.starts_with("bwrap: "));
        if !refused {
            return Ok(ended);
        }
    }
    let (command, way) = by_loader(job, root)?;
    watch(command, job.limit, false, way)
}

/// The program's arguments, with the host's files below `root`.
fn arguments(job: &Job, root: &str) -> Vec<String> {
    let modules = job.modules.as_ref().map_or("-".to_owned(), |m| format!("{root}{m}"));
    let plugin = job.plugin.to_string_lossy().into_owned();
    vec![format!("{root}{}", job.base), format!("{root}{}", job.ggml), modules, plugin]
}

/// The root's system around the program, as `scripts/lib/in-root` has it; none without bubblewrap.
fn inside(job: &Job, root: &Path) -> Option<Command> {
    let mut command = Command::new(on_path("bwrap")?);
    command.args(["--die-with-parent", "--unshare-pid", "--new-session"]);
    for name in ["usr", "etc", "opt"] {
        if root.join(name).is_dir() {
            command.arg("--ro-bind").arg(root.join(name)).arg(format!("/{name}"));
        }
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        let there = root.join(name);
        match there.read_link() {
            Ok(to) => _ = command.arg("--symlink").arg(to).arg(format!("/{name}")),
            Err(_) if there.is_dir() => {
                command.arg("--ro-bind").arg(&there).arg(format!("/{name}"));
            }
            Err(_) => {}
        }
    }
    command.args(["--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev"]);
    if Path::new("/dev/accel").is_dir() {
        command.args(["--dev-bind", "/dev/accel", "/dev/accel", "--ro-bind", "/sys", "/sys"]);
    }
    // Libraries that lie elsewhere in the root are seen where they are there.
    let elsewhere = [Some(&job.base), Some(&job.ggml), job.modules.as_ref()];
    for file in elsewhere.into_iter().flatten() {
        let dir = Path::new(file).parent().unwrap_or(Path::new("/"));
        if dir != Path::new("/") && !BOUND.iter().any(|b| dir.starts_with(b)) {
            command.arg("--ro-bind").arg(root.join(dir.strip_prefix("/").ok()?)).arg(dir);
        }
    }
    for file in [&job.program, &job.plugin] {
        command.arg("--ro-bind").arg(file.canonicalize().ok()?).arg(seen_at(file));
    }
    command.args(["--unsetenv", "LD_LIBRARY_PATH", "--chdir", "/"]).arg(seen_at(&job.program));
    let plugin = seen_at(&job.plugin);
    command.args(arguments(&Job { plugin, ..job.clone() }, ""));
    Some(command)
}

/// Folders of the root that are seen at their places.
const BOUND: [&str; 7] = ["/usr", "/etc", "/opt", "/bin", "/sbin", "/lib", "/lib64"];

/// Where a file of this system is seen in the root: at its own place, unless that is in a folder of the root's, where
/// nothing can be put.
fn seen_at(file: &Path) -> PathBuf {
    match (BOUND.iter().any(|b| file.starts_with(b)), file.file_name()) {
        (true, Some(name)) => Path::new("/tmp/rocket").join(name),
        _ => file.to_path_buf(),
    }
}

/// The root's own loader on the program, where there is no bubblewrap: with the root's libraries, but seeing this
/// system's files.
fn by_loader(job: &Job, root: &Path) -> Result<(Command, String)> {
    let machine = std::env::consts::ARCH;
    let names = ["lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"];
    let loader = names.iter().map(|n| root.join(n)).find(|p| p.is_file());
    let loader = loader.with_context(|| {
        format!(
            "bubblewrap is needed to run inside {}; install it (apt install bubblewrap)",
            root.display()
        )
    })?;
    let multiarch = format!("{machine}-linux-gnu");
    let folders = ["usr/lib", "lib", "usr/lib64", "lib64"].map(|d| root.join(d));
    let all = folders.iter().flat_map(|f| [f.join(&multiarch), f.clone()]);
    let path: Vec<String> =
        all.filter(|f| f.is_dir()).map(|f| f.to_string_lossy().into_owned()).collect();
    let mut command = Command::new(&loader);
    command.arg("--library-path").arg(path.join(":")).arg(&job.program);
    command.args(arguments(job, &root.to_string_lossy()));
    let way = format!("with the loader of {}, outside of it (no bubblewrap)", root.display());
    Ok((command, way))
}

fn on_path(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|dir| dir.join(name)).find(|p| p.is_file())
}

/// Runs a command to its end or to the limit. `wrapped`: a status above 128 is the signal of what it ran.
pub fn watch(mut command: Command, limit: Duration, wrapped: bool, way: String) -> Result<Ended> {
    // The loader would load the plugin before its turn.
    command.env_remove("GGML_BACKEND_PATH").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
    let streams = [drain(child.stdout.take()), drain(child.stderr.take())];
    let group = Pid::from_raw(i32::try_from(child.id()).context("a process number")?);
    let begun = Instant::now();
    // Not reaped before its group is ended: until then the number is its own.
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let late = loop {
        if waitid(Id::Pid(group), look)? != WaitStatus::StillAlive {
            break false;
        }
        if begun.elapsed() >= limit {
            break true;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    // Also what it left behind, which would hold the pipes.
    let _ = killpg(group, Signal::SIGKILL);
    let status = child.wait()?;
    let [said, errors] = streams.map(|s| received(&s));
    let end = if late { End::Late(limit) } else { ended(status, wrapped) };
    Ok(Ended { end, said, errors: String::from_utf8_lossy(&errors).into_owned(), way })
}

fn ended(status: ExitStatus, wrapped: bool) -> End {
    match (status.signal(), status.code()) {
        (Some(signal), _) => End::Signal(signal),
        (None, Some(code)) if wrapped && code > 128 => End::Signal(code - 128),
        (None, code) => End::Status(code.unwrap_or(-1)),
    }
}

/// Keeps the beginning of a stream and reads the rest, so that its writer never waits.
fn drain(stream: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let Some(mut stream) = stream else { return };
        let mut block = [0; 4096];
        let mut kept = 0;
        while let Ok(n @ 1..) = stream.read(&mut block) {
            if kept < MOST {
                kept += n as u64;
                let _ = sender.send(block[..n].to_vec());
            }
        }
    });
    receiver
}

/// What a stream has had: all of it when its writers are gone, else what came within half a second.
fn received(blocks: &Receiver<Vec<u8>>) -> Vec<u8> {
    let until = Instant::now() + Duration::from_millis(500);
    let mut all = Vec::new();
    while let Ok(block) = blocks.recv_timeout(until.saturating_duration_since(Instant::now())) {
        all.extend(block);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_this_system_in_a_root() {
        for (file, seen) in [
            ("/home/tom/p.so", "/home/tom/p.so"),
            ("/usr/lib/ggml-rocket/p.so", "/tmp/rocket/p.so"),
            ("/opt/p.so", "/tmp/rocket/p.so"),
            ("/library/p.so", "/library/p.so"),
        ] {
            assert_eq!(seen_at(Path::new(file)), Path::new(seen));
        }
    }
}
