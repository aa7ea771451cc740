//! Operands of unit tests.

/// Values in -1 .. 1, the same for the same seed.
pub fn noise(seed: u32, len: usize) -> Vec<f32> {
    let mut x = seed;
    (0..len)
        .map(|_| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}
