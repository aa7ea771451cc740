//! The screen: a pure function from the state to cells.

mod body;
mod header;
mod style;

use crate::app::{App, TABS_FROM, Tab};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};
pub use style::Theme;

/// Smallest screen that is drawn on.
pub const SMALLEST: (u16, u16) = (80, 24);

/// Draws all of it.
pub fn draw(target: &mut Frame<'_>, app: &App, theme: &Theme) {
    let area = target.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let text = format!(
            "rocket-top needs {} x {} characters; here are {} x {}",
            SMALLEST.0, SMALLEST.1, area.width, area.height
        );
        target.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    let Some(frame) = &app.frame else {
        target.render_widget(Paragraph::new("reading the first sample ..."), area);
        return;
    };
    let head = header::lines(frame, area.width, theme);
    let parts = [
        Constraint::Length(1),
        Constraint::Length(head.len() as u16),
        Constraint::Min(8),
        Constraint::Length(1),
    ];
    let [top, header, middle, bottom] = Layout::vertical(parts).areas(area);
    target.render_widget(Paragraph::new(tabs(app, theme)), top);
    target.render_widget(Paragraph::new(head), header);
    match app.tab {
        Tab::Overview => body::overview(target, middle, app, frame, theme),
        Tab::Routing => body::routing(target, middle, app, frame, theme, true),
        Tab::Charts => body::charts(target, middle, app, theme),
        Tab::Events => body::events(target, middle, app, frame, theme),
    }
    target.render_widget(Paragraph::new(foot(app, theme)), bottom);
    if app.help {
        help(target, area, theme);
    }
}

fn tabs<'a>(app: &App, theme: &Theme) -> Line<'a> {
    let width = TABS_FROM as usize;
    let mut spans = vec![Span::styled(format!("{:<width$}", "rocket-top"), theme.title)];
    for (i, tab) in Tab::ALL.iter().enumerate() {
        let style = if *tab == app.tab { theme.chosen } else { theme.dim };
        spans.push(Span::styled(format!("{} {} ", i + 1, tab.name()), style));
    }
    if app.paused {
        spans.push(Span::styled(" paused ", theme.warn));
    }
    Line::from(spans)
}

fn foot<'a>(app: &App, theme: &Theme) -> Line<'a> {
    if app.typing {
        return Line::from(vec![
            Span::styled("filter: ", theme.title),
            Span::raw(app.filter.clone()),
            Span::raw("_"),
        ]);
    }
    let filter = if app.filter.is_empty() {
        String::new()
    } else {
        format!("  filter '{}' (Esc)", app.filter)
    };
    let text = format!(
        "? help  tab view  s sort: {}  / filter  p pause  +/- {} ms  q quit{filter}",
        app.sort.name(),
        app.interval.as_millis()
    );
    Line::from(Span::styled(text, theme.dim))
}

const HELP: &str = "\
tab, arrows, 1-4   the next view, or that one
s                  sort the routing table by place, work, calls, op or reason
/                  show lines with these letters alone; Esc shows all
up, down, pages    scroll, as the mouse's wheel does
p, space           pause: figures stand still, charts go on
+, -               longer or shorter time between samples
q, Ctrl-C          quit

Colours: a reason in grey is as it should be; one in colour can be
mended, and 'rocketctl explain ID' tells how. n/a has its why beside
it. What each number is and where it comes from: docs/rocket-top.md";

fn help(target: &mut Frame<'_>, area: Rect, theme: &Theme) {
    let (width, height) = (74.min(area.width), HELP.lines().count() as u16 + 2);
    let place = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    target.render_widget(Clear, place);
    let block = Block::bordered().title("keys").border_style(theme.title);
    target.render_widget(Paragraph::new(HELP).block(block), place);
}
