//! `rocketctl unit`: what a server's unit needs to use the NPU.

pub mod files;
pub mod parse;
