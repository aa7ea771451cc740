//! Colours, or none.

use ratatui::style::{Color, Modifier, Style};

/// How things look.
#[derive(Debug, Clone)]
pub struct Theme {
    /// Headings.
    pub title: Style,
    /// What is chosen.
    pub chosen: Style,
    /// What is as it should be and needs no look.
    pub dim: Style,
    /// Good.
    pub good: Style,
    /// Somebody may want to do something.
    pub warn: Style,
    /// Somebody should.
    pub bad: Style,
}

impl Theme {
    /// The terminal's own sixteen colours.
    pub fn colored() -> Theme {
        let fg = |c| Style::new().fg(c);
        Theme {
            title: fg(Color::Cyan).add_modifier(Modifier::BOLD),
            chosen: Style::new().add_modifier(Modifier::REVERSED),
            dim: fg(Color::DarkGray),
            good: fg(Color::Green),
            warn: fg(Color::Yellow),
            bad: fg(Color::Red),
        }
    }

    /// By weight alone.
    pub fn monochrome() -> Theme {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        Theme {
            title: bold,
            chosen: Style::new().add_modifier(Modifier::REVERSED),
            dim: Style::new().add_modifier(Modifier::DIM),
            good: Style::new(),
            warn: Style::new().add_modifier(Modifier::UNDERLINED),
            bad: bold.add_modifier(Modifier::UNDERLINED),
        }
    }
}
