//! Tile sizes under the CBUF's bounds (npu-rk3588 7.1, 7.2).

use super::Shape;
use crate::dtype::{DType, Info};
use crate::soc::RK3588;

/// Rows of the canonical tile, and the most columns.
const MAX_TILE: usize = 256;
/// Columns of a tile once K is split (7.2, "asymmetric N").
const NARROW_N: usize = 128;
/// Largest dimension the fp16 planner admits.
const MAX_DIM: usize = 1 << 24;

/// How a GEMM is cut. Edge tiles are the remainders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TilePlan {
    /// Rows of a tile.
    pub mt: usize,
    /// Contraction length of a K step.
    pub kt: usize,
    /// Columns of a tile.
    pub nt: usize,
    /// Tiles along M.
    pub n_mt: usize,
    /// K steps.
    pub n_kt: usize,
    /// Tiles along N.
    pub n_nt: usize,
}

impl TilePlan {
    pub(super) fn new(shape: Shape, mt: usize, kt: usize, nt: usize) -> TilePlan {
        TilePlan {
            mt,
            kt,
            nt,
            n_mt: shape.m.div_ceil(mt),
            n_kt: shape.k.div_ceil(kt),
            n_nt: shape.n.div_ceil(nt),
        }
    }

    /// Tasks of the whole GEMM.
    pub fn tasks(&self) -> usize {
        self.n_mt * self.n_kt * self.n_nt
    }

    /// The same columns and K steps for another number of rows: what a call on weights packed
    /// for `self` runs. Fewer rows always fit where 256 did.
    pub fn with_rows(&self, m: usize) -> TilePlan {
        let mt = m.min(MAX_TILE);
        TilePlan { mt, n_mt: m.div_ceil(mt), ..*self }
    }
}

/// The CBUF budget of one dtype.
#[derive(Debug, Clone, Copy)]
pub struct Fit(&'static Info);

impl Fit {
    /// The budget of `dtype`.
    pub fn of(dtype: DType) -> Fit {
        Fit(dtype.info())
    }

    fn banks(&self, rows: usize, k: usize) -> usize {
        (rows * k * self.0.bits / 8).div_ceil(RK3588.bank_bytes)
    }

    /// Whether the features of `mt` rows and the weights of `nt` columns, both of `kt` channels, are
    /// resident together (4.1).
    pub fn holds(&self, mt: usize, kt: usize, nt: usize) -> bool {
        self.banks(mt, kt) + self.banks(nt, kt) <= RK3588.cbuf_banks - self.0.slack_banks
    }

    /// The longest K step that fits, never less than one alignment unit.
    fn longest_k(&self, k: usize, mt: usize, nt: usize) -> usize {
        let unit = self.0.k_group;
        let mut kt = (k.min(self.0.k_cap) / unit * unit).max(unit);
        while kt > unit && !self.holds(mt, kt, nt) {
            kt -= unit;
        }
        kt
    }
}

/// Plans a GEMM of aligned sizes, `None` when admission refuses it (7.1).
pub fn plan(dtype: DType, shape: Shape) -> Option<TilePlan> {
    plan_with(dtype, shape, true)
}

/// As [`plan`], `None` likewise; `asymmetric` false keeps 256 columns even when K is split.
pub fn plan_with(dtype: DType, shape: Shape, asymmetric: bool) -> Option<TilePlan> {
    let info = dtype.info();
    let Shape { m, k, n } = shape;
    let is_fp16 = matches!(dtype, DType::Fp16 | DType::Fp16F32Out);
    if m == 0 || k == 0 || n == 0 {
        return None;
    }
    if !m.is_multiple_of(4) || !k.is_multiple_of(info.k_group) || !n.is_multiple_of(info.n_group) {
        return None;
    }
    if is_fp16 && m.max(k).max(n) > MAX_DIM {
        return None;
    }
    let fit = Fit(info);
    let mut mt = m.min(MAX_TILE);
    let mut nt = n.min(MAX_TILE);
    if !is_fp16 {
        nt = (nt / info.n_group * info.n_group).max(info.n_group);
    }
    let mut kt = fit.longest_k(k, mt, nt);
    if is_fp16 && asymmetric && nt == MAX_TILE && n > MAX_TILE && k.div_ceil(kt) > 1 {
        nt = NARROW_N;
        kt = fit.longest_k(k, mt, nt);
    }
    while !fit.holds(mt, kt, nt) && nt > info.n_group {
        nt -= info.n_group;
    }
    while !fit.holds(mt, kt, nt) && mt > 4 {
        mt -= 4;
    }
    Some(TilePlan::new(shape, mt, kt, nt))
}

/// Plans an int8 GEMM whose partial sums are scaled group by group along K (7.6). `None` when a
/// size is off its grid (M 4, K and N 32), the group is not a multiple of 32 or K not one of the
/// group, or when no K step fits.
pub fn group_plan_int8(shape: Shape, group: usize) -> Option<TilePlan> {
    let info = DType::Int8.info();
    let Shape { m, k, n } = shape;
    let aligned = m.is_multiple_of(4) && k.is_multiple_of(32) && n.is_multiple_of(32);
    if !aligned
        || m == 0
        || n == 0
        || group == 0
        || !group.is_multiple_of(32)
        || !k.is_multiple_of(group)
    {
        return None;
    }
    let mt = m.min(MAX_TILE);
    let balanced = if n <= MAX_TILE { n } else { n.div_ceil(n.div_ceil(MAX_TILE)) };
    let nt = balanced.next_multiple_of(32).clamp(32, MAX_TILE);
    let kt = (32..=group)
        .rev()
        .step_by(32)
        .find(|&d| group.is_multiple_of(d) && Fit(info).holds(mt, d, nt))?;
    Some(TilePlan::new(shape, mt, kt, nt))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::matmul::bank_split;
    use proptest::prelude::*;

    proptest! {
        /// No plan breaks a CBUF bound, for its full tile and so for every edge tile, and the
        /// encoder accepts it.
        #[test]
        fn plans_never_break_a_cbuf_bound(
            d in prop::sample::select(DType::ALL.to_vec()),
            m in 1usize..600, k in 1usize..1200, n in 1usize..600,
        ) {
            let t = d.info();
            let shape = Shape { m: m * 4, k: k * t.k_group, n: n * t.n_group };
            let p = plan(d, shape).expect("aligned shapes are admitted");
            prop_assert!(Fit::of(d).holds(p.mt, p.kt, p.nt), "{:?}", p);
            let (data, weight) = bank_split(d, p.mt as u32, p.kt as u32).expect("encodable");
            let weight_bytes = p.nt * t.row_bytes(p.kt);
            prop_assert!(weight_bytes <= weight as usize * RK3588.bank_bytes, "{:?} {}", p, data);
            prop_assert!(p.n_mt * p.mt >= shape.m && p.n_nt * p.nt >= shape.n && p.n_kt * p.kt >= shape.k);
        }
    }
}
