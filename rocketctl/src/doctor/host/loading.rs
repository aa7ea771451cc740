//! Whether a program asks the loader for GGML_BACKEND_PATH (ggml-abi 4).

use super::{Closure, Object};

/// The loader's functions that read the variable.
const LOADS: [&str; 2] = ["ggml_backend_load_all", "ggml_backend_load_all_from_path"];

/// Programs of llama.cpp that ask whatever is registered, and those that ask through `llama_backend_init`, which
/// does so only while nothing is. All import the function, because `--list-devices` calls it (ggml-abi 4).
const ALWAYS: [&str; 4] = ["llama-bench", "llama-mtmd-cli", "rpc-server", "test-backend-ops"];
const WHILE_EMPTY: [&str; 5] =
    ["llama-cli", "llama-server", "llama-completion", "llama-perplexity", "llama-embedding"];

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asks {
    /// The program, always.
    Itself,
    /// A library, only while nothing is registered: where the CPU backend is linked in, never.
    WhileEmpty(String),
    /// It could; whether it does while it works cannot be told from its files. A library does at least while
    /// nothing is registered, where one is named.
    Perhaps(Option<String>),
    /// Nobody.
    Never,
}

/// What a program and the libraries that come with it ask.
pub fn asks(program: &Object, libraries: &Closure) -> Asks {
    let loads = |o: &Object| LOADS.iter().any(|s| o.elf.imports(s));
    let through = libraries.objects.iter().find(|o| !o.name().starts_with("libggml") && loads(o));
    let llama = libraries.named("libllama.so").filter(|o| loads(o));
    let name = program.name();
    match (loads(program), llama, through) {
        (_, Some(_), _) if ALWAYS.contains(&name) => Asks::Itself,
        (_, Some(l), _) if WHILE_EMPTY.contains(&name) => Asks::WhileEmpty(l.name().to_owned()),
        (true, Some(l), _) => Asks::Perhaps(Some(l.name().to_owned())),
        (true, None, _) => Asks::Itself,
        (false, Some(l), _) => Asks::WhileEmpty(l.name().to_owned()),
        (false, None, Some(_)) => Asks::Perhaps(None),
        (false, None, None) => Asks::Never,
    }
}
