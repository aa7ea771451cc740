//! Lines for the user: on the host's logger, or on stderr while there is none.

use crate::abi::constants::level;
use crate::abi::host::Logger;
use crate::knobs::LogLevel;
use std::io::Write;
use std::sync::OnceLock;

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Debug,
    Info,
    /// What the user has to see. Straight to stderr: llama.cpp's tools drop what a backend logs as
    /// INFO (ggml-abi 4), and everything while they fit a model into memory or measure.
    Notice,
    Warn,
    Error,
}

impl Level {
    /// ggml's number (ggml-abi 2.11).
    fn number(self) -> i32 {
        match self {
            Level::Debug => level::DEBUG,
            Level::Info | Level::Notice => level::INFO,
            Level::Warn => level::WARN,
            Level::Error => level::ERROR,
        }
    }

    /// Whether a line of this level is written. A notice is no warning: who asks for warnings
    /// alone does not get it.
    fn passes(self, threshold: LogLevel) -> bool {
        let own = match self {
            Level::Debug => LogLevel::Debug,
            Level::Info | Level::Notice => LogLevel::Info,
            Level::Warn => LogLevel::Warn,
            Level::Error => LogLevel::Error,
        };
        own >= threshold
    }
}

/// `ROCKET_LOG_LEVEL` and `ROCKET_LOG_STDERR`.
#[derive(Debug, Clone, Copy)]
struct Settings {
    threshold: LogLevel,
    copy: bool,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();
static LOGGER: OnceLock<Option<Logger>> = OnceLock::new();

/// Sets the host's logger, once, and sends the runtime's warnings there.
pub(crate) fn use_host(logger: Option<Logger>) {
    if LOGGER.set(logger).is_ok() {
        // Ours alone: this library brings its own copy of `tracing`.
        let _ = tracing::subscriber::set_global_default(Bridge);
    }
}

/// Warnings and errors of the runtime and the simulator, as lines for the user; with
/// `ROCKET_LOG_LEVEL=debug` everything else they say too.
#[derive(Debug)]
struct Bridge;

impl tracing::Subscriber for Bridge {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        let debug = SETTINGS.get().is_some_and(|s| s.threshold == LogLevel::Debug);
        *metadata.level() <= if debug { tracing::Level::DEBUG } else { tracing::Level::WARN }
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
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warn,
            _ => Level::Debug,
        };
        line(level, &message.0);
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

/// Sets what is written and whether stderr gets a copy, once; until then all is written and
/// nothing copied.
pub(crate) fn configure(threshold: LogLevel, copy: bool) {
    let _ = SETTINGS.set(Settings { threshold, copy });
}

/// One line with the plugin's name in front.
pub(crate) fn line(level: Level, text: &str) {
    let settings = SETTINGS.get().copied();
    let Settings { threshold, copy } =
        settings.unwrap_or(Settings { threshold: LogLevel::Debug, copy: false });
    let (host, own) = destinations(level, threshold, copy, LOGGER.get().copied().flatten());
    if let Some(logger) = host {
        logger.line(level.number(), &prefixed(text));
    }
    if own {
        stderr(text);
    }
}

/// Who gets a line: the host's logger, and stderr.
fn destinations<L>(
    level: Level,
    threshold: LogLevel,
    copy: bool,
    logger: Option<L>,
) -> (Option<L>, bool) {
    if !level.passes(threshold) {
        return (None, false);
    }
    if level == Level::Notice {
        return (None, true);
    }
    let own = copy || logger.is_none();
    (logger, own)
}

/// One line on stderr, whatever the host does with its log.
pub(crate) fn stderr(text: &str) {
    // In one write, so that a host's logging thread cannot come between text and newline. A closed
    // stderr is not our problem, and must not become a panic.
    let _ = std::io::stderr().lock().write_all(format!("{}\n", prefixed(text)).as_bytes());
}

fn prefixed(text: &str) -> String {
    format!("ggml-rocket: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use LogLevel as T;

    #[test]
    fn levels_of_ggml() {
        let all = [Level::Debug, Level::Info, Level::Notice, Level::Warn, Level::Error];
        assert_eq!(all.map(Level::number), [1, 2, 2, 3, 4]);
    }

    /// Thresholds against levels, with and without a copy and a logger.
    #[test]
    fn who_gets_a_line() {
        for (threshold, passing) in [
            (T::Debug, [true, true, true, true, true]),
            (T::Info, [false, true, true, true, true]),
            (T::Warn, [false, false, false, true, true]),
            (T::Error, [false, false, false, false, true]),
        ] {
            let all = [Level::Debug, Level::Info, Level::Notice, Level::Warn, Level::Error];
            for (level, passes) in all.into_iter().zip(passing) {
                for (copy, logger, own) in [
                    (false, Some(()), false),
                    (true, Some(()), true),
                    (false, None, true),
                    (true, None, true),
                ] {
                    let got = destinations(level, threshold, copy, logger);
                    let expected = match (passes, level) {
                        (false, _) => (None, false),
                        (true, Level::Notice) => (None, true),
                        (true, _) => (logger, own),
                    };
                    assert_eq!(got, expected, "{level:?} {threshold:?} {copy} {logger:?}");
                }
            }
        }
    }
}
