//! What is multiplied, and how it is shared out to workers (npu-rk3588 7.1, 7.4 to 7.7).

use super::{Residency, Sequence};
use rocket_runtime::dtype::DType;
use rocket_runtime::plan::{Shape, TilePlan, group_plan_int8, plan};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// A kind of product that the reference has an entry for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Program type.
    pub dtype: DType,
    /// Channels that share a scale (7.6).
    pub group: Option<usize>,
    /// Most channels of a K step (7.7).
    pub k_cap: Option<usize>,
}

/// Rows that weights are packed for (7.5).
const PACKED_ROWS: usize = 256;

/// The K step at which no int4 sum saturates (7.7).
const INT4_EXACT_K: usize = 480;

impl Kind {
    /// The product of one dtype.
    pub const fn plain(dtype: DType) -> Kind {
        Kind { dtype, group: None, k_cap: None }
    }

    /// With a scale for each `group` channels.
    pub const fn grouped(dtype: DType, group: usize) -> Kind {
        Kind { dtype, group: Some(group), k_cap: None }
    }

    /// int4 in K steps that cannot saturate.
    pub const INT4_EXACT: Kind =
        Kind { dtype: DType::Int4, group: None, k_cap: Some(INT4_EXACT_K) };

    /// A shape as it must be padded to be admitted (7.1, 7.6).
    pub fn padded(&self, shape: Shape) -> Shape {
        let info = self.dtype.info();
        Shape {
            m: shape.m.next_multiple_of(4),
            k: shape.k.next_multiple_of(self.group.unwrap_or(info.k_group)),
            n: shape.n.next_multiple_of(info.n_group),
        }
    }

    /// The tiles of one worker and when its weights are packed, none when the entry refuses the
    /// shape. fp16 weights are packed for 256 rows; a call of fewer that would be cut otherwise is
    /// refused, so that it has to stream (7.5).
    pub fn plan(&self, shape: Shape, wanted: Residency) -> Option<(TilePlan, Residency)> {
        let own = self.tiles(shape, shape.m)?;
        let fp16 = matches!(self.dtype, DType::Fp16 | DType::Fp16F32Out);
        Some(match (wanted, self.dtype) {
            (Residency::Resident, DType::Int8 | DType::Int8F32Out | DType::Int4) => {
                (self.tiles(shape, PACKED_ROWS)?, wanted)
            }
            (Residency::Resident, _) if fp16 && shape.m < PACKED_ROWS => {
                let packed = self.tiles(shape, PACKED_ROWS)?;
                let same = (packed.kt, packed.nt) == (own.kt, own.nt);
                (own, if same { wanted } else { Residency::Streaming })
            }
            _ => (own, wanted),
        })
    }

    /// The tiles of a plan made for so many rows.
    fn tiles(&self, shape: Shape, rows: usize) -> Option<TilePlan> {
        let packed = Shape { m: rows, ..shape };
        let tiles = match (self.group, self.dtype) {
            (Some(group), DType::Int8) => group_plan_int8(packed, group)?,
            (Some(group), _) => with_k(plan(self.dtype, packed)?, shape.k, group),
            (None, _) => plan(self.dtype, packed)?,
        };
        let tiles = match self.k_cap {
            Some(cap) => with_k(tiles, shape.k, tiles.kt.min(cap / 32 * 32)),
            None => tiles,
        };
        // A plan made for the call's rows keeps its own tiles of rows, which may be narrower.
        Some(if rows == shape.m { tiles } else { tiles.with_rows(shape.m) })
    }
}

fn with_k(tiles: TilePlan, k: usize, kt: usize) -> TilePlan {
    TilePlan { kt, n_kt: k.div_ceil(kt), ..tiles }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.dtype.info().name)?;
        match (self.group, self.k_cap) {
            (Some(group), _) => write!(f, "-g{group}"),
            (None, Some(_)) => f.write_str("-exact"),
            (None, None) => Ok(()),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(s: &str) -> Result<Kind, String> {
        let unknown = || format!("'{s}' is no dtype, dtype-gGROUP or int4-exact");
        if s == Kind::INT4_EXACT.to_string() {
            return Ok(Kind::INT4_EXACT);
        }
        let (name, group) = match s.split_once("-g") {
            Some((name, group)) => (name, Some(group.parse().map_err(|_| unknown())?)),
            None => (s, None),
        };
        let dtype = DType::from_name(name).ok_or_else(unknown)?;
        match (group, dtype) {
            (None, _) => Ok(Kind::plain(dtype)),
            // A multiple of 32 whose sums do not saturate (7.6).
            (Some(g), DType::Int8) if g > 0 && g % 32 == 0 => Ok(Kind::grouped(dtype, g)),
            (Some(g), DType::Int4) if g > 0 && g % 32 == 0 && 49 * g < 32767 => {
                Ok(Kind::grouped(dtype, g))
            }
            _ => Err(format!("'{s}': groups are of int8 or int4, in multiples of 32 channels")),
        }
    }
}

