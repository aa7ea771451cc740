//! A result against its definition, summed here in double precision or in integers from the operands as they
//! were given: no layout, no plan and no kernel of the runtime takes part.
//!
//! Beside each stands a control: how far the same result is from what one wrong operand would have given. A test
//! whose control is not far off proves nothing, and is not counted as passed.

use rocket_runtime::matmul::Stats;

/// M, K and N of a product.
pub type Shape = [usize; 3];

/// What a result came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Judged {
    Float {
        /// Largest difference of an element, as a part of what it may be off.
        of_bound: f64,
        /// The same against what the nearest wrong operand would have given.
        control: f64,
        elements: usize,
        /// Elements that hold what was there before.
        unwritten: usize,
    },
    Exact {
        /// Elements that differ.
        wrong: usize,
        /// Elements that differ from what the nearest wrong operand would have given.
        control: usize,
        elements: usize,
        unwritten: usize,
    },
}

/// A test's results, and how often the runtime had to run something again for them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Done {
    pub judged: Judged,
    /// Groups of jobs of which one was lost.
    pub retries: u64,
}

impl Done {
    pub fn of(judged: Judged, stats: &[Stats]) -> Done {
        Done { judged, retries: stats.iter().map(|s| s.retries).sum() }
    }

    /// The worse of both, with the retries of both.
    pub fn and(self, other: Done) -> Done {
        Done { judged: self.judged.and(other.judged), retries: self.retries + other.retries }
    }
}

/// How far off a control must be, in bounds: rounding alone never gets there.
const FAR: f64 = 10.0;

impl Judged {
    /// Nothing is wrong, and the control shows that it would have been seen.
    pub fn passed(&self) -> bool {
        self.is_right() && self.tells()
    }

    /// Every element was written, and is what it should be.
    pub fn is_right(&self) -> bool {
        match *self {
            Judged::Float { of_bound, unwritten, .. } => unwritten == 0 && of_bound <= 1.0,
            Judged::Exact { wrong, unwritten, .. } => unwritten == 0 && wrong == 0,
        }
    }

    /// A wrong operand would have been seen.
    pub fn tells(&self) -> bool {
        match *self {
            Judged::Float { control, .. } => control >= FAR,
            Judged::Exact { control, elements, .. } => 2 * control > elements,
        }
    }

    /// The worse of both.
    pub fn and(self, other: Judged) -> Judged {
        let worse = |j: &Judged| (j.is_right(), j.tells());
        match (self, other) {
            (
                Judged::Float { of_bound: a, control: b, elements: c, unwritten: d },
                Judged::Float { of_bound, control, elements, unwritten },
            ) => Judged::Float {
                of_bound: worst(a, of_bound),
                control: b.min(control),
                elements: c + elements,
                unwritten: d + unwritten,
            },
            (
                Judged::Exact { wrong: a, control: b, elements: c, unwritten: d },
                Judged::Exact { wrong, control, elements, unwritten },
            ) => Judged::Exact {
                wrong: a + wrong,
                control: b + control,
                elements: c + elements,
                unwritten: d + unwritten,
            },
            (a, b) => std::cmp::min_by_key(a, b, worse),
        }
    }

    /// In words.
    pub fn words(&self) -> String {
        match *self {
            Judged::Float { unwritten, elements, .. }
            | Judged::Exact { unwritten, elements, .. }
                if unwritten > 0 =>
            {
                format!("{unwritten} of {elements} elements were never written")
            }
            Judged::Float { of_bound, control, .. } => {
                format!("{of_bound:.3} of the bound; wrong operand: {}", short(control))
            }
            Judged::Exact { wrong: 0, control, elements, .. } => {
                format!("equal in integers; wrong operand: {} % differ", 100 * control / elements)
            }
            Judged::Exact { wrong, elements, .. } => {
                format!("{wrong} of {elements} elements differ")
            }
        }
    }
}

fn short(x: f64) -> String {
    if x < 100.0 { format!("{x:.1}") } else { format!("{x:.0}") }
}

