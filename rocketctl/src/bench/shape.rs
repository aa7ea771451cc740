//! Shapes as people write them.

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Rows of the activations, inner dimension, columns of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub m: usize,
    pub k: usize,
    pub n: usize,
}

/// Largest dimension, and largest operand in elements: what fits the memory of any board.
const MOST: usize = 1 << 17;
const MOST_ELEMENTS: usize = 1 << 28;

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Shape, String> {
        let numbers: Vec<usize> =
            text.split(['x', 'X']).map_while(|p| p.trim().parse().ok()).collect();
        let [m, k, n] = numbers[..] else {
            return Err("three whole numbers are wanted, as in 512x2048x2048 (rows x K x N)".into());
        };
        if text.split(['x', 'X']).count() != 3 {
            return Err("three whole numbers are wanted, as in 512x2048x2048 (rows x K x N)".into());
        }
        if [m, k, n].iter().any(|d| !(1..=MOST).contains(d)) {
            return Err(format!("each of the three is 1 to {MOST}"));
        }
        if m.max(n) * k > MOST_ELEMENTS || m * n > MOST_ELEMENTS {
            return Err(format!("no matrix may have more than {MOST_ELEMENTS} elements"));
        }
        Ok(Shape { m, k, n })
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.m, self.k, self.n)
    }
}

impl Serialize for Shape {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        [self.m, self.k, self.n].serialize(s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_shape_is_refused_with_the_form() {
        for bad in
            ["", "1x2", "1x2x3x4", "ax2x3", "0x2x3", "1x2x999999999", "131072x131072x1", "-1x2x3"]
        {
            let why = bad.parse::<Shape>().unwrap_err();
            assert!(
                why.contains("512x2048x2048") || why.contains("131072") || why.contains("elements"),
                "{why}"
            );
        }
        assert_eq!("4X32x16".parse(), Ok(Shape { m: 4, k: 32, n: 16 }));
    }

    proptest! {
        #[test]
        fn any_text(text in ".{0,40}") {
            let _ = text.parse::<Shape>();
        }

        #[test]
        fn written_and_read(m in 1usize..4096, k in 1usize..4096, n in 1usize..4096) {
            let shape = Shape { m, k, n };
            prop_assert_eq!(shape.to_string().parse(), Ok(shape));
        }
    }
}
