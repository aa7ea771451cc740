//! `sim run`: a program on a simulated board.

use super::prepare::{Failure, prepare};
use super::{BoardOptions, report, serve};
use anyhow::{Context, bail};
use clap::Args;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use rocket_sim::serve::{Client, Place, Server, Status};
use rocket_sim::{Alive, SimBoard};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::PidfdFlags;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

/// An error of rocketctl, not of the program.
pub const OURS: u8 = 125;

/// How long a program's files may take to close: a hanging job needs the driver's timeout.
const SETTLE: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub struct Arguments {
    /// Share the board of that name with every process that names it; it starts with the first and
    /// ends with the last, and its kind is the one that the first asked for. Without this and
    /// without ROCKET_SIM_BOARD the board is the program's own.
    #[arg(long, value_name = "NAME")]
    board: Option<String>,
    #[command(flatten)]
    options: BoardOptions,
    /// Write what the board did to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    status: Option<PathBuf>,
    /// Exit with 1 when the program succeeds but breaks a rule of the hardware or the driver.
    #[arg(long)]
    strict: bool,
    /// Say nothing on stderr.
    #[arg(long, short)]
    quiet: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

pub fn run(arguments: &Arguments) -> ExitCode {
    match start(arguments) {
        Ok(status) => ExitCode::from(status),
        Err(e) => {
            let status = e.downcast_ref::<Failure>().map_or(OURS, |f| f.0.status());
            eprintln!("rocketctl: {e:#}");
            ExitCode::from(status)
        }
    }
}

/// The board of a run: its own, or one that others may use as well.
enum Board {
    Own(Box<Server>),
    Shared(Place),
}

impl Board {
    fn of(arguments: &Arguments) -> anyhow::Result<Board> {
        let from_environment =
            || std::env::var(rocket_sim_wire::BOARD_VARIABLE).ok().filter(|name| !name.is_empty());
        match &arguments.board.clone().or_else(from_environment) {
            Some(name) => {
                let place = super::place(name)?;
                serve::ensure(name, &place, &arguments.options)?;
                Ok(Board::Shared(place))
            }
            None => {
                let board = SimBoard::new(arguments.options.config());
                let server = Server::start(board, Place::private()?);
                Ok(Board::Own(Box::new(server.context("cannot start the simulated board")?)))
            }
        }
    }

    /// Lets the files of a program that has ended close and their jobs end: the server learns of
    /// it a moment later. A process that the program left behind may keep its own.
    fn settle(&self) {
        if let Board::Own(server) = self {
            let begun = Instant::now();
            while server.board().alive() != Alive::default() && begun.elapsed() < SETTLE {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn root(&self) -> PathBuf {
        match self {
            Board::Own(server) => server.root(),
            Board::Shared(place) => place.root(),
        }
    }

    fn node(&self) -> PathBuf {
        match self {
            Board::Own(server) => server.node(),
            Board::Shared(place) => place.node(),
        }
    }
}

fn start(arguments: &Arguments) -> anyhow::Result<u8> {
    let (name, rest) = arguments.command.split_first().context("no command given")?;
    if ignores_children() {
        bail!("SIGCHLD is ignored, so no exit status reaches rocketctl; start it with the default");
    }
    // Before any thread starts: a thread that takes them would lose them.
    let signals = forwarded();
    signals.thread_block()?;
    let incoming = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let (board, client, before) = reach(arguments)?;

    let mut prepared = prepare(name, rest, &board.root())?;
    let child = spawn(&mut prepared.command, signals);
    let mut child = child.with_context(|| format!("cannot start {}", name.to_string_lossy()))?;
    let teller = report::Teller::start(&board.node(), before, arguments.quiet)?;
    let status = wait(&mut child, &incoming)?;
    let broken = teller.finish();
    if !arguments.quiet
        && let Board::Own(server) = &board
        && let Some(hint) = report::unreached(server.use_so_far(), &prepared.inspected)
    {
        eprintln!("rocket-sim: {hint}");
    }
    if let Some(path) = &arguments.status {
        board.settle();
        write_status(path, &client.status()?)?;
    }
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, signal) => 128 + signal.unwrap_or(0) as u8,
    };
    Ok(if code == 0 && arguments.strict && broken > 0 { 1 } else { code })
}

/// The board, a connection to it, and how many explanations it has told so far. Connected for as
/// long as the program runs, so a shared board outlives its files.
fn reach(arguments: &Arguments) -> anyhow::Result<(Board, Client, u64)> {
    let mut tries = 0;
    loop {
        let board = Board::of(arguments)?;
        let reached = Client::connect(&board.node()).and_then(|client| {
            let before = client.status()?.explanations;
            Ok((client, before))
        });
        match reached {
            Ok((client, before)) => return Ok((board, client, before)),
            // A board that nobody used may end in the moment in which it is found.
            Err(_) if matches!(board, Board::Shared(_)) && tries < 3 => tries += 1,
            Err(e) => return Err(e).context("cannot reach the simulated board"),
        }
    }
}

/// Whether whoever started this process made it ignore SIGCHLD: then the kernel keeps no status of
/// its children.
fn ignores_children() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (Signal::SIGCHLD as u32 - 1) & 1 != 0)
}

/// Signals that are for the program.
fn forwarded() -> SigSet {
    let mut signals = SigSet::empty();
    for s in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2] {
        signals.add(s);
    }
    signals
}

/// Starts the program from a thread that holds no signal back: a program inherits that.
fn spawn(command: &mut Command, held: SigSet) -> std::io::Result<Child> {
    std::thread::scope(|scope| {
        let starter = scope.spawn(|| {
            held.thread_unblock()?;
            command.spawn()
        });
        starter.join().unwrap_or_else(|_| Err(std::io::Error::other("the starter panicked")))
    })
}

/// Waits for the program and passes on the signals that are for us alone.
fn wait(child: &mut Child, incoming: &SignalFd) -> anyhow::Result<ExitStatus> {
    let pid = rustix::process::Pid::from_child(child);
    let ended = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let mut fds = [PollFd::new(&ended, PollFlags::IN), PollFd::new(incoming, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        while let Some(info) = incoming.read_signal()? {
            // The terminal tells the program itself; who sent this one told only us.
            let from_terminal = info.ssi_code == SI_KERNEL;
            if let Ok(signal) = Signal::try_from(info.ssi_signo as i32)
                && !from_terminal
            {
                // It may have ended in this moment.
                let _ = kill(Pid::from_raw(child.id() as i32), signal);
            }
        }
    }
}

/// `si_code` of a signal that the kernel sent, as for an interrupt typed at a terminal.
const SI_KERNEL: i32 = 0x80;

fn write_status(path: &Path, status: &Status) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(status)? + "\n";
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
