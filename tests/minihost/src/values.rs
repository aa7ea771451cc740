//! Numbers for operands, and the product they should give.

/// A generator of evenly spread numbers; the same seed gives the same ones.
#[derive(Debug)]
pub struct Values(u64);

impl Values {
    /// From a seed.
    pub fn new(seed: u64) -> Values {
        Values(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d)
    }

    fn next(&mut self) -> f32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// So many in -1..1.
    pub fn take(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.next()).collect()
    }
}

/// What a result element should be, and how far off the NPU's may be.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// The product in double precision.
    pub value: f64,
    /// See [`product`].
    pub bound: f64,
}

/// Half a unit of F16 beside a number: numbers are rounded to 11 bits.
const HALF_UNIT: f64 = 1.0 / 2048.0;
/// Half of the smallest step of F16, beside numbers below 2^-14.
const FLOOR: f64 = 1.0 / 33_554_432.0;
/// Half a unit of F32.
const HALF_UNIT_F32: f64 = 1.0 / 16_777_216.0;
/// The NPU's operand store holds a 256 by 256 tile of at least 352 channels (384 KiB, a bank of 32
/// KiB kept free, two bytes each): K is never cut into shorter steps than this, but for the rest.
const SHORTEST_STEP: usize = 256;

fn largest(row: &[f32]) -> f64 {
    row.iter().fold(0.0, |m, x| f64::max(m, f64::from(x.abs())))
}

fn power_at_most(x: f64) -> f64 {
    if x > 0.0 { 2f64.powi(x.log2().floor() as i32) } else { 1.0 }
}

/// `m` rows of `a` times `n` rows of `w`, in double precision, with the bound of each element.
///
/// Where the NPU's result may differ, worst cases added up; s is the power of two that an
/// activation row is divided by, less than twice its largest magnitude, and f likewise of a weight
/// row that is scaled because its largest is outside of 2^-10..65504, else 1:
/// * an activation is rounded to F16 after division by s: 2^-11 of itself, or 2^-25 s if small;
/// * a weight is rounded to F16 after division by f: 2^-11 of itself, or 2^-25 f;
/// * the sum of one K step is of F32: at most K additions of 2^-24 of the magnitudes so far;
/// * after each K step the running sum is rounded to F16: 2^-11 of its largest value on the way,
///   or 2^-25 s f.
///
/// Products of two of these are below a hundredth of it.
pub fn product(a: &[f32], w: &[f32], k: usize) -> Vec<Wanted> {
    let steps = k.div_ceil(SHORTEST_STEP) as f64;
    let rows: Vec<(f64, f64)> = w
        .chunks_exact(k)
        .map(|row| {
            let most = largest(row);
            let fits = (2f64.powi(-10)..=65504.0).contains(&most);
            let magnitudes = row.iter().map(|x| f64::from(x.abs())).sum();
            (if fits { 1.0 } else { power_at_most(most) }, magnitudes)
        })
        .collect();
    let mut out = Vec::with_capacity(a.len() / k * rows.len());
    for row in a.chunks_exact(k) {
        let s = 2.0 * power_at_most(largest(row));
        let magnitudes: f64 = row.iter().map(|x| f64::from(x.abs())).sum();
        for (kernel, &(f, weights)) in w.chunks_exact(k).zip(&rows) {
            let (mut sum, mut size, mut peak) = (0f64, 0f64, 0f64);
            for (x, y) in row.iter().zip(kernel) {
                let p = f64::from(*x) * f64::from(*y);
                sum += p;
                size += p.abs();
                peak = peak.max(sum.abs());
            }
            let operands = 2.0 * HALF_UNIT * size + FLOOR * (s * weights + f * magnitudes);
            let sums = k as f64 * HALF_UNIT_F32 * size + steps * (HALF_UNIT * peak + FLOOR * s * f);
            out.push(Wanted { value: sum, bound: 1.01 * (operands + sums) });
        }
    }
    out
}

/// How far a result is off, in units of the bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deviation {
    /// The worst element; not a number if one is not.
    pub worst: f64,
    /// Negative control: the worst element against the one beside it in its row, which belongs to
    /// another row of the weight.
    pub control: f64,
    /// Share of elements for which that is beyond the bound.
    pub beyond: f64,
}

impl Deviation {
    /// Of rows of `n` elements.
    pub fn of(got: &[f32], wanted: &[Wanted], n: usize) -> Deviation {
        let units = |got: f32, value: f64, bound: f64| {
            let off = (f64::from(got) - value).abs();
            if off == 0.0 { 0.0 } else { off / bound }
        };
        let most = |m: f64, d: f64| if d > m || d.is_nan() { d } else { m };
        let mut d = Deviation { worst: 0.0, control: 0.0, beyond: 0.0 };
        if got.len() != wanted.len() {
            return Deviation { worst: f64::NAN, ..d };
        }
        for (i, (&g, w)) in got.iter().zip(wanted).enumerate() {
            d.worst = most(d.worst, units(g, w.value, w.bound));
            let beside = i / n * n + (i + 1) % n.max(1);
            let off = wanted.get(beside).map_or(0.0, |other| units(g, other.value, w.bound));
            d.control = most(d.control, off);
            d.beyond += if off > 1.0 { 1.0 } else { 0.0 };
        }
        d.beyond /= got.len().max(1) as f64;
        d
    }

    /// Right, and a wrong weight would have shown.
    pub fn passes(&self) -> bool {
        self.worst <= 1.0 && self.control >= 10.0 && self.beyond >= 0.75
    }
}

impl std::fmt::Display for Deviation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Deviation { worst, control, beyond } = self;
        write!(f, "{worst:.3} of the bound; another weight row: {control:.0}, ")?;
        write!(f, "{:.0} % of elements beyond it", beyond * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_by_hand() {
        let w = product(&[1.0, 2.0, 3.0, 4.0], &[1.0, 0.0, 0.5, -1.0], 2);
        let values: Vec<f64> = w.iter().map(|x| x.value).collect();
        assert_eq!(values, [1.0, -1.5, 3.0, -2.5]);
        // A few thousandths: 2^-10 of the magnitudes and once 2^-11 of the peak.
        assert!(w.iter().all(|x| x.bound > 0.0009 && x.bound < 0.02), "{w:?}");
    }

    #[test]
    fn wrong_results_do_not_pass() {
        let (a, w) = (Values::new(1).take(8 * 64), Values::new(2).take(16 * 64));
        let wanted = product(&a, &w, 64);
        let right: Vec<f32> = wanted.iter().map(|x| x.value as f32).collect();
        assert!(Deviation::of(&right, &wanted, 16).passes());
        let mut shifted = right.clone();
        shifted.rotate_left(1);
        assert!(!Deviation::of(&shifted, &wanted, 16).passes());
        for wrong in [f32::NAN, f32::INFINITY, 0.0] {
            let mut bad = right.clone();
            bad[77] = wrong;
            assert!(!Deviation::of(&bad, &wanted, 16).passes(), "{wrong}");
        }
        assert!(!Deviation::of(&right[1..], &wanted, 16).passes());
        // A weight whose rows are all alike could be anything.
        let same = product(&a, &w[..64].repeat(16), 64);
        let right: Vec<f32> = same.iter().map(|x| x.value as f32).collect();
        assert!(!Deviation::of(&right, &same, 16).passes());
    }
}
