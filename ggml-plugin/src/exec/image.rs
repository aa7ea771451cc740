//! How much memory the packed weights of everything that was offered would take: what decides in
//! which numbers quantized weights are kept.

use crate::route::Dtype;
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The quantized weights that the host asked about, and the decision about them.
#[derive(Debug, Default)]
pub struct Image {
    /// Elements by address and type: a weight is asked about many times.
    seen: Mutex<HashMap<(usize, Dtype), u64>>,
    native: OnceLock<bool>,
}

impl Image {
    /// A product with this weight was accepted.
    pub fn offer(&self, address: usize, dtype: Dtype, elements: u64) {
        if dtype.is_quantized() && address != 0 && self.native.get().is_none() {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.insert((address, dtype), elements);
        }
    }

    /// Bytes of all of them in F16.
    pub fn bytes(&self) -> u64 {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.values().fold(0, |sum, e| sum.saturating_add(e.saturating_mul(2)))
    }

    /// Whether quantized weights are kept in int8: as the user says, else where F16 copies of all
    /// do not fit `room` bytes and int8 ones do. Decided once, at the first product: schedulers have
    /// asked about every op by then, and a weight that changed its format would be packed twice.
    pub fn native(&self, given: Option<bool>, room: impl FnOnce() -> Option<u64>) -> bool {
        let fits = |room| (self.bytes() / 2..self.bytes()).contains(&room);
        *self.native.get_or_init(|| given.unwrap_or_else(|| room().is_some_and(fits)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const Q8: Dtype = Dtype(8);

    fn image() -> Image {
        let image = Image::default();
        for address in [16, 32, 16] {
            image.offer(address, Q8, 1000);
        }
        image.offer(64, Dtype::F16, 1 << 40);
        image.offer(0, Q8, 1 << 40);
        image
    }

    #[test]
    fn int8_where_f16_does_not_fit() {
        assert_eq!(image().bytes(), 4000);
        for (room, native) in [
            (None, false),
            (Some(4000), false),
            (Some(3999), true),
            (Some(2000), true),
            (Some(1999), false),
            (Some(0), false),
        ] {
            assert_eq!(image().native(None, || room), native, "{room:?}");
            assert!(image().native(Some(true), || room));
            assert!(!image().native(Some(false), || room));
        }
    }

    #[test]
    fn the_decision_stays() {
        let image = image();
        assert!(!image.native(None, || Some(4000)));
        image.offer(128, Q8, 1 << 40);
        assert!(!image.native(None, || Some(0)));
        assert_eq!(image.bytes(), 4000, "what comes later changes nothing");
    }
}
