//! A program of the system, run to its end: its output is kept for when it fails, and it is not waited for forever.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How long one may take: DKMS builds a module in some minutes on a slow board.
pub const PATIENCE: Duration = Duration::from_secs(30 * 60);
/// How much of its output is kept.
const KEPT: usize = 4 << 10;

/// Runs it.
pub fn run(argv: &[String], patience: Duration) -> io::Result<()> {
    let (program, arguments) = argv.split_first().ok_or_else(|| io::Error::other("no command"))?;
    let mut child = Command::new(program)
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| io::Error::new(e.kind(), format!("{program}: {e}")))?;
    let (sender, words) = mpsc::channel();
    for stream in [
        child.stdout.take().map(|s| Box::new(s) as Box<dyn Read + Send>),
        child.stderr.take().map(|s| Box::new(s) as Box<dyn Read + Send>),
    ] {
        let sender = sender.clone();
        thread::spawn(move || _ = sender.send(end_of(stream)));
    }
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > patience {
            child.kill()?;
            child.wait()?;
            let s = patience.as_secs();
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("not done in {s} s")));
        }
        thread::sleep(Duration::from_millis(10));
    };
    if status.success() {
        return Ok(());
    }
    // A grandchild may hold the streams open for as long as it likes.
    let part = || words.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
    let said = part() + &part();
    Err(io::Error::other(format!("{status}: {}", said.trim())))
}

fn end_of(stream: Option<Box<dyn Read + Send>>) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
    let Some(mut stream) = stream else { return String::new() };
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        kept.extend_from_slice(&buffer[..n]);
        kept.drain(..kept.len().saturating_sub(KEPT));
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// A command as a shell takes it.
pub fn quoted(argv: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    let word = |w: &String| match !w.is_empty() && w.chars().all(plain) {
        true => w.clone(),
        false => format!("'{}'", w.replace('\'', "'\\''")),
    };
    argv.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> io::Result<()> {
        run(&["sh".into(), "-c".into(), script.into()], Duration::from_secs(1))
    }

    #[test]
    fn what_it_came_to() {
        sh("exit 0").unwrap();
        let e = sh("seq 100000; echo the reason >&2; exit 3").unwrap_err().to_string();
        assert!(e.contains("the reason") && e.contains('3') && e.len() < 3 * KEPT, "{e}");
        assert_eq!(sh("sleep 20").unwrap_err().kind(), io::ErrorKind::TimedOut);
        let none = run(&["/nonexistent/x".into()], PATIENCE).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
        assert!(run(&[], PATIENCE).is_err());
    }

    #[test]
    fn words_for_a_shell() {
        let odd = ["printf", "%s.", "a b", "it's", "", "$HOME"].map(str::to_owned);
        let said = std::process::Command::new("sh").args(["-c", &quoted(&odd)]).output().unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap(), "a b.it's..$HOME.");
    }
}
