//! A `llama-server` for as long as a test asks it things: one process for many prompts.

use crate::Setup;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

pub struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts it with this model, and waits until it answers. `c` names the program.
    pub fn start(s: &Setup, mut c: Command) -> Server {
        // Free a moment ago; nothing else on the machine asks for it by number.
        let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr());
        let port = port.expect("a free port").port();
        c.arg("-m").arg(&s.model).args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        c.args(["-np", "1", "-c", "1024", "-t", "2", "-nr", "--no-warmup", "--no-webui"]);
        let log = std::fs::File::create(s.scratch.path().join("server.log")).expect("a log");
        c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut server = Server { child: c.spawn().expect("starts"), port };
        let begun = Instant::now();
        while server.ask("GET /health", "").is_err() {
            let ended = server.child.try_wait().expect("a child");
            let log = || std::fs::read_to_string(s.scratch.path().join("server.log"));
            assert!(ended.is_none(), "the server ended: {ended:?}\n{:?}", log());
            assert!(begun.elapsed() < PATIENCE, "the server does not answer: {:?}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// The body of a good answer.
    fn ask(&self, what: &str, body: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(
            stream,
            "{what} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        match head.split_whitespace().nth(1) {
            Some("200") => Ok(body.to_owned()),
            _ => Err(std::io::Error::other(answer.into_owned())),
        }
    }

    /// Log-probabilities of the first `top` tokens after a prompt, by token; of the model, before
    /// anything that the server does to choose one. It has to choose `taken`: beside half a letter
    /// it says no probabilities.
    pub fn next(&self, prompt: &[u32], top: usize, taken: u32) -> Vec<f64> {
        let body = json!({
            "prompt": prompt, "n_predict": 1, "n_probs": top, "temperature": 0,
            "cache_prompt": false, "logit_bias": [[taken, 1000.0]],
        });
        let answer = self.ask("POST /completion", &body.to_string());
        let answer = answer.unwrap_or_else(|e| panic!("{} tokens: {e}", prompt.len()));
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(answer["tokens_evaluated"], prompt.len(), "{answer}");
        let list = answer["completion_probabilities"][0]["top_logprobs"].as_array();
        let list = list.unwrap_or_else(|| panic!("no probabilities in {answer}"));
        let mut found = vec![f64::NAN; top];
        for p in list {
            let id = p["id"].as_u64().expect("a token") as usize;
            found[id] = p["logprob"].as_f64().expect("a number");
        }
        assert!(found.iter().all(|p| p.is_finite()), "tokens are missing: {found:?}");
        found
    }

    /// Asks it to end, as a user would, so that the plugin writes its report.
    pub fn stop(mut self) {
        // The program may be inside a namespace, whose keeper passes no signal on.
        let mut family = vec![self.child.id() as i32];
        let mut at = 0;
        while at < family.len() {
            let pid = family[at];
            let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let list = list.unwrap_or_default();
            family.extend(list.split_whitespace().filter_map(|p| p.parse::<i32>().ok()));
            at += 1;
        }
        let program = family.last().expect("at least the child");
        kill(Pid::from_raw(*program), Signal::SIGTERM).expect("takes the signal");
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                assert!(status.success(), "the server ended: {status}");
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "the server does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    /// A test that fails leaves none behind; one that has ended is not hurt.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
