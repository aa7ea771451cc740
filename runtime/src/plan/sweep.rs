//! The order in which a K step's tiles run, and what its tasks fetch.
//!
//! The reference runs rows of tiles left to right and keeps the features in the CBUF along a row
//! (npu-rk3588 7.3). Here every other row runs backwards, so that at a turn the weights stay:
//! one fetch less a row. Either axis may be the outer one; the cheaper is taken.

use super::TilePlan;

/// One axis of a block of tiles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    /// Elements.
    pub len: usize,
    /// Elements of a tile; the last may be shorter.
    pub tile: usize,
}

impl Axis {
    fn count(&self) -> usize {
        self.len.div_ceil(self.tile)
    }

    fn has_edge(&self) -> bool {
        !self.len.is_multiple_of(self.tile)
    }

    fn last(&self) -> usize {
        self.len - (self.count() - 1) * self.tile
    }
}

/// Elements (rows of features and columns of weights together) that one K step fetches when
/// `outer` is swept once and `inner` back and forth.
fn swept(outer: Axis, inner: Axis) -> usize {
    // Along a sweep the outer operand is fetched once, and once more where the extents change.
    let changes = usize::from(inner.has_edge() && inner.count() > 1);
    let outer_fetched = outer.len * (1 + changes);
    // At a turn between sweeps of equal extents the inner operand stays.
    let turns = outer.count() - 1 - usize::from(outer.has_edge() && outer.count() > 1);
    let kept = turns.div_ceil(2) * inner.last() + turns / 2 * inner.tile.min(inner.len);
    outer_fetched + outer.count() * inner.len - kept
}

/// Whether rows are the outer axis, and the elements that a K step then fetches.
pub(super) fn cheaper(rows: Axis, columns: Axis) -> (bool, usize) {
    let (by_rows, by_columns) = (swept(rows, columns), swept(columns, rows));
    (by_rows <= by_columns, by_rows.min(by_columns))
}

/// Tile indices (row, column) of the block that begins at tile (`m0`, `n0`), in order.
pub(super) fn order(
    plan: &TilePlan,
    m0: usize,
    n0: usize,
    rows: Axis,
    columns: Axis,
) -> Vec<[usize; 2]> {
    let (by_rows, _) = cheaper(rows, columns);
    let (outer, inner) = if by_rows { (rows, columns) } else { (columns, rows) };
    let mut tiles = Vec::with_capacity(plan.n_mt * plan.n_nt);
    for o in 0..outer.count() {
        for i in 0..inner.count() {
            let i = if o % 2 == 0 { i } else { inner.count() - 1 - i };
            tiles.push(if by_rows { [m0 + o, n0 + i] } else { [m0 + i, n0 + o] });
        }
    }
    tiles
}
