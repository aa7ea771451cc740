//! The same figures without a screen: text once, JSON a line a tick, Prometheus.

use crate::app::App;
use crate::frame::Frame;
use crate::rate::Figure;
use crate::screen::{self, Theme};
use anyhow::Result;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use std::fmt::Write as _;
use std::time::Duration;

/// The overview as lines of text, so many columns wide.
///
/// # Errors
/// None that a buffer in memory has.
pub fn text(frame: Frame, size: (u16, u16)) -> Result<String> {
    let mut app = App::new(Duration::from_secs(1));
    app.show(frame);
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1))?;
    terminal.draw(|f| screen::draw(f, &app, &Theme::monochrome()))?;
    Ok(lines(terminal.backend().buffer()))
}

/// A buffer's characters, without blanks at the ends of lines.
pub fn lines(buffer: &Buffer) -> String {
    let width = buffer.area.width as usize;
    let rows = buffer.content.chunks(width.max(1));
    let text: Vec<String> = rows
        .map(|row| row.iter().map(|c| c.symbol()).collect::<String>().trim_end().to_owned())
        .collect();
    text.join("\n").trim_end().to_owned() + "\n"
}

/// Labels, a figure, and what it is multiplied with for Prometheus's unit.
type Labelled<'a> = (Vec<(&'static str, String)>, &'a Figure, f64);

/// Prometheus's text format. What is unknown has no sample.
pub fn prometheus(frame: &Frame) -> String {
    let mut out = String::new();
    let none = [];
    let core = |c: &crate::frame::Core| {
        vec![("core", c.name.clone()), ("source", c.utilization.source.clone())]
    };
    let mut metric = |name: &str, help: &str, samples: Vec<Labelled<'_>>| {
        let known: Vec<_> =
            samples.iter().filter_map(|(l, f, scale)| Some((l, f.value? * scale))).collect();
        if known.is_empty() {
            return;
        }
        let _ = writeln!(out, "# HELP rocket_{name} {help}\n# TYPE rocket_{name} gauge");
        for (labels, value) in known {
            let _ = writeln!(out, "rocket_{name}{} {value}", label(labels));
        }
    };
    let cores = |f: fn(&crate::frame::Core) -> &Figure, scale: f64| {
        frame.cores.iter().map(|c| (core(c), f(c), scale)).collect::<Vec<_>>()
    };
    let processes = |f: fn(&crate::frame::Process) -> &Figure, scale: f64| {
        let named = |p: &crate::frame::Process| {
            vec![
                ("pid", p.pid.to_string()),
                ("program", p.name.value().cloned().unwrap_or_default()),
            ]
        };
        frame.processes.iter().map(|p| (named(p), f(p), scale)).collect::<Vec<_>>()
    };
    metric(
        "core_utilization_ratio",
        "Share of the time that a core was busy.",
        cores(|c| &c.utilization, 0.01),
    );
    metric("core_jobs_per_second", "Jobs that ended on a core.", cores(|c| &c.jobs, 1.0));
    metric("clock_hertz", "The NPU's clock.", vec![(none.to_vec(), &frame.clock, 1e6)]);
    metric(
        "temperature_celsius",
        "Thermal zone npu-thermal.",
        vec![(none.to_vec(), &frame.temperature, 1.0)],
    );
    metric(
        "memory_available_bytes",
        "MemAvailable of the machine.",
        vec![(none.to_vec(), &frame.memory, f64::from(1 << 20))],
    );
    metric(
        "process_operations_per_second",
        "Operations on the NPU, two a multiply-accumulate.",
        processes(|p| &p.gops, 1e9),
    );
    metric("process_submits_per_second", "SUBMIT calls.", processes(|p| &p.submits, 1.0));
    metric(
        "process_resident_bytes",
        "Packed weights that stay.",
        processes(|p| &p.resident, f64::from(1 << 20)),
    );
    out
}

fn label(labels: &[(&str, String)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let escaped = |v: &str| v.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let all: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escaped(v))).collect();
    format!("{{{}}}", all.join(","))
}