/// The larger one; not a number is the largest.
fn worst(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// How far an element of a product may be off: `relative` times the sum of its terms' magnitudes, and `absolute`
/// (docs/library.md, Formats).
#[derive(Debug, Clone, Copy)]
pub struct Tolerance {
    pub relative: f64,
    pub absolute: f64,
}

/// A float product. `c` was filled with NaN before, which a product of these operands never gives.
pub fn floats(c: &[f32], a: &[f64], w: &[f64], [m, k, n]: Shape, t: Tolerance) -> Judged {
    let (mut of_bound, mut column, mut tail) = (0f64, 0f64, 0f64);
    for (x, got) in c.iter().enumerate().take(m * n) {
        let row = &a[x / n * k..][..k];
        let terms = |j: usize| row.iter().zip(&w[j * k..][..k]).map(|(a, w)| a * w);
        let j = x % n;
        let (mut sum, mut size, mut last) = (0.0, 0.0, 0.0);
        for term in terms(j) {
            (sum, size, last) = (sum + term, size + term.abs(), term);
        }
        let bound = t.relative * size + t.absolute + f64::MIN_POSITIVE;
        let off = |want: f64| (f64::from(*got) - want).abs() / bound;
        of_bound = worst(of_bound, off(sum));
        // A column of W in another one's place; the last channel left out.
        column = column.max(off(terms((j + 1) % n).sum()));
        tail = tail.max(off(sum - last));
    }
    let unwritten = c.iter().filter(|x| x.is_nan()).count() + (m * n).saturating_sub(c.len());
    Judged::Float { of_bound, control: column.min(tail), elements: m * n, unwritten }
}

/// An integer product. `c` was filled with `before`, which is no sum of these operands.
pub fn exact(c: &[i64], a: &[i64], w: &[i64], [m, k, n]: Shape, before: i64) -> Judged {
    let (mut wrong, mut column, mut tail) = (0, 0, 0);
    for (x, got) in c.iter().enumerate().take(m * n) {
        let row = &a[x / n * k..][..k];
        let sum = |j: usize| row.iter().zip(&w[j * k..][..k]).map(|(a, w)| a * w).sum::<i64>();
        let (j, want) = (x % n, sum(x % n));
        wrong += usize::from(*got != want);
        column += usize::from(*got != sum((j + 1) % n));
        tail += usize::from(*got != want - row[k - 1] * w[j * k + k - 1]);
    }
    let unwritten = c.iter().filter(|x| **x == before).count() + (m * n).saturating_sub(c.len());
    Judged::Exact { wrong, control: column.min(tail), elements: m * n, unwritten }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const T: Tolerance = Tolerance { relative: 1e-4, absolute: 0.0 };
    /// Two rows, three channels, two columns.
    const A: [f64; 6] = [1.0, 2.0, 3.0, -1.0, 0.5, 4.0];
    const W: [f64; 6] = [2.0, -1.0, 5.0, 1.0, 1.0, -6.0];
    /// By hand.
    const C: [f32; 4] = [15.0, -15.0, 17.5, -24.5];

    fn whole(x: &[f64]) -> Vec<i64> {
        x.iter().map(|x| (2.0 * x) as i64).collect()
    }

    #[test]
    fn a_product_by_hand() {
        let judged = floats(&C, &A, &W, [2, 3, 2], T);
        assert!(judged.passed(), "{judged:?}");
        let doubled: Vec<i64> = C.iter().map(|c| (4.0 * c) as i64).collect();
        let judged = exact(&doubled, &whole(&A), &whole(&W), [2, 3, 2], i64::MIN);
        assert_eq!(judged, Judged::Exact { wrong: 0, control: 4, elements: 4, unwritten: 0 });
        assert!(judged.passed());
    }

    #[test]
    fn what_nobody_wrote_and_what_is_missing_is_seen() {
        let judged = |c: &[f32]| floats(c, &A, &W, [2, 3, 2], T);
        assert!(!judged(&[15.0, f32::NAN, 17.5, -24.5]).is_right());
        assert!(judged(&[15.0, f32::NAN, 17.5, -24.5]).words().contains("1 of 4"));
        assert!(!judged(&[15.0, -15.0, 17.5]).is_right());
        let exact = |c: &[i64]| exact(c, &whole(&A), &whole(&W), [2, 3, 2], i64::MIN);
        assert!(!exact(&[60, -60, 70]).is_right());
        assert!(exact(&[60, i64::MIN, 70, -98]).words().contains("never written"));
    }

    /// Rounded within the bound passes, beyond it does not.
    #[test]
    fn the_bound_is_the_limit() {
        // Magnitudes of C[0][0]'s terms: 2 + 2 + 15.
        for (off, right) in [(0.9, true), (1.1, false)] {
            let mut c = C;
            c[0] += (off * 1e-4 * 19.0) as f32;
            assert_eq!(floats(&c, &A, &W, [2, 3, 2], T).is_right(), right, "{off}");
        }
    }

    /// With a bound as wide as the control, nothing was tested, and that is no pass.
    #[test]
    fn a_blunt_test_does_not_pass() {
        let judged = floats(&C, &A, &W, [2, 3, 2], Tolerance { relative: 1.0, absolute: 0.0 });
        assert!(judged.is_right() && !judged.passed(), "{judged:?}");
        let alike = exact(&[0; 4], &[0; 6], &whole(&W), [2, 3, 2], i64::MIN);
        assert!(alike.is_right() && !alike.passed());
    }

    proptest! {
        /// One element changed by one is one wrong element, wherever it is.
        #[test]
        fn each_element_counts(at in 0usize..4, by in 1i64..9) {
            let mut c: Vec<i64> = C.iter().map(|c| (4.0 * c) as i64).collect();
            c[at] += by;
            let judged = exact(&c, &whole(&A), &whole(&W), [2, 3, 2], i64::MIN);
            let only_one = matches!(judged, Judged::Exact { wrong: 1, .. });
            prop_assert!(only_one, "{:?}", judged);
        }

        /// Two results are as good as the worse of them, in either order.
        #[test]
        fn the_worse_counts(good in 0f64..1.0, bad in 1.01f64..9.0) {
            let float = |of_bound| Judged::Float { of_bound, control: 50.0, elements: 1, unwritten: 0 };
            prop_assert!(!float(good).and(float(bad)).is_right());
            prop_assert!(!float(bad).and(float(good)).is_right());
            prop_assert!(!float(good).and(float(f64::NAN)).is_right());
            prop_assert!(float(good).and(float(good)).is_right());
        }
    }
}
