//! The cubes: where element (row, column) of each operand lies in memory.
//!
//! The functions here are the formulas of npu-rk3588 3.2 to 3.5, counted in elements; they are
//! plain and slow. The [kernels](crate::kernels) are fast and are held to them by property tests.

use crate::dtype::Info;

/// Element (m, k) of a feature cube with `rows` rows: planes of one 16-byte channel atom, rows
/// at a 16-byte pitch inside a plane (3.2). `rows` is the M programmed into the registers.
pub const fn feature_index(c2: usize, rows: usize, m: usize, k: usize) -> usize {
    (k / c2) * (rows * c2) + m * c2 + k % c2
}

/// Element (n, k) of a weight cube with `channels` channels: blocks of `n_group` kernels by
/// `k_group` channels, kernel-major inside, K inner and N outer (3.3).
pub const fn weight_index(info: &Info, channels: usize, n: usize, k: usize) -> usize {
    let (ng, kg) = (info.n_group, info.k_group);
    (n / ng) * (ng * channels) + (k / kg) * (kg * ng) + (n % ng) * kg + k % kg
}

/// Element (m, n) of an output cube with `rows` rows, in output elements: a feature cube of the
/// output's element size (3.4).
pub const fn output_index(c2_out: usize, rows: usize, m: usize, n: usize) -> usize {
    feature_index(c2_out, rows, m, n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use proptest::prelude::*;

    fn is_bijection(len: usize, indices: impl Iterator<Item = usize>) -> bool {
        let mut seen = vec![false; len];
        let mut count = 0;
        for i in indices {
            if i >= len || std::mem::replace(&mut seen[i], true) {
                return false;
            }
            count += 1;
        }
        count == len
    }

    proptest! {
        /// Every cube is filled exactly: no gap, no element twice (3.2 "no gaps").
        #[test]
        fn layouts_are_bijections_onto_their_cubes(
            d in prop::sample::select(DType::ALL.to_vec()),
            m in 1usize..9, k in 1usize..5, n in 1usize..5,
        ) {
            let t = d.info();
            let (m, k, n) = (m * 4, k * t.k_group.max(t.c2), n * t.n_group);
            prop_assert!(is_bijection(m * k, (0..m).flat_map(|r| (0..k).map(move |c| feature_index(t.c2, m, r, c)))));
            prop_assert!(is_bijection(n * k, (0..n).flat_map(|r| (0..k).map(move |c| weight_index(t, k, r, c)))));
            prop_assert!(is_bijection(m * n, (0..m).flat_map(|r| (0..n).map(move |c| output_index(t.c2_out, m, r, c)))));
        }
    }

    /// The worked examples of 3.9, in bytes.
    #[test]
    fn worked_examples() {
        let f16 = DType::Fp16.info();
        for (m, k, byte) in
            [(0, 0, 0), (0, 7, 14), (1, 0, 16), (3, 7, 62), (0, 8, 64), (3, 31, 254)]
        {
            assert_eq!(feature_index(f16.c2, 4, m, k) * 2, byte);
        }
        for (n, k, byte) in
            [(0, 0, 0), (0, 31, 62), (1, 0, 64), (15, 31, 1022), (0, 32, 1024), (16, 0, 2048)]
        {
            assert_eq!(weight_index(f16, 64, n, k) * 2, byte);
        }
        for (m, n, byte) in [(0, 0, 0), (0, 3, 12), (1, 0, 16), (0, 4, 64), (3, 31, 508)] {
            assert_eq!(output_index(DType::Int8.info().c2_out, 4, m, n) * 4, byte);
        }
    }
}
