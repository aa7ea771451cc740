//! `sim serve`: a board that lives on its own, by name.

use super::BoardOptions;
use anyhow::{Context, bail};
use clap::Args;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rocket_sim::SimBoard;
use rocket_sim::serve::{Client, Place, Server};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub struct Arguments {
    /// The board's name.
    #[arg(long, value_name = "NAME")]
    board: String,
    #[command(flatten)]
    options: BoardOptions,
    /// End when nobody has been connected for two seconds.
    #[arg(long)]
    linger: bool,
}

/// How long a lingering board waits for somebody.
const LINGER: Duration = Duration::from_secs(2);
/// How long a new board may take to start.
const START: Duration = Duration::from_secs(10);
/// How often both look.
const STEP: Duration = Duration::from_millis(20);

/// Whoever holds this file serves the board of that name.
fn lock(place: &Place) -> anyhow::Result<Option<Flock<File>>> {
    let path = place.dir().with_extension("lock");
    let open = File::options().create(true).truncate(false).write(true).open(&path);
    let file = open.with_context(|| format!("cannot open {}", path.display()))?;
    Ok(Flock::lock(file, FlockArg::LockExclusiveNonblock).ok())
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let place = super::place(&arguments.board)?;
    let Some(_held) = lock(&place)? else {
        bail!("the board '{}' is being served already", arguments.board);
    };
    // What a killed server left behind; nobody else can be using it.
    if place.dir().exists() {
        std::fs::remove_dir_all(place.dir())
            .with_context(|| format!("cannot remove {}", place.dir().display()))?;
    }
    let mut signals = SigSet::empty();
    for s in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(s);
    }
    signals.thread_block()?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let server = Server::start(SimBoard::new(arguments.options.config()), place.clone())
        .context("cannot start the simulated board")?;
    if !arguments.linger {
        println!("board '{}' is at {}", arguments.board, server.root().display());
        println!("run programs on it with: rocketctl sim run --board {} -- CMD", arguments.board);
    }
    let mut idle_since = Instant::now();
    loop {
        std::thread::sleep(STEP);
        if signals.read_signal()?.is_some() {
            break;
        }
        if server.connections().0 > 0 || server.board().alive().jobs > 0 {
            idle_since = Instant::now();
        }
        if arguments.linger && idle_since.elapsed() > LINGER {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes sure that the board of that name is served, by a process of its own if need be.
pub fn ensure(name: &str, place: &Place, options: &BoardOptions) -> anyhow::Result<()> {
    if Client::connect(&place.node()).is_ok() {
        return Ok(());
    }
    let me = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(me);
    command.args(["sim", "serve", "--linger", "--board", name]).args(options.as_arguments());
    // In a process group of its own: an interrupt at the terminal is not for the board.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = |c: &mut Command| c.spawn().context("cannot start the board's server");
    let mut server = start(&mut command)?;
    let begun = Instant::now();
    loop {
        if Client::connect(&place.node()).is_ok() {
            return Ok(());
        }
        let ended = server.try_wait()?;
        if begun.elapsed() > START {
            bail!(
                "the board '{name}' did not start ({}); look with: rocketctl sim serve --board {name}",
                ended.map_or("it is still trying".to_owned(), |s| s.to_string())
            );
        }
        std::thread::sleep(STEP);
        // Ours ends at once when another has the name: one that starts as well, or one that is
        // about to end because nobody used it.
        if ended.is_some() {
            server = start(&mut command)?;
        }
    }
}
