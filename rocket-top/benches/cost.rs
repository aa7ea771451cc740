//! What a tick costs: the parts that `rocket-top` runs through once a second, on this machine's /proc, with three hosts'
//! counters of 200 rows each. `cargo bench -p rocket-top --bench cost`.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use rocket_runtime::telemetry::{Directory, Place, RowKey, TotalKind, Writer};
use rocket_top::app::App;
use rocket_top::frame::Frame;
use rocket_top::screen::{Theme, draw};
use rocket_top::source::{Collector, Places};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::time::Duration;

const TICKS: u32 = 200;

fn cpu_seconds() -> f64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

fn count(w: &Writer) {
    w.update(|image| {
        for k in 0..200u64 {
            let key = RowKey {
                place: Place::Npu,
                op: "MUL_MAT",
                weight: "q8_0",
                outcome: "int8",
                k: 64 + k,
                n: 4096,
                rows: 512,
            };
            image.count(&key, 1, 1 << 30, 1000);
        }
        let slot = image.total("npu.submits", "1", TotalKind::Counter);
        image.add(slot, 3);
    });
    w.publish();
}

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let writers: Vec<Writer> = (0..3)
        .map(|_| {
            Writer::create(&[Directory::existing(folder.path())], &[("program", "host")])
                .expect("counters")
        })
        .collect();
    let places = Places {
        root: "/".into(),
        processes: "/".into(),
        counters: vec![folder.path().into()],
        trace: false,
    };
    let mut collector = Collector::new(&places).expect("a root");
    let mut terminal = Terminal::new(TestBackend::new(120, 40)).expect("a screen");
    let mut app = App::new(Duration::from_secs(1));
    let mut before = None;
    let mut spent = 0.0;
    for _ in 0..TICKS {
        writers.iter().for_each(count);
        let begun = cpu_seconds();
        let sample = collector.sample();
        app.show(Frame::new(before.as_ref(), &sample, None));
        terminal.draw(|f| draw(f, &app, &Theme::colored())).expect("draws");
        spent += cpu_seconds() - begun;
        before = Some(sample);
    }
    let tick = spent / f64::from(TICKS);
    let rows = app.frame.as_ref().map_or(0, |f| f.routing.len());
    let status = std::fs::read_to_string(Path::new("/proc/self/status")).unwrap_or_default();
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or("n/a").trim();
    let processes = std::fs::read_dir("/proc").map_or(0, |d| {
        d.flatten()
            .filter(|e| e.file_name().to_str().is_some_and(|n| n.parse::<u32>().is_ok()))
            .count()
    });
    println!("{TICKS} ticks, {rows} lines, 3 hosts, {processes} processes on the machine");
    println!(
        "a tick: {:.2} ms of CPU, at the default interval {:.2} % of a core",
        tick * 1e3,
        tick * 100.0
    );
    println!("memory at most: {peak}, the writers' own included");
}
