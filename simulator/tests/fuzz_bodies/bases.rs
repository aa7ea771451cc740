//! Valid programs that mutations start from.

use std::sync::LazyLock;

/// Where they expect their data, and the size of the buffer that holds everything.
pub const INPUT: usize = 0x2800;
pub const SIZE: usize = 0x9000;

pub static BASES: LazyLock<Vec<Vec<u64>>> = LazyLock::new(|| {
    let lines = include_str!("bases.txt").lines().filter(|l| !l.starts_with('#'));
    lines.map(|line| line.split(' ').skip(1).flat_map(token).collect()).collect()
});

fn token(token: &str) -> Vec<u64> {
    match token.strip_prefix("ramp:") {
        Some(n) => (0..n.parse().unwrap()).map(|i: u64| 0x1001 << 48 | i << 22 | 0x4104).collect(),
        None => vec![u64::from_str_radix(token, 16).unwrap()],
    }
}

/// How many programs a base is made of: each ends with an enable word.
pub fn programs(words: &[u64]) -> usize {
    words.iter().filter(|w| **w >> 48 == 0x81).count().max(1)
}
