//! Which rows of a result belong to which expert.

use std::ops::Range;

/// The rows of each expert, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buckets {
    /// Rows of all experts, one expert after another.
    rows: Vec<usize>,
    /// Where those of each begin, and the end.
    starts: Vec<usize>,
}

impl Buckets {
    /// Sorts the rows by their experts; `ids` has one for each row. `None` when there is no such
    /// expert.
    pub fn of(ids: &[i32], experts: usize) -> Option<Buckets> {
        let mut starts = vec![0usize; experts + 1];
        let expert = |id: i32| usize::try_from(id).ok().filter(|e| *e < experts);
        for id in ids {
            starts[expert(*id)? + 1] += 1;
        }
        for e in 0..experts {
            starts[e + 1] += starts[e];
        }
        let mut next = starts.clone();
        let mut rows = vec![0usize; ids.len()];
        for (row, id) in ids.iter().enumerate() {
            let e = expert(*id)?;
            rows[next[e]] = row;
            next[e] += 1;
        }
        Some(Buckets { rows, starts })
    }

    /// Experts of the stack.
    pub fn experts(&self) -> usize {
        self.starts.len() - 1
    }

    /// The rows of an expert.
    pub fn rows(&self, expert: usize) -> &[usize] {
        let Range { start, end } = self.starts[expert]..self.starts[expert + 1];
        &self.rows[start..end]
    }

    /// Experts that have rows.
    pub fn used(&self) -> impl Iterator<Item = usize> {
        (0..self.experts()).filter(|e| !self.rows(*e).is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every row once, with its expert, in order.
        #[test]
        fn every_row_once(experts in 1usize..9, ids in prop::collection::vec(0i32..9, 0..60)) {
            let ids: Vec<i32> = ids.into_iter().map(|i| i % experts as i32).collect();
            let b = Buckets::of(&ids, experts).unwrap();
            for e in 0..experts {
                let want: Vec<usize> =
                    (0..ids.len()).filter(|r| ids[*r] == e as i32).collect();
                prop_assert_eq!(b.rows(e), &want[..]);
                prop_assert_eq!(b.used().any(|u| u == e), !want.is_empty());
            }
        }
    }

    #[test]
    fn no_such_expert() {
        assert!(Buckets::of(&[0, 3], 3).is_none());
        assert!(Buckets::of(&[-1], 3).is_none());
        assert!(Buckets::of(&[], 3).is_some_and(|b| b.used().next().is_none()));
    }
}
