//! The loop on a terminal.

use crate::Feed;
use crate::app::App;
use crate::frame::Frame;
use crate::screen::{self, Theme};
use anyhow::{Result, bail};
use ratatui::crossterm::event::{self, DisableMouseCapture, EnableMouseCapture};
use ratatui::crossterm::execute;
use std::io::{IsTerminal, stdout};
use std::time::{Duration, Instant};

/// Draws until it is over. The terminal is as before afterwards, a panic included.
pub fn run(feed: &mut Feed, interval: Duration, pid: Option<u32>, no_color: bool) -> Result<()> {
    if !stdout().is_terminal() {
        bail!("this is no terminal; --once prints text, --json a line a sample");
    }
    let mut terminal = ratatui::try_init()?;
    let captured = execute!(stdout(), EnableMouseCapture).is_ok();
    let theme = if no_color { Theme::monochrome() } else { Theme::colored() };
    let done = watch(&mut terminal, feed, App::new(interval), pid, &theme);
    if captured {
        let _ = execute!(stdout(), DisableMouseCapture);
    }
    ratatui::try_restore()?;
    done
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    feed: &mut Feed,
    mut app: App,
    pid: Option<u32>,
    theme: &Theme,
) -> Result<()> {
    let mut before = None;
    let mut due = Instant::now();
    let mut ended = false;
    while !app.done {
        if !ended && Instant::now() >= due {
            match feed.sample()? {
                Some(sample) => {
                    app.show(Frame::new(before.as_ref(), &sample, pid));
                    before = Some(sample);
                }
                // A recording's last sample stays.
                None => ended = true,
            }
            due = Instant::now() + app.interval;
        }
        terminal.draw(|f| screen::draw(f, &app, theme))?;
        let wait = if ended {
            Duration::from_secs(3600)
        } else {
            due.saturating_duration_since(Instant::now())
        };
        if event::poll(wait)? {
            app.event(&event::read()?);
        }
    }
    Ok(())
}
