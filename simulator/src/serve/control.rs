//! Questions about a served board, one JSON object a packet each way.

use super::Shared;
use super::dialog;
use crate::{Alive, Call, Counters, Explanation, Fault, SimBoard};
use rocket_sim_wire::{Hello, Purpose};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// What can be asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "ask")]
enum Question {
    Status,
    /// Explanations from the n-th on, as far as they are kept.
    Explanations {
        from: u64,
    },
    Inject {
        fault: String,
    },
    ClearFaults,
    Reload,
}

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reply {
    Status(Box<Status>),
    Explanations { next: u64, told: Vec<Told> },
    Done,
    Failed(String),
}

/// A board at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Driver profile, by name.
    pub driver: String,
    /// NPU clock in Hz.
    pub clock_hz: u64,
    /// What exists.
    pub alive: Alive,
    /// What happened. `modelled_ns` is modelled, the rest is counted.
    pub counters: Counters,
    /// Calls of each kind by name, failed ones included: what the faults count.
    pub calls: BTreeMap<String, u64>,
    /// Explanations in all.
    pub explanations: u64,
}

impl Status {
    /// Of a board, now.
    pub fn of(board: &SimBoard) -> Status {
        Status {
            driver: board.config().profile.name().to_owned(),
            clock_hz: board.clock_hz(),
            alive: board.alive(),
            counters: board.counters(),
            calls: Call::ALL.iter().map(|c| (c.name().to_owned(), board.calls(*c))).collect(),
            explanations: board.explanation_count(),
        }
    }
}

/// An explanation as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Its rule, by id.
    pub rule: String,
    /// Hang, garbage, nothing stored, or a note.
    pub class: String,
    /// The file, from zero.
    pub file: u64,
    /// The job over the whole board, from zero.
    pub job: Option<u64>,
    /// The task in the job.
    pub task: Option<usize>,
    /// All of it, for people.
    pub text: String,
}

impl Told {
    fn of(e: &Explanation) -> Told {
        Told {
            rule: e.rule.id().to_owned(),
            class: e.rule.class().to_string(),
            file: e.file,
            job: e.job,
            task: e.task,
            text: e.to_string(),
        }
    }
}

/// Longest packet either way.
const LONGEST: usize = 160 << 10;
/// Most explanations in one packet.
const MOST_TOLD: usize = 100;

pub fn serve(shared: &Shared, socket: &OwnedFd) {
    let mut packet = vec![0; LONGEST];
    while let Some((n, _)) = dialog::receive(socket, &mut packet) {
        let reply = match serde_json::from_slice(&packet[..n]) {
            Ok(question) => answer(&shared.board, question),
            Err(e) => Reply::Failed(format!("not a question: {e}")),
        };
        let Ok(bytes) = serde_json::to_vec(&reply) else { return };
        if rustix::net::send(socket, &bytes, SendFlags::NOSIGNAL).is_err() {
            return;
        }
    }
}

fn answer(board: &SimBoard, question: Question) -> Reply {
    match question {
        Question::Status => Reply::Status(Box::new(Status::of(board))),
        Question::Explanations { from } => {
            let (kept, total) = board.explanations_from(from);
            let told: Vec<Told> = kept.iter().take(MOST_TOLD).map(Told::of).collect();
            Reply::Explanations { next: total - (kept.len() - told.len()) as u64, told }
        }
        Question::Inject { fault } => match fault.parse::<Fault>() {
            Ok(fault) => {
                board.inject(fault);
                Reply::Done
            }
            Err(e) => Reply::Failed(e),
        },
        Question::ClearFaults => {
            board.clear_faults();
            Reply::Done
        }
        Question::Reload => {
            board.reload();
            Reply::Done
        }
    }
}

/// A connection to a served board.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
}

impl Client {
    /// Connects to the board whose node is at `node`.
    ///
    /// # Errors
    /// What the socket says: nobody serves there, or the server speaks another version.
    pub fn connect(node: &Path) -> io::Result<Client> {
        let kind = SocketType::SEQPACKET;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        rustix::net::connect(&socket, &SocketAddrUnix::new(node)?)?;
        let hello = Hello::new(Purpose::Control, std::process::id());
        rustix::net::send(&socket, bytemuck::bytes_of(&hello), SendFlags::NOSIGNAL)?;
        let mut errno = [0; 4];
        match dialog::receive(&socket, &mut errno) {
            Some((4, _)) if errno == [0; 4] => Ok(Client { socket }),
            Some((4, _)) => Err(io::Error::from_raw_os_error(i32::from_le_bytes(errno))),
            _ => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    fn ask(&self, question: &Question) -> io::Result<Reply> {
        let bytes = serde_json::to_vec(question)?;
        rustix::net::send(&self.socket, &bytes, SendFlags::NOSIGNAL)?;
        let mut packet = vec![0; LONGEST];
        let got = dialog::receive(&self.socket, &mut packet);
        let (n, _) = got.ok_or(io::ErrorKind::ConnectionReset)?;
        match serde_json::from_slice(&packet[..n])? {
            Reply::Failed(why) => Err(io::Error::other(why)),
            reply => Ok(reply),
        }
    }

    fn done(&self, question: &Question) -> io::Result<()> {
        match self.ask(question)? {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// The board now.
    ///
    /// # Errors
    /// When the server is gone.
    pub fn status(&self) -> io::Result<Status> {
        match self.ask(&Question::Status)? {
            Reply::Status(status) => Ok(*status),
            other => Err(unexpected(&other)),
        }
    }

    /// Explanations from the n-th on, at most 100 of those that are kept, and where to go on.
    ///
    /// # Errors
    /// When the server is gone.
    pub fn explanations(&self, from: u64) -> io::Result<(Vec<Told>, u64)> {
        match self.ask(&Question::Explanations { from })? {
            Reply::Explanations { told, next } => Ok((told, next)),
            other => Err(unexpected(&other)),
        }
    }

    /// Adds a fault, as [`Fault`] is written.
    ///
    /// # Errors
    /// When it is not a fault, or the server is gone.
    pub fn inject(&self, fault: &str) -> io::Result<()> {
        self.done(&Question::Inject { fault: fault.to_owned() })
    }

    /// Takes all faults away.
    ///
    /// # Errors
    /// When the server is gone.
    pub fn clear_faults(&self) -> io::Result<()> {
        self.done(&Question::ClearFaults)
    }

    /// As [`SimBoard::reload`].
    ///
    /// # Errors
    /// When the server is gone.
    pub fn reload(&self) -> io::Result<()> {
        self.done(&Question::Reload)
    }
}

fn unexpected(reply: &Reply) -> io::Error {
    io::Error::other(format!("the server answered something else: {reply:?}"))
}
