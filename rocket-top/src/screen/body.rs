//! What is below the header.

use super::Theme;
use super::header::cut;
use crate::app::App;
use crate::frame::{self, Frame as Shown, Process, Weight};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline};

/// Processes above, the routing table below.
pub fn overview(target: &mut Frame<'_>, area: Rect, app: &App, frame: &Shown, theme: &Theme) {
    let wanted = processes(frame, area.width as usize, theme);
    let most = (area.height / 2).max(4);
    let [above, below] =
        Layout::vertical([Constraint::Length((wanted.len() as u16).min(most)), Constraint::Min(4)])
            .areas(area);
    target.render_widget(Paragraph::new(wanted), above);
    routing(target, below, app, frame, theme, false);
}

/// Widths of a table's columns: what is narrower than this has less room for each.
const WIDE: usize = 110;

fn processes<'a>(frame: &Shown, width: usize, theme: &Theme) -> Vec<Line<'a>> {
    let (pid, name) = if width < WIDE { (8, 14) } else { (10, 24) };
    let head = format!(
        "{:<pid$}{:<name$}{:<10}{:>7}{:>8}{:>9}  pack/conv/npu/res %",
        "PID", "PROGRAM", "STATE", "MiB", "GOP/s", "SUBMIT/s"
    );
    let mut lines = vec![Line::from(Span::styled(cut(&head, width), theme.title))];
    for p in &frame.processes {
        let style = match () {
            () if p.alive == Some(false) => theme.dim,
            () if p.stale => theme.warn,
            () => Style::new(),
        };
        lines.push(Line::from(Span::styled(cut(&process(p, pid, name), width), style)));
        if let Some(models) = &p.models {
            lines.push(Line::from(Span::styled(
                cut(&format!("{:pid$}{models}", ""), width),
                theme.dim,
            )));
        }
    }
    if frame.processes.is_empty() {
        let text = match &frame.clients {
            Some(why) => format!("no process with counters; who else holds the node: n/a ({why})"),
            None => "no process uses the NPU".to_owned(),
        };
        lines.push(Line::from(Span::styled(cut(&text, width), theme.dim)));
    }
    for (path, why) in &frame.refused {
        lines.push(Line::from(Span::styled(cut(&format!("{path}: {why}"), width), theme.warn)));
    }
    lines.push(Line::default());
    lines
}

fn process(p: &Process, pid: usize, name: usize) -> String {
    let state = match (p.alive, p.stale, p.simulated) {
        (Some(false), ..) => "ended",
        (None, ..) => "unknown",
        (_, true, _) => "stale",
        (_, _, true) => "simulated",
        _ => "running",
    };
    let short = |f: &crate::rate::Figure, decimals: usize| match f.value {
        Some(v) => format!("{v:.decimals$}"),
        None => "n/a".to_owned(),
    };
    let split: Vec<String> = ["pack", "convert", "npu", "results"]
        .iter()
        .filter_map(|name| p.split.get(name)?.value.map(|v| format!("{v:.0}")))
        .collect();
    // Why there is no figure is the same for all of a process: it is told once, where their shares would be.
    let tail = match (split.is_empty(), &p.gops.why) {
        (false, None) => split.join("/"),
        (true, None) => "n/a (it did nothing)".to_owned(),
        (_, Some(why)) => format!("n/a ({why})"),
    };
    format!(
        "{:<pid$}{:<name$}{state:<10}{:>7}{:>8}{:>9}  {tail}",
        p.pid,
        cut(p.name.value().map_or("n/a", String::as_str), name - 1),
        short(&p.resident, 0),
        short(&p.gops, 1),
        short(&p.submits, 0),
    )
}

/// The routing table; with reasons in words where there is room for them.
pub fn routing(
    target: &mut Frame<'_>,
    area: Rect,
    app: &App,
    frame: &Shown,
    theme: &Theme,
    whole: bool,
) {
    let width = area.width as usize;
    let head = columns(width, ["OP", "TYPE", "K x N", "ROWS", "CALLS", "GFLOP", "SHARE"]);
    let head = format!("{head} WHERE, WHY");
    let mut lines = vec![Line::from(Span::styled(cut(&head, width), theme.title))];
    let rows = app.lines(frame);
    let room = (area.height as usize).saturating_sub(1);
    let from = app.scroll.min(rows.len().saturating_sub(1));
    for line in rows.iter().skip(from) {
        lines.push(row(line, width, theme));
        if whole
            && line.taken == Weight::Mistake
            && let Some(sentence) = line.sentence
        {
            lines.push(Line::from(Span::styled(
                cut(&format!("{:<15}{sentence}", ""), width),
                theme.dim,
            )));
        }
        if lines.len() > room {
            break;
        }
    }
    if rows.is_empty() {
        let text = match frame.routing.is_empty() {
            true => "nothing yet: counters appear when a host with libggml-rocket.so computes",
            false => "no line has these letters; Esc shows all",
        };
        lines.push(Line::from(Span::styled(cut(text, width), theme.dim)));
    }
    target.render_widget(Paragraph::new(lines), area);
}

/// One line's columns but the last; a narrow screen has no room for the work.
fn columns(width: usize, [op, weight, shape, rows, calls, flops, share]: [&str; 7]) -> String {
    match width < WIDE {
        true => {
            let (op, weight, shape, rows) =
                (cut(op, 10), cut(weight, 5), cut(shape, 11), cut(rows, 7));
            format!("{op:<11}{weight:<6}{shape:<12}{rows:<8}{calls:>6}{share:>6}")
        }
        false => {
            let (op, weight, shape, rows) =
                (cut(op, 15), cut(weight, 7), cut(shape, 15), cut(rows, 11));
            format!("{op:<16}{weight:<8}{shape:<16}{rows:<12}{calls:>8}{flops:>11}{share:>12}")
        }
    }
}

