//! Functions that record which of them was called (ggml-abi 5.2): put into a fake table, they
//! tell which slot an accessor of the host reads.
#![allow(unsafe_code)]

use std::cell::Cell;

/// More slots than any table has.
pub const COUNT: usize = 32;

thread_local! {
    static CALLED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Returns null (or zero, or false). Whatever arguments the host passes stay in the registers the
/// caller owns: neither the x86-64 nor the AArch64 calling convention makes a callee clean up.
extern "C" fn trampoline<const I: usize>() -> usize {
    // A thread that is being torn down records nothing, which reads as "no slot called".
    let _ = CALLED.try_with(|c| c.set(Some(I)));
    0
}

/// The table: word `i` is the address of trampoline `i`.
pub fn table() -> [usize; COUNT] {
    macro_rules! words {
        ($($i:literal)*) => { [$(trampoline::<$i> as extern "C" fn() -> usize as usize),*] };
    }
    words!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
}

/// Runs `f` and returns the number of the last trampoline it reached on this thread.
pub fn called_by(f: impl FnOnce()) -> Option<usize> {
    CALLED.with(|c| c.set(None));
    f();
    CALLED.with(Cell::take)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_reports_its_own_index() {
        for (i, &word) in table().iter().enumerate() {
            // SAFETY: the word is the address of such a function; the extra argument is ignored.
            let f: extern "C" fn(usize) -> usize = unsafe { std::mem::transmute(word) };
            assert_eq!(called_by(|| assert_eq!(f(7), 0)), Some(i));
        }
        assert_eq!(called_by(|| ()), None);
    }
}
