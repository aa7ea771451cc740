//! A board that other processes use: a socket where its node stands, and the files by which
//! programs recognise it.
//!
//! [`Server::start`] puts a tree below a folder: `root/dev/accel/accel0` is the socket, the rest is
//! the board's identity ([`tree`]). The preload library sends a program's calls there; the
//! messages are those of [`rocket_sim_wire`]. A process that dies is a connection that ends, so
//! its files are closed as a kernel closes them.

mod connection;
mod control;
mod dialog;
mod live;
mod place;
mod tree;

pub use control::{Client, Status, Told};
pub use place::{Place, PlaceError};

use crate::SimBoard;
use rocket_runtime::device::leave_signals_to_others;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::Permissions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;

/// What the server's connections share.
#[derive(Debug)]
struct Shared {
    board: SimBoard,
    /// Connections now, and in all.
    open: AtomicU64,
    ever: AtomicU64,
    files_opened: AtomicU64,
    calls: AtomicU64,
    attached: AtomicU64,
}

/// Serves one board until it is dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    place: Place,
    stop: Arc<OwnedFd>,
    listener: Option<JoinHandle<()>>,
    writer: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves `board` at a place that nobody else uses; the place is removed when the server is
    /// dropped.
    ///
    /// # Errors
    /// What the file system or the socket says, with the path.
    pub fn start(board: SimBoard, place: Place) -> io::Result<Server> {
        tree::build(&place.root(), board.config())?;
        let node = place.node();
        let socket = listen(&node).map_err(|e| at(&node, e))?;
        let counters = place.root().join(rocket_sim_wire::COUNTERS.trim_start_matches('/'));
        std::fs::hard_link(&node, &counters).map_err(|e| at(&counters, e))?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let shared = Arc::new(Shared {
            board,
            open: AtomicU64::new(0),
            ever: AtomicU64::new(0),
            files_opened: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            attached: AtomicU64::new(0),
        });
        let (s, end) = (Arc::clone(&shared), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("sim-listen".to_owned());
        let listener = thread.spawn(move || {
            // The process may be its own client, whose handlers wait for what is served here. The
            // threads of connections inherit this.
            leave_signals_to_others();
            accept_all(&s, &socket, &end);
        })?;
        let writer = keep_live(&shared, &stop, place.root())?;
        Ok(Server { shared, place, stop, listener: Some(listener), writer: Some(writer) })
    }

    /// The board.
    pub fn board(&self) -> &SimBoard {
        &self.shared.board
    }

    /// The folder that stands for `/` as far as the board is concerned.
    pub fn root(&self) -> PathBuf {
        self.place.root()
    }

    /// The node: a program under the preload library may open it by this path as well.
    pub fn node(&self) -> PathBuf {
        self.place.node()
    }

    /// Connections open now, and how many there ever were.
    pub fn connections(&self) -> (u64, u64) {
        (self.shared.open.load(SeqCst), self.shared.ever.load(SeqCst))
    }

    /// What programs did so far.
    pub fn use_so_far(&self) -> Use {
        let s = &self.shared;
        Use {
            processes: s.attached.load(SeqCst),
            files: s.files_opened.load(SeqCst),
            calls: s.calls.load(SeqCst),
        }
    }
}

/// How far programs got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Use {
    /// Processes that loaded the preload library.
    pub processes: u64,
    /// Files they opened.
    pub files: u64,
    /// Driver calls they made.
    pub calls: u64,
}

impl Drop for Server {
    fn drop(&mut self) {
        // The listener polls this; a failed write would mean that the counter is full of stops.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        for thread in [self.listener.take(), self.writer.take()].into_iter().flatten() {
            let _ = thread.join();
        }
        self.place.remove();
    }
}

fn at(path: &Path, e: impl Into<io::Error>) -> io::Error {
    let e = e.into();
    io::Error::new(e.kind(), format!("{}: {e}", path.display()))
}

fn listen(node: &Path) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let address = SocketAddrUnix::new(node).map_err(|_| {
        io::Error::other("the path is too long for a socket; choose a shorter folder")
    })?;
    rustix::net::bind(&socket, &address)?;
    // As udev's rules have it (kernel-and-uapi A.1).
    std::fs::set_permissions(node, Permissions::from_mode(0o660))?;
    rustix::net::listen(&socket, 128)?;
    Ok(socket)
}

/// Writes the files that change, until the end.
fn keep_live(
    shared: &Arc<Shared>,
    stop: &Arc<OwnedFd>,
    root: PathBuf,
) -> io::Result<JoinHandle<()>> {
    let (shared, stop) = (Arc::clone(shared), Arc::clone(stop));
    let mut live = live::Live::new(root, &shared.board);
    live.write(&shared.board)?;
    let every = rustix::fs::Timespec { tv_sec: 0, tv_nsec: live::EVERY.as_nanos() as i64 };
    let run = move || {
        leave_signals_to_others();
        let mut end = [PollFd::new(&*stop, PollFlags::IN)];
        while poll(&mut end, Some(&every)).map_or_else(|e| e == rustix::io::Errno::INTR, |n| n == 0)
        {
            if let Err(e) = live.write(&shared.board) {
                tracing::warn!("the board's files are no longer kept: {e}");
                return;
            }
        }
    };
    std::thread::Builder::new().name("sim-live".to_owned()).spawn(run)
}

fn accept_all(shared: &Arc<Shared>, socket: &OwnedFd, stop: &OwnedFd) {
    loop {
        let mut fds = [PollFd::new(socket, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        if poll(&mut fds, None).is_err_and(|e| e != rustix::io::Errno::INTR) {
            return;
        }
        if !fds[1].revents().is_empty() {
            return;
        }
        if fds[0].revents().is_empty() {
            continue;
        }
        let Ok(connection) = rustix::net::accept_with(socket, SocketFlags::CLOEXEC) else {
            continue;
        };
        shared.open.fetch_add(1, SeqCst);
        shared.ever.fetch_add(1, SeqCst);
        let s = Arc::clone(shared);
        let thread = std::thread::Builder::new().name("sim-connection".to_owned());
        let run = move || {
            connection::serve(&s, &Arc::new(connection));
            s.open.fetch_sub(1, SeqCst);
        };
        if let Err(e) = thread.spawn(run) {
            shared.open.fetch_sub(1, SeqCst);
            tracing::error!("cannot serve a connection: {e}");
        }
    }
}