/// What one worker does of a product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Its columns.
    pub columns: Range<usize>,
    /// Its tasks.
    pub sequence: Sequence,
    /// When its weights are packed.
    pub residency: Residency,
}

impl Share {
    /// All columns on one worker.
    pub fn whole(sequence: Sequence, residency: Residency) -> Share {
        Share { columns: 0..sequence.shape.n, sequence, residency }
    }
}

/// Shares a product of `shape`, padded, out to `workers` (7.4). None when the entry refuses it.
pub fn split(kind: Kind, shape: Shape, workers: usize, weights: Residency) -> Option<Vec<Share>> {
    let shape = kind.padded(shape);
    let step = shape.n.div_ceil(workers).next_multiple_of(kind.dtype.info().n_group);
    (0..shape.n)
        .step_by(step)
        .map(|first| {
            let columns = first..(first + step).min(shape.n);
            let part = Shape { n: columns.len(), ..shape };
            let (tiles, residency) = kind.plan(part, weights)?;
            Some(Share { columns, sequence: Sequence::new(kind.dtype, part, tiles), residency })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::rows::KINDS;

    #[test]
    fn names_are_read_as_they_are_written() {
        for kind in KINDS {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        for bad in ["fp17", "int8-g", "int8-g33", "int8-g0", "fp16-g128", "int4-g4096", ""] {
            assert!(bad.parse::<Kind>().is_err(), "{bad}");
        }
    }

    /// By hand from 7.4: whole kernel groups each, the last what is left, the rest nothing.
    #[test]
    fn columns_are_shared_in_whole_groups() {
        let of = |kind: Kind, n, workers| -> Vec<usize> {
            let shape = Shape { m: 4, k: 32, n };
            let shares = split(kind, shape, workers, Residency::Streaming).unwrap();
            assert!(shares.windows(2).all(|s| s[0].columns.end == s[1].columns.start));
            shares.iter().map(|s| s.columns.len()).collect()
        };
        assert_eq!(of(Kind::plain(DType::Fp16), 4096, 5), [832, 832, 832, 832, 768]);
        assert_eq!(of(Kind::plain(DType::Int8), 100, 5), [32, 32, 32, 32]);
        assert_eq!(of(Kind::plain(DType::Int4), 200, 2), [128, 128]);
        assert_eq!(of(Kind::plain(DType::Fp16), 100, 1), [112]);
    }

    /// 7.5: int8 keeps the packed plan at any M; fp16 streams where its own plan differs.
    #[test]
    fn calls_of_few_rows_on_packed_weights() {
        let plan = |kind: Kind, m, wanted| {
            let (tiles, residency) = kind.plan(Shape { m, k: 3840, n: 832 }, wanted).unwrap();
            ([tiles.mt, tiles.kt, tiles.nt], residency)
        };
        let (fp16, int8) = (Kind::plain(DType::Fp16), Kind::plain(DType::Int8));
        use Residency::{Resident, Streaming};
        assert_eq!(plan(fp16, 512, Resident), ([256, 512, 128], Resident));
        assert_eq!(plan(fp16, 128, Resident), ([128, 768, 128], Streaming));
        assert_eq!(plan(int8, 512, Resident), ([256, 640, 256], Resident));
        assert_eq!(plan(int8, 64, Resident), ([64, 640, 256], Resident));
        assert!(plan(int8, 64, Streaming).0[1] > 640);
    }

    /// 7.6 and 7.7.
    #[test]
    fn groups_and_caps_bound_a_k_step() {
        let kt = |kind: Kind| {
            kind.plan(Shape { m: 512, k: 3840, n: 4096 }, Residency::Resident).unwrap().0.kt
        };
        assert_eq!(kt(Kind::plain(DType::Int4)), 1536);
        assert_eq!(kt(Kind::INT4_EXACT), 480);
        assert_eq!(kt(Kind::grouped(DType::Int4, 128)), 128);
        assert_eq!(kt(Kind::grouped(DType::Int8, 128)), 128);
    }
}
