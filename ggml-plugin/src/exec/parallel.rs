//! Host work on rows, over several threads.

use super::Redo;

/// Elements below which one thread is enough: a fraction of a millisecond.
pub(super) const WORTH_THREADS: usize = 1 << 18;

/// Calls `work` for each of `count` rows of `width` elements, on up to `threads` threads that each
/// have a `scratch` of their own.
///
/// # Errors
/// The first of `work`; [`Redo::EnginePanic`] when a thread panics.
pub fn each<R: Send, S>(
    rows: impl Iterator<Item = R>,
    count: usize,
    width: usize,
    threads: usize,
    scratch: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, R) -> Result<(), Redo> + Sync,
) -> Result<(), Redo> {
    let threads = if count * width < WORTH_THREADS { 1 } else { threads.clamp(1, count.max(1)) };
    let (scratch, work) = (&scratch, &work);
    let part = move |rows: &mut dyn Iterator<Item = R>| {
        let mut own = scratch();
        for row in rows {
            work(&mut own, row)?;
        }
        Ok(())
    };
    let mut rows = rows;
    if threads == 1 {
        return part(&mut rows);
    }
    let each = count.div_ceil(threads);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|_| rows.by_ref().take(each).collect::<Vec<R>>())
            .map(|own| {
                scope.spawn(move || {
                    rocket_runtime::device::leave_signals_to_others();
                    part(&mut own.into_iter())
                })
            })
            .collect();
        running.into_iter().try_for_each(|t| t.join().unwrap_or(Err(Redo::EnginePanic)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row once, on one thread and on several, with an error and a panic coming through.
    #[test]
    fn every_row_once() {
        for (count, threads) in [(0, 4), (1, 4), (5, 2), (64, 7), (7, 64)] {
            let mut seen = vec![0u8; count];
            let width = WORTH_THREADS;
            each(
                seen.iter_mut(),
                count,
                width,
                threads,
                || 1u8,
                |one, row| {
                    *row += *one;
                    Ok(())
                },
            )
            .unwrap();
            assert!(seen.iter().all(|n| *n == 1), "{count} rows, {threads} threads");
        }
        let fail = |_: &mut (), i: usize| if i == 5 { Err(Redo::NoData) } else { Ok(()) };
        for width in [1, WORTH_THREADS] {
            assert_eq!(each(0..9, 9, width, 3, || (), fail), Err(Redo::NoData));
        }
        let panics = |_: &mut (), i: usize| {
            assert!(i != 5, "on purpose");
            Ok(())
        };
        assert_eq!(each(0..9, 9, WORTH_THREADS, 3, || (), panics), Err(Redo::EnginePanic));
    }
}
