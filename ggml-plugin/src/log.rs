//! Lines for the user: on the host's logger, or on stderr while there is none.

use crate::abi::constants::level;
use crate::abi::host::Logger;
use std::io::Write;
use std::sync::OnceLock;

/// ggml's levels (ggml-abi 2.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Info = level::INFO as isize,
    Warn = level::WARN as isize,
    Error = level::ERROR as isize,
}

static LOGGER: OnceLock<Option<Logger>> = OnceLock::new();

/// Sets the host's logger, once, and sends the runtime's warnings there.
pub(crate) fn use_host(logger: Option<Logger>) {
    if LOGGER.set(logger).is_ok() {
        // Ours alone: this library brings its own copy of `tracing`.
        let _ = tracing::subscriber::set_global_default(Bridge);
    }
}

/// Warnings and errors of the runtime and the simulator, as lines for the user.
#[derive(Debug)]
struct Bridge;

impl tracing::Subscriber for Bridge {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn event(&self, event: &tracing::Event<'_>) {
        struct Message(String);
        impl tracing::field::Visit for Message {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        let severe = *event.metadata().level() == tracing::Level::ERROR;
        line(if severe { Level::Error } else { Level::Warn }, &message.0);
    }

    // No spans are used.
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
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
