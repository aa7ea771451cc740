//! A process that is told to end waits for its jobs first: closing the files of a process with
//! jobs in flight is a use after free in unpatched kernels (kernel-and-uapi B.6 U1).

use crate::Case;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rocket_runtime::device::{BoInfo, Board, Deadline, DriverVersion, JobRef, Mapping, Node};
use rocket_runtime::matmul::Summation;
use rocket_runtime::matmul::{Npu, Options};
use rocket_runtime::plan::Shape;
use rocket_runtime::soc::Profile;
use rocket_runtime::uapi::BoRange;
use rocket_sim::{Config, Fault};
use rocket_tests::TestBoard;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Set for the process that is to be interrupted: to `default`, or to `own` for a program with a
/// handler of its own that exits at once, as llama.cpp's does.
const CHILD: &str = "ROCKET_TEST_INTERRUPTED";
/// The status such a handler ends with.
const OWN_STATUS: i32 = 130;

extern "C" fn exit_at_once(_: libc::c_int) {
    // SAFETY: _exit is what a signal handler may call.
    #[allow(unsafe_code)]
    unsafe {
        libc::_exit(OWN_STATUS)
    }
}

#[allow(unsafe_code)]
fn handle_signals() {
    use nix::sys::signal::{SigHandler, signal};
    for s in SIGNALS {
        // SAFETY: the handler is async-signal-safe.
        unsafe { signal(s, SigHandler::Handler(exit_at_once)) }.expect("installs");
    }
}

const SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// A board that says on standard output when jobs are submitted and when they were waited for.
#[derive(Debug)]
struct Loud(TestBoard);

#[derive(Debug)]
struct LoudNode(Arc<dyn Node>);

fn say(what: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{what}").and_then(|()| out.flush());
}

impl Board for Loud {
    fn profile(&self) -> &'static Profile {
        self.0.profile()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn open(&self) -> rocket_runtime::Result<Arc<dyn Node>> {
        Ok(Arc::new(LoudNode(self.0.open()?)))
    }
}

impl Node for LoudNode {
    fn version(&self) -> Result<DriverVersion, Errno> {
        self.0.version()
    }

    fn create_bo(&self, size: u32) -> Result<BoInfo, Errno> {
        self.0.create_bo(size)
    }

    fn map_bo(&self, bo: &BoInfo, len: usize) -> Result<Mapping, Errno> {
        self.0.map_bo(bo, len)
    }

    fn submit(&self, jobs: &[JobRef<'_>]) -> Result<(), Errno> {
        let done = self.0.submit(jobs);
        say("submitted");
        done
    }

    fn prep_bo(&self, handle: u32, deadline: Deadline) -> Result<(), Errno> {
        let done = self.0.prep_bo(handle, deadline);
        say("waited");
        done
    }

    fn fini_bo(&self, handle: u32) -> Result<(), Errno> {
        self.0.fini_bo(handle)
    }

    fn prep_bo_ranges(
        &self,
        handle: u32,
        ranges: &[BoRange],
        deadline: Deadline,
    ) -> Result<(), Errno> {
        self.0.prep_bo_ranges(handle, ranges, deadline)
    }

    fn fini_bo_ranges(&self, handle: u32, ranges: &[BoRange]) -> Result<(), Errno> {
        self.0.fini_bo_ranges(handle, ranges)
    }

    fn close_bo(&self, handle: u32) -> Result<(), Errno> {
        self.0.close_bo(handle)
    }
}

/// Not a test by itself: what the test below starts and interrupts.
#[test]
fn child() {
    match std::env::var(CHILD).as_deref() {
        Ok("own") => handle_signals(),
        Ok(_) => {}
        Err(_) => return,
    }
    let timeout = Duration::from_millis(400);
    let board = TestBoard::new(Config { timeout, ..Config::default() });
    (0..100).for_each(|job| board.inject(Fault::HangJob(job)));
    let options = Options { workers: 1, drain_on_signals: true, ..Options::default() };
    let npu = Npu::open(&Loud(board), options).expect("opens");
    let case = Case::integers(Shape { m: 16, k: 64, n: 16 }, 1);
    for _ in 0..10 {
        // Every job hangs until it times out; what is computed does not matter here.
        let _ = case.run(&npu, false, Summation::OnChip);
    }
}

#[test]
fn a_signal_waits_for_the_jobs_in_flight() {
    for (signal, handler) in SIGNALS.into_iter().flat_map(|s| [(s, "default"), (s, "own")]) {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "interrupt::child", "--nocapture"])
            .env(CHILD, handler)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        while !line.contains("submitted") {
            line.clear();
            assert!(lines.read_line(&mut line).expect("reads") > 0, "the child ended early");
        }
        kill(Pid::from_raw(child.id() as i32), signal).expect("signals");
        let mut rest = String::new();
        lines.read_to_string(&mut rest).expect("reads");
        let status = child.wait().expect("ends");
        let ended = match handler {
            "own" => status.code() == Some(OWN_STATUS),
            _ => status.signal() == Some(signal as i32),
        };
        assert!(ended, "{signal}, {handler} handler: {status}");
        // The job in flight was waited for, and none was started after it.
        assert!(
            rest.starts_with("waited") && !rest.contains("submitted"),
            "{signal}, {handler}: {rest:?}"
        );
    }
}
