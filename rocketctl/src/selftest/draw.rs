//! Numbers for operands: the same on every machine, from a seed.

/// splitmix64
#[derive(Debug)]
pub struct Draw(pub u64);

impl Draw {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// In -1..1.
    pub fn value(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// In -limit..=limit.
    pub fn whole(&mut self, limit: i64) -> i64 {
        let span = 2 * limit as u64 + 1;
        (self.bits() % span) as i64 - limit
    }

    pub fn list<T>(&mut self, len: usize, one: impl Fn(&mut Draw) -> T) -> Vec<T> {
        (0..len).map(|_| one(self)).collect()
    }
}
