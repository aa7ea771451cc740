//! What a run tells on stderr: broken rules as they happen, and a program that never came.

use super::target::{self, Target};
use rocket_sim::serve::{Client, Use};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Tells explanations while a program runs.
#[derive(Debug)]
pub struct Teller {
    stop: Sender<()>,
    thread: JoinHandle<u64>,
}

/// How often it looks.
const INTERVAL: Duration = Duration::from_millis(100);

impl Teller {
    /// Starts with the n-th explanation.
    pub fn start(node: &Path, from: u64, quiet: bool) -> std::io::Result<Teller> {
        let client = Client::connect(node)?;
        let (stop, stopped) = channel();
        let tell = move || {
            let (mut next, mut broken) = (from, 0);
            loop {
                let last = stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout);
                while let Ok((told, then)) = client.explanations(next)
                    && !told.is_empty()
                {
                    next = then;
                    for t in told {
                        broken += u64::from(t.class != "note");
                        if !quiet {
                            eprintln!("rocket-sim: {}", t.text);
                        }
                    }
                }
                if last {
                    return broken;
                }
            }
        };
        let thread = std::thread::Builder::new().name("teller".to_owned()).spawn(tell)?;
        Ok(Teller { stop, thread })
    }

    /// Tells the rest and says how many rules were broken, notes aside.
    pub fn finish(self) -> u64 {
        // A teller that has ended needs no stop.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or(0)
    }
}

/// Why a program may not have met its board.
pub fn unreached(used: Use, program: &Target) -> Option<String> {
    let name = program.program.display();
    match used {
        Use { processes: 0, .. } => Some(format!(
            "no process of {name} loaded the preload library, so nothing met the simulated board; \
             does something clear LD_PRELOAD, or is its child linked statically?"
        )),
        Use { files: 1.., calls: 0, .. } => Some(format!(
            "{name} opened the node but made no driver call through libc; system calls of its own \
             do not reach the simulated board"
        )),
        Use { files: 0, .. } if target::has_system_calls(&program.program) => Some(format!(
            "{name} never opened the node through libc, and it contains system call instructions \
             of its own; those do not reach the simulated board"
        )),
        _ => None,
    }
}
