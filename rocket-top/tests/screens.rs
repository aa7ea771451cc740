//! Each view at three sizes, in colour and without, cell by cell, and by rules.

#![allow(clippy::unwrap_used)]

mod common;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use ratatui::style::Color;
use rocket_top::app::{App, Sort, Tab};
use rocket_top::frame::{Frame, Weight};
use rocket_top::output::lines;
use rocket_top::screen::{Theme, draw};
use std::time::Duration;

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

fn app(frame: Frame) -> App {
    let mut app = App::new(Duration::from_secs(1));
    for i in 0..30 {
        let mut one = frame.clone();
        one.gops.value = one.gops.value.map(|v| v * f64::from(i) / 30.0);
        app.show(one);
    }
    app.show(frame);
    app
}

fn drawn(app: &App, size: (u16, u16), theme: &Theme) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    terminal.draw(|f| draw(f, app, theme)).unwrap();
    terminal.backend().buffer().clone()
}

fn press(app: &mut App, keys: &[KeyCode]) {
    for key in keys {
        app.event(&Event::Key(KeyEvent::new(*key, KeyModifiers::NONE)));
    }
}

fn type_text(app: &mut App, text: &str) {
    press(app, &text.chars().map(KeyCode::Char).collect::<Vec<_>>());
}

#[test]
fn views() {
    for tab in Tab::ALL {
        for size in SIZES {
            for (name, theme) in [("colour", Theme::colored()), ("mono", Theme::monochrome())] {
                let mut app = app(common::working());
                app.tab = tab;
                let buffer = drawn(&app, size, &theme);
                rules(&app, &buffer);
                insta::assert_debug_snapshot!(
                    format!("{}-{}x{}-{name}", tab.name(), size.0, size.1),
                    buffer
                );
            }
        }
    }
}

/// No `n/a` without its reason, no colour for what is as it should be, and a doctor's id beside each that is not.
fn rules(app: &App, buffer: &Buffer) {
    let text = lines(buffer);
    let frame = app.frame.as_ref().unwrap();
    for line in text.lines() {
        assert!(!line.contains("n/a") || line.contains("n/a ("), "no reason: {line}");
        assert!(!line.contains("NaN") && !line.contains("inf"), "{line}");
    }
    if !matches!(app.tab, Tab::Overview | Tab::Routing) {
        return;
    }
    for l in &frame.routing {
        assert_eq!(l.taken == Weight::Mistake, l.doctor.is_some(), "{l:?}");
    }
    let mistakes = frame.routing.iter().filter(|l| l.taken == Weight::Mistake);
    for l in mistakes {
        let id = l.doctor.unwrap();
        assert!(text.lines().any(|t| t.contains(&format!("-> {id}"))), "{id} is not on\n{text}");
    }
    // Yellow cells in the table stand in lines that end in an id.
    let width = buffer.area.width as usize;
    for (y, row) in buffer.content.chunks(width).enumerate() {
        let line: String = row.iter().map(|c| c.symbol()).collect();
        let coloured = row.iter().any(|c| c.fg == Color::Yellow && c.symbol() != " ");
        let in_table = line.contains("CPU");
        assert!(!coloured || !in_table || line.contains("-> "), "line {y}: {line}");
    }
}

#[test]
fn a_machine_with_nothing_to_see() {
    for size in SIZES {
        let app = app(common::bare());
        let buffer = drawn(&app, size, &Theme::colored());
        rules(&app, &buffer);
        let text = lines(&buffer);
        assert!(text.contains("no /sys/class/accel"), "{text}");
        assert!(!text.contains(" 0 MHz") && !text.contains(" 0 C"), "{text}");
    }
}

#[test]
fn a_screen_that_is_too_small_says_so() {
    for size in [(79, 24), (80, 23), (1, 1), (40, 5)] {
        let text = lines(&drawn(&app(common::working()), size, &Theme::colored()));
        assert!(size.0 < 20 || text.contains("80 x 24"), "{text}");
    }
}

#[test]
fn keys() {
    let mut a = app(common::working());
    press(&mut a, &[KeyCode::Tab, KeyCode::Tab]);
    assert_eq!(a.tab, Tab::Charts);
    press(&mut a, &[KeyCode::BackTab, KeyCode::Left, KeyCode::Left]);
    assert_eq!(a.tab, Tab::Events);
    press(&mut a, &[KeyCode::Char('2')]);
    assert_eq!(a.tab, Tab::Routing);
    press(&mut a, &[KeyCode::Char('s'), KeyCode::Char('s')]);
    assert_eq!(a.sort, Sort::Calls);
    let calls: Vec<u64> = a.lines(a.frame.as_ref().unwrap()).iter().map(|l| l.calls).collect();
    assert!(calls.is_sorted_by(|a, b| a >= b) && calls.len() == 6, "{calls:?}");
    press(&mut a, &[KeyCode::Char('/')]);
    type_text(&mut a, "REPACK");
    assert!(a.typing);
    press(&mut a, &[KeyCode::Enter]);
    let left = a.lines(a.frame.as_ref().unwrap());
    assert_eq!(left.iter().map(|l| &*l.outcome).collect::<Vec<_>>(), ["weight_not_in_host_memory"]);
    press(&mut a, &[KeyCode::Esc]);
    assert_eq!(a.lines(a.frame.as_ref().unwrap()).len(), 6);
    let before = a.interval;
    press(&mut a, &[KeyCode::Char('+'), KeyCode::Char('+'), KeyCode::Char('-')]);
    assert!(a.interval > before);
    press(&mut a, &[KeyCode::Char('-'); 20]);
    assert!(a.interval >= Duration::from_millis(50));
    press(&mut a, &[KeyCode::Char('?')]);
    assert!(lines(&drawn(&a, (80, 24), &Theme::colored())).contains("sort the routing table"));
    press(&mut a, &[KeyCode::Char('x')]);
    assert!(!a.help && !a.done);
    press(&mut a, &[KeyCode::Char('q')]);
    assert!(a.done);
}

#[test]
fn a_paused_screen_stands_still_and_its_charts_go_on() {
    let mut a = app(common::working());
    let (shown, points) = (a.frame.clone(), a.history.len());
    press(&mut a, &[KeyCode::Char('p')]);
    a.show(common::bare());
    assert_eq!((&a.frame, a.history.len()), (&shown, points + 1));
    assert!(lines(&drawn(&a, (80, 24), &Theme::colored())).contains("paused"));
    press(&mut a, &[KeyCode::Char('p')]);
    a.show(common::bare());
    assert_ne!(a.frame, shown);
}

#[test]
fn the_mouse() {
    let mut a = app(common::working());
    let at = |kind, column, row| {
        Event::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })
    };
    let text = lines(&drawn(&a, (80, 24), &Theme::colored()));
    let column = text.lines().next().unwrap().find("Charts").unwrap() as u16;
    a.event(&at(MouseEventKind::Down(MouseButton::Left), column, 0));
    assert_eq!(a.tab, Tab::Charts);
    a.event(&at(MouseEventKind::ScrollDown, 5, 9));
    a.event(&at(MouseEventKind::ScrollUp, 5, 9));
    assert_eq!(a.scroll, 0);
    a.event(&at(MouseEventKind::Down(MouseButton::Left), column, 5));
    assert_eq!(a.tab, Tab::Charts);
}