/// Three digits or four, and what they are multiplied with.
fn short(n: u64) -> String {
    let units = [(1_000_000_000u64, 'G'), (1_000_000, 'M'), (10_000, 'k')];
    match units.iter().find(|(least, _)| n >= *least) {
        Some((10_000, unit)) => format!("{}{unit}", n / 1000),
        Some((one, unit)) => format!("{:.1}{unit}", n as f64 / *one as f64),
        None => n.to_string(),
    }
}

fn row<'a>(l: &frame::Line, width: usize, theme: &Theme) -> Line<'a> {
    let rows = match l.rows {
        [least, u32::MAX] => format!("{least}+"),
        [least, most] if least == most => least.to_string(),
        [least, most] => format!("{least}-{most}"),
    };
    let full = ((l.share / 100.0 * 6.0).round() as usize).min(6);
    let bar = format!("{}{}", "#".repeat(full), ".".repeat(6 - full));
    let share =
        if width < WIDE { format!("{:.0}%", l.share) } else { format!("{bar}{:>4.0}%", l.share) };
    let shape = format!("{}x{}", l.k, l.n);
    let flops = format!("{:.2}", l.flops / 1e9);
    let head =
        columns(width, [&l.op, &l.weight, &shape, &rows, &short(l.calls), &flops, &share]) + " ";
    let style = match l.taken {
        Weight::Good => theme.good,
        Weight::Normal => theme.dim,
        Weight::Mistake => theme.warn,
    };
    let place = match l.place.as_str() {
        "npu" => "NPU",
        "redone" => "CPU again",
        _ => "CPU",
    };
    let doctor = l.doctor.map(|id| format!(" -> {id}")).unwrap_or_default();
    let room = width.saturating_sub(head.chars().count());
    Line::from(vec![
        Span::styled(
            cut(&head, width),
            if l.taken == Weight::Normal { theme.dim } else { Style::new() },
        ),
        Span::styled(outcome(place, &l.outcome, &doctor, room), style),
    ])
}

/// The doctor's id is what one needs: a long reason is cut before it.
fn outcome(place: &str, outcome: &str, doctor: &str, room: usize) -> String {
    let whole = format!("{place} {outcome}{doctor}");
    match whole.chars().count() <= room || doctor.is_empty() {
        true => cut(&whole, room),
        false => {
            let left = room.saturating_sub(doctor.chars().count());
            cut(&format!("{}{doctor}", cut(&format!("{place} {outcome}"), left)), room)
        }
    }
}

/// Utilization, operations a second and clock over time.
pub fn charts(target: &mut Frame<'_>, area: Rect, app: &App, theme: &Theme) {
    let parts: [Rect; 3] = Layout::vertical([Constraint::Ratio(1, 3); 3]).areas(area);
    let highest = |of: fn(&crate::app::Point) -> Option<f64>| {
        app.history.iter().filter_map(of).fold(0.0, f64::max)
    };
    let chart = |target: &mut Frame<'_>,
                 area: Rect,
                 title: String,
                 top: f64,
                 of: fn(&crate::app::Point) -> Option<f64>,
                 style: Style| {
        let [head, body] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
        target.render_widget(
            Paragraph::new(Span::styled(cut(&title, area.width as usize), theme.title)),
            head,
        );
        let skip = app.history.len().saturating_sub(area.width as usize);
        // In thousandths of the top; what is unknown is an empty place of its own kind.
        let data: Vec<Option<u64>> = app
            .history
            .iter()
            .skip(skip)
            .map(|p| of(p).map(|v| if top > 0.0 { (v / top * 1000.0) as u64 } else { 0 }))
            .collect();
        let line = Sparkline::default()
            .data(data)
            .max(1000)
            .style(style)
            .absent_value_symbol("?")
            .absent_value_style(theme.dim);
        target.render_widget(line, body);
    };
    let [gops, clock] = [highest(|p| p.gops), highest(|p| p.clock)];
    let seconds = app.interval.as_secs_f64() * app.history.len() as f64;
    chart(
        target,
        parts[0],
        format!("utilization, 0 to 100 %, the last {seconds:.0} s"),
        100.0,
        |p| p.utilization,
        theme.good,
    );
    chart(
        target,
        parts[1],
        format!("operations, 0 to {gops:.1} GOP/s"),
        gops,
        |p| p.gops,
        theme.good,
    );
    chart(target, parts[2], format!("clock, 0 to {clock:.0} MHz"), clock, |p| p.clock, theme.warn);
}

/// What happened, newest first.
pub fn events(target: &mut Frame<'_>, area: Rect, app: &App, frame: &Shown, theme: &Theme) {
    let width = area.width as usize;
    let mut lines = vec![Line::from(Span::styled(
        format!("{:>12}  {:<8}{:<20}{}", "SINCE BOOT", "PID", "EVENT", ""),
        theme.title,
    ))];
    let from = app.scroll.min(frame.events.len().saturating_sub(1));
    for e in frame.events.iter().skip(from) {
        let text =
            format!("{:>10.3} s  {:<8}{:<20}{}", e.time_ns as f64 / 1e9, e.pid, e.code, e.text);
        let style = match e.code.as_str() {
            "experts_packed" => theme.dim,
            "npu_given_up" | "driver_error" | "job_timeout" => theme.bad,
            _ => theme.warn,
        };
        lines.push(Line::from(Span::styled(cut(&text, width), style)));
    }
    if frame.events.is_empty() {
        lines.push(Line::from(Span::styled("nothing happened that is worth a line", theme.dim)));
    }
    target.render_widget(Paragraph::new(lines), area);
}
