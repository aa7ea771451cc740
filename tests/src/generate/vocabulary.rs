//! The smallest vocabulary that a host takes: a few marks and the 256 bytes. A text of ASCII has one
//! token a byte, so that prompts of any length can be cut without asking the host.

use super::{Recipe, Value};

/// How many tokens there are, and columns of the output matrix: no multiple of 16.
pub const TOKENS: usize = 4 + 256 + IMAGE_MARKS.len();

/// What stands around a picture's tokens, for the projector of `siglip`.
const IMAGE_MARKS: [&str; 3] = ["\n\n", "<fake_token_around_image>", "<global-img>"];

/// "Normal", "unknown", "control" and "byte" in the numbers of the format.
const TYPES: [i32; 4] = [1, 2, 3, 6];

pub(super) fn keys(r: &mut Recipe) {
    // The host writes a space as this letter, which is three bytes long.
    let marks = ["<unk>", "<s>", "</s>", "\u{2581}"].map(str::to_owned);
    let bytes = (0..=255u8).map(|b| format!("<0x{b:02X}>"));
    let tokens = marks.into_iter().chain(bytes).chain(IMAGE_MARKS.map(str::to_owned));
    let [normal, unknown, control, byte] = TYPES;
    let types = [unknown, control, control, normal].into_iter().chain([byte; 256]);
    let types = types.chain([control; IMAGE_MARKS.len()]);
    r.key("tokenizer.ggml.model", "llama");
    r.key("tokenizer.ggml.tokens", Value::Texts(tokens.collect()));
    r.key("tokenizer.ggml.scores", Value::F32s(vec![0.0; TOKENS]));
    r.key("tokenizer.ggml.token_type", Value::I32s(types.collect()));
    r.key("tokenizer.ggml.bos_token_id", 1u32);
    r.key("tokenizer.ggml.eos_token_id", 2u32);
    r.key("tokenizer.ggml.unknown_token_id", 0u32);
    r.key("tokenizer.ggml.add_bos_token", true);
    r.key("tokenizer.ggml.add_space_prefix", false);
}

/// A beginning of a text of ASCII that has so many tokens, with the mark that the host puts before.
pub fn text_of(text: &str, tokens: usize) -> &str {
    assert!(text.is_ascii(), "one byte a token");
    &text[..tokens - 1]
}

/// The token of a byte of such a text.
pub fn token_of(byte: u8) -> u32 {
    if byte == b' ' { 3 } else { 4 + u32::from(byte) }
}
