#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};

fuzz_target!(|data: &[u8]| -> Corpus {
    if rocket_sim_fuzz::ioctls(data) { Corpus::Keep } else { Corpus::Reject }
});
