//! Links between programs that run in one batched kick (npu-rk3588 1.6). fp16 only: integer
//! accumulators are cleared once a kick (trap 7).

use super::regs::pc;
use super::word::{Block, Word, amount};

/// Bytes from one segment of `words` words to the next: contiguous, an even number of words.
pub const fn stride(words: usize) -> usize {
    words.next_multiple_of(2) * 8
}

/// Links `programs`, equally long and to be placed one after another from `iova` on, and returns
/// the contiguous words. A single program is returned as it is.
pub fn link<const N: usize>(programs: &[[Word; N]], iova: u32) -> Vec<Word> {
    let step = stride(N) / 8;
    let mut out = vec![Word::NOP; step * programs.len()];
    for (i, program) in programs.iter().enumerate() {
        let at = i * step;
        out[at..at + N].copy_from_slice(program);
        if programs.len() == 1 {
            break;
        }
        // The last segment keeps the zero link, so that nothing is fetched past the end; its
        // amount is a don't-care that the reference leaves in place.
        if i + 1 < programs.len() {
            let next = iova + ((i + 1) * stride(N)) as u32;
            out[at + N - 4] = Word::write(Block::Pc, pc::BASE_ADDRESS, next);
        }
        out[at + N - 3] = Word::write(Block::Pc, pc::REGISTER_AMOUNTS, amount(N as u32));
    }
    out
}
