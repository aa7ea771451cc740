//! What the fuzz targets run and what must hold. Each takes any bytes; `true` says that they were
//! worth running. `corpus.rs` replays the committed corpora through the same code.
#![allow(dead_code, clippy::unwrap_used)]

#[path = "../user/mod.rs"]
pub mod user;

mod arguments;
mod bases;
mod commands;
mod ioctls;
mod model;
mod stream;

pub use commands::{bases_run, commands};
pub use ioctls::ioctls;

use rocket_sim::{Alive, Rule, SimBoard};

/// What must hold of every board when nothing is left of what used it.
fn nothing_left(board: &SimBoard) {
    assert_eq!(board.alive(), Alive::default());
    for e in board.explanations() {
        assert_ne!(e.rule, Rule::Internal, "{e}");
    }
}
