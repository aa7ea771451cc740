//! The header: what the board is, how busy its cores are and by which source, clock, heat, memory.

use super::Theme;
use crate::frame::Frame;
use crate::rate::Figure;
use crate::sample::Raw;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Degrees from which the temperature is a warning, and a danger (kernel-and-uapi D.5).
const WARM: f64 = 85.0;
const HOT: f64 = 95.0;

/// Its lines, none wider than `width`.
pub fn lines<'a>(frame: &Frame, width: u16, theme: &Theme) -> Vec<Line<'a>> {
    let width = width as usize;
    let mut lines = vec![Line::from(Span::raw(cut(&identity(frame), width)))];
    if frame.cores.is_empty() {
        let why = frame.node.why().or(frame.board.family.why()).unwrap_or("the driver has no core");
        lines.push(Line::from(Span::styled(cut(&format!("NPU   n/a ({why})"), width), theme.warn)));
    }
    for (i, core) in frame.cores.iter().enumerate() {
        lines.push(gauge(i, core, width, theme));
    }
    lines.push(state(frame, width, theme));
    lines.push(Line::from(Span::raw(cut(&memory(frame), width))));
    lines
}

/// At most `width` characters.
pub fn cut(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width.saturating_sub(1)).chain(['~']).collect(),
        false => text.to_owned(),
    }
}

fn raw(value: &Raw<String>) -> String {
    match value {
        Raw::Value(v) => v.clone(),
        Raw::Why(why) => format!("n/a ({why})"),
    }
}

fn identity(frame: &Frame) -> String {
    let b = &frame.board;
    let soc = b.soc.value().map(|s| format!(" ({s})")).unwrap_or_default();
    let driver = match (&b.family, &b.interface) {
        (Raw::Value(family), Raw::Value(version)) => format!("{family} {version}"),
        (Raw::Value(family), Raw::Why(_)) => {
            format!("{family}, interface n/a (no line in the kernel's log)")
        }
        (Raw::Why(why), _) => format!("n/a ({why})"),
    };
    format!("{}{soc}  driver {driver}", raw(&b.model))
}

fn gauge<'a>(i: usize, core: &crate::frame::Core, width: usize, theme: &Theme) -> Line<'a> {
    const BAR: usize = 24;
    let status = core.status.value().map_or("?", String::as_str);
    let tail = match (&core.utilization.value, &core.utilization.why) {
        (Some(_), _) => {
            let jobs = core.jobs.value.map(|j| format!("{j:.0} jobs/s  ")).unwrap_or_default();
            format!("  {status:<9} {jobs}[{}]", core.utilization.source)
        }
        (None, why) => format!("  {status:<9} n/a ({})", why.as_deref().unwrap_or("?")),
    };
    let full =
        core.utilization.value.map_or(0, |v| (v / 100.0 * BAR as f64).round() as usize).min(BAR);
    let mark = if core.estimate { '~' } else { ' ' };
    let number = core.utilization.value.map_or("   n/a".to_owned(), |v| format!("{mark}{v:4.0}%"));
    let empty = BAR - full;
    let bar = if core.estimate { theme.dim } else { theme.good };
    Line::from(vec![
        Span::raw(format!("core{i} [")),
        Span::styled("|".repeat(full), bar),
        Span::styled(".".repeat(empty), theme.dim),
        Span::raw("]"),
        Span::raw(number),
        Span::styled(cut(&tail, width.saturating_sub(BAR + 14)), theme.dim),
    ])
}

/// A figure in words, or `n/a` with its reason.
pub fn words(figure: &Figure, decimals: usize) -> String {
    match (figure.value, &figure.why) {
        (Some(v), _) => format!("{v:.decimals$} {}", figure.unit),
        (None, why) => format!("n/a ({})", why.as_deref().unwrap_or("?")),
    }
}

fn state<'a>(frame: &Frame, width: usize, theme: &Theme) -> Line<'a> {
    let heat: Style = match frame.temperature.value {
        Some(c) if c >= HOT => theme.bad,
        Some(c) if c >= WARM => theme.warn,
        _ => Style::new(),
    };
    let trip = frame.trip.value.map(|t| format!(" (off at {t:.0})")).unwrap_or_default();
    let boot = if frame.clock_at_boot { " (boot default)" } else { "" };
    // Each has its share of the line, so that one that is unknown leaves the others in sight.
    let third = width / 3;
    Line::from(vec![
        Span::styled(
            cut(&format!("clock {}{boot}", words(&frame.clock, 0)), third),
            if frame.clock_at_boot { theme.warn } else { Style::new() },
        ),
        Span::raw("  "),
        Span::styled(cut(&format!("temp {}{trip}", words(&frame.temperature, 0)), third), heat),
        Span::raw("  "),
        Span::raw(cut(&format!("power {}", raw(&frame.power)), width - 2 * third - 4)),
    ])
}

fn memory(frame: &Frame) -> String {
    format!(
        "{}  memory available {}  buffers {}",
        words(&frame.gops, 1),
        words(&frame.memory, 0),
        words(&frame.iova, 0)
    )
}
