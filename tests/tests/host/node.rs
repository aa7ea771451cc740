//! The plugin as on a real board: it finds the node, asks the device tree which chip it is, and
//! makes the kernel's own calls, which the preload library takes to a served board.

use crate::{Setup, run};
use rocket_sim::serve::{Place, Server};
use rocket_sim::{Arithmetic, Config, SimBoard};
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[test]
fn host_prefill_through_the_node_equals_the_board_in_process() {
    let s = Setup::named();
    let preload = std::env::var_os("ROCKET_TEST_PRELOAD").map(PathBuf::from);
    let preload = preload.expect("ROCKET_TEST_PRELOAD is not set; run scripts/test");
    let prompt = s.prompt_of(512);
    let rest = ["-n", "4", "--temp", "0", "-no-cnv", "--no-warmup"];

    let (mut c, report) = s.on_npu("llama-completion");
    let in_process = run(c.arg("-m").arg(&s.model).arg("-f").arg(&prompt).args(rest));
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(report).expect("a report")).expect("JSON");

    let config = Config { arithmetic: Arithmetic::Fast, patient: true, ..Config::default() };
    let place = Place::private().expect("a place");
    let dir = place.dir().to_owned();
    let server = Server::start(SimBoard::new(config), place).expect("serves");
    let folder = preload.parent().expect("a file in a folder");
    let mut c = s.command_with("llama-completion", |c| {
        c.arg("--bind").arg(&dir).arg("--ro-bind").arg(folder).arg("--preload").arg(&preload);
    });
    // Measuring the crossover would multiply more than the other side did.
    c.env("GGML_BACKEND_PATH", &s.plugin)
        .env("ROCKET_SIM_ROOT", server.root())
        .env("ROCKET_CALIBRATE", "0");
    let through_node = run(c.arg("-m").arg(&s.model).arg("-f").arg(&prompt).args(rest));

    assert_eq!(
        String::from_utf8_lossy(&in_process.stdout),
        String::from_utf8_lossy(&through_node.stdout)
    );
    let board = server.board();
    let counted = board.counters();
    for (what, ours) in [("macs", counted.macs), ("submits", counted.submits)] {
        let theirs = report["board"][what].as_u64().expect("a count");
        assert_eq!(ours, theirs, "{what}");
        assert!(ours > 0, "{what}");
    }
    assert_eq!(board.explanations(), []);
    // The host's files close when it has ended, which the server learns a moment later.
    let begun = Instant::now();
    while board.alive().files > 0 && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(board.alive(), rocket_sim::Alive::default());
    println!("{} MACs and {} submits, equal both ways", counted.macs, counted.submits);
}
