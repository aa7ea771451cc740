//! What the keys do: a state machine without a terminal, so that tests press them too.

use crate::frame::{Frame, Line};
use ratatui::crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEventKind,
};
use std::collections::VecDeque;
use std::time::Duration;

/// What fills the screen below the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tab {
    /// Processes and the routing table.
    Overview,
    /// The routing table alone, with reasons in words.
    Routing,
    /// Time charts.
    Charts,
    /// What happened.
    Events,
}

impl Tab {
    /// In the order of the tab key.
    pub const ALL: [Tab; 4] = [Tab::Overview, Tab::Routing, Tab::Charts, Tab::Events];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Tab::Overview => "Overview",
            Tab::Routing => "Routing",
            Tab::Charts => "Charts",
            Tab::Events => "Events",
        }
    }
}

/// How the routing table is sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Where it ran, then work.
    Place,
    /// Work.
    Flops,
    /// Times.
    Calls,
    /// Kind of op, then type.
    Op,
    /// Mistakes first.
    Reason,
}

impl Sort {
    const ALL: [Sort; 5] = [Sort::Place, Sort::Flops, Sort::Calls, Sort::Op, Sort::Reason];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Sort::Place => "place",
            Sort::Flops => "work",
            Sort::Calls => "calls",
            Sort::Op => "op",
            Sort::Reason => "reason",
        }
    }
}

/// What is drawn as time charts, a point a sample; none where it was not known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Point {
    /// Per cent.
    pub utilization: Option<f64>,
    /// Operations a second, 10^9.
    pub gops: Option<f64>,
    /// MHz.
    pub clock: Option<f64>,
}

/// Points that are kept.
const KEPT: usize = 600;
/// Intervals, in ms.
const INTERVALS: [u64; 7] = [100, 250, 500, 1000, 2000, 5000, 10_000];

/// The state.
#[derive(Debug)]
pub struct App {
    /// Which view.
    pub tab: Tab,
    /// How the table is sorted.
    pub sort: Sort,
    /// What its lines must contain.
    pub filter: String,
    /// The filter is being typed.
    pub typing: bool,
    /// The figures stand still.
    pub paused: bool,
    /// The keys are shown.
    pub help: bool,
    /// Lines of the view above the first that is shown.
    pub scroll: usize,
    /// Time between samples.
    pub interval: Duration,
    /// Oldest first.
    pub history: VecDeque<Point>,
    /// What is shown.
    pub frame: Option<Frame>,
    /// It is over.
    pub done: bool,
}

impl App {
    /// With a time between samples.
    pub fn new(interval: Duration) -> App {
        App {
            tab: Tab::Overview,
            sort: Sort::Place,
            filter: String::new(),
            typing: false,
            paused: false,
            help: false,
            scroll: 0,
            interval,
            history: VecDeque::new(),
            frame: None,
            done: false,
        }
    }

    /// A new sample is there. A paused screen stands still; its charts go on.
    pub fn show(&mut self, frame: Frame) {
        self.history.push_back(Point {
            utilization: frame.utilization(),
            gops: frame.gops.value,
            clock: frame.clock.value,
        });
        if self.history.len() > KEPT {
            self.history.pop_front();
        }
        if !self.paused || self.frame.is_none() {
            self.frame = Some(frame);
        }
    }

    /// A key, the mouse, or another size.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.key(*key),
            Event::Mouse(mouse) => match mouse.kind {
                MouseEventKind::ScrollDown => self.scroll = self.scroll.saturating_add(3),
                MouseEventKind::ScrollUp => self.scroll = self.scroll.saturating_sub(3),
                MouseEventKind::Down(MouseButton::Left) if mouse.row == 0 => {
                    self.click(mouse.column)
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// On the first line, where the tabs' names are.
    fn click(&mut self, column: u16) {
        let mut at = TABS_FROM;
        for tab in Tab::ALL {
            let width = tab.name().len() as u16 + 3;
            if (at..at + width).contains(&column) {
                self.turn(tab);
            }
            at += width;
        }
    }

    fn turn(&mut self, tab: Tab) {
        self.tab = tab;
        self.scroll = 0;
    }

    fn key(&mut self, key: KeyEvent) {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            self.done = true;
            return;
        }
        if self.typing {
            return self.type_filter(key.code);
        }
        if self.help {
            // Whatever was pressed, it was to be rid of the help, or of all.
            self.help = false;
            self.done = key.code == KeyCode::Char('q');
            return;
        }
        let turn = |app: &App, by: usize| {
            let at = Tab::ALL.iter().position(|t| *t == app.tab).unwrap_or(0);
            Tab::ALL[(at + by) % Tab::ALL.len()]
        };
        match key.code {
            KeyCode::Char('q') => self.done = true,
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Tab | KeyCode::Right => self.turn(turn(self, 1)),
            KeyCode::BackTab | KeyCode::Left => self.turn(turn(self, Tab::ALL.len() - 1)),
            KeyCode::Char(c @ '1'..='4') => self.turn(Tab::ALL[c as usize - '1' as usize]),
            KeyCode::Down => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(10),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::Home => self.scroll = 0,
            KeyCode::Char('s') => {
                let at = Sort::ALL.iter().position(|s| *s == self.sort).unwrap_or(0);
                self.sort = Sort::ALL[(at + 1) % Sort::ALL.len()];
            }
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('+' | '=') => self.interval = step(self.interval, true),
            KeyCode::Char('-') => self.interval = step(self.interval, false),
            _ => {}
        }
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Char(c) if self.filter.len() < 40 && !c.is_control() => self.filter.push(c),
            _ => {}
        }
        self.scroll = 0;
    }

    /// The routing table as it is to be shown.
    pub fn lines<'a>(&self, frame: &'a Frame) -> Vec<&'a Line> {
        let fits = |l: &&Line| {
            let text = format!(
                "{} {} {}x{} {} {} {}",
                l.op,
                l.weight,
                l.k,
                l.n,
                l.place,
                l.outcome,
                l.doctor.unwrap_or("")
            );
            self.filter.is_empty() || text.to_lowercase().contains(&self.filter.to_lowercase())
        };
        let mut lines: Vec<&Line> = frame.routing.iter().filter(fits).collect();
        match self.sort {
            Sort::Place => {}
            Sort::Flops => lines.sort_by(|a, b| b.flops.total_cmp(&a.flops)),
            Sort::Calls => lines.sort_by_key(|l| std::cmp::Reverse(l.calls)),
            Sort::Op => lines.sort_by(|a, b| (&a.op, &a.weight).cmp(&(&b.op, &b.weight))),
            Sort::Reason => lines.sort_by_key(|l| std::cmp::Reverse(l.taken)),
        }
        lines
    }
}

/// Column of the first tab's name.
pub const TABS_FROM: u16 = 12;

fn step(now: Duration, longer: bool) -> Duration {
    let ms = now.as_millis() as u64;
    let next = match longer {
        true => INTERVALS.iter().copied().find(|i| *i > ms),
        false => INTERVALS.iter().copied().rev().find(|i| *i < ms),
    };
    Duration::from_millis(next.unwrap_or(ms))
}
