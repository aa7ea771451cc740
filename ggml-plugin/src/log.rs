//! Lines for the user: on the host's logger, or on stderr while there is none.

use crate::abi::host::Logger;
use std::io::Write;
use std::sync::OnceLock;

/// ggml's levels (ggml-abi 2.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Info = 2,
    Warn = 3,
    Error = 4,
}

static LOGGER: OnceLock<Option<Logger>> = OnceLock::new();

/// Sets the host's logger, once.
pub(crate) fn use_host(logger: Option<Logger>) {
    let _ = LOGGER.set(logger);
}

/// One line with the plugin's name in front.
pub(crate) fn line(level: Level, text: &str) {
    match LOGGER.get().copied().flatten() {
        Some(logger) => logger.line(level as i32, &prefixed(text)),
        None => stderr(text),
    }
}

/// One line on stderr, whatever the host does with its log.
pub(crate) fn stderr(text: &str) {
    // A closed stderr is not our problem, and must not become a panic.
    let _ = writeln!(std::io::stderr().lock(), "{}", prefixed(text));
}

fn prefixed(text: &str) -> String {
    format!("ggml-rocket: {text}")
}
