//! Products that a worker runs in one SUBMIT.

use super::Stats;
use super::output::Out;
use super::worker::{self, Operands, Share, Source, Worker, foreign};
use crate::device::{self, Bo};
use crate::kernels::Bytes;
use crate::plan::Sequence;
use crate::{Error, Result};
use std::sync::Arc;

/// Bytes of operands and results of the products that one SUBMIT runs: beyond it a stock driver's
/// cache syncs no longer overlap with anything, and idle buffers are not kept.
const WAVE_BYTES: usize = 32 << 20;

/// A planned product of one worker.
pub(super) struct Piece<'p, 'a> {
    pub share: Share<'p>,
    pub a: Bytes<'a>,
    pub out: &'p mut Out<'a>,
}

impl Piece<'_, '_> {
    /// Bytes that must be there at once; `None` when it takes several SUBMITs anyway.
    fn bytes(&self) -> Option<usize> {
        let s = &*self.share.sequence;
        let [group] = s.groups.as_slice() else { return None };
        let t = s.request.dtype.info();
        let weights = match self.share.weights {
            Source::Packed(_) => 0,
            Source::Rows(_) => t.row_bytes(s.padded.n * s.padded.k),
        };
        let images: usize = group.images.iter().sum();
        Some(t.row_bytes(s.padded.m * s.padded.k) + weights + images * t.out_bytes)
    }

    fn jobs(&self) -> usize {
        self.share.sequence.groups.iter().map(|g| g.jobs.len()).sum()
    }

    /// Whether the activations of `other`, packed for its plan, are this one's as well.
    fn shares_features(&self, other: &Piece<'_, '_>) -> bool {
        let cut = |p: &Piece<'_, '_>| {
            let s = &*p.share.sequence;
            (s.request.dtype.info().bits, s.padded.m, s.padded.k, s.plan.mt, s.plan.kt)
        };
        self.a.is(&other.a) && cut(self) == cut(other)
    }
}

/// How many of the pieces the next SUBMIT runs: at least one.
fn next(pieces: &[Piece<'_, '_>]) -> usize {
    let (mut bytes, mut jobs) = (0, 0);
    let fits = |p: &&Piece<'_, '_>| {
        let Some(more) = p.bytes() else { return false };
        bytes += more;
        jobs += p.jobs();
        bytes <= WAVE_BYTES && jobs <= device::MAX_JOBS
    };
    pieces.iter().take_while(fits).count().max(1)
}

/// Weights of a piece in a wave.
enum Weights<'a> {
    Packed(&'a Bo),
    Streamed(Bo),
}

impl Worker {
    /// Runs the pieces with as few SUBMITs as their buffers allow.
    pub(super) fn run_all(&mut self, pieces: &mut [Piece<'_, '_>]) -> Result<Stats> {
        let mut stats = Stats::default();
        let mut rest = pieces;
        while !rest.is_empty() {
            let (wave, later) = rest.split_at_mut(next(rest));
            rest = later;
            match wave {
                [one] => stats += self.run(&one.share, one.a, one.out)?,
                many => self.wave(many, &mut stats)?,
            }
        }
        stats.workers = 1;
        stats.times += self.take_times();
        Ok(stats)
    }

    /// Several products of one group each, in one SUBMIT.
    fn wave(&mut self, pieces: &mut [Piece<'_, '_>], stats: &mut Stats) -> Result<()> {
        self.file().check_process()?;
        let plans: Vec<Arc<Sequence>> = pieces.iter().map(|p| p.share.sequence.clone()).collect();
        // Products of the same activations pack them once.
        let mut features: Vec<Bo> = Vec::new();
        let mut firsts: Vec<usize> = Vec::new();
        let mut which = Vec::with_capacity(pieces.len());
        let mut weights = Vec::with_capacity(pieces.len());
        for (i, (p, s)) in pieces.iter().zip(&plans).enumerate() {
            let known = firsts.iter().position(|first| p.shares_features(&pieces[*first]));
            which.push(match known {
                Some(at) => at,
                None => {
                    firsts.push(i);
                    features.push(self.pack_features(s, p.a)?);
                    features.len() - 1
                }
            });
            weights.push(match p.share.weights {
                Source::Packed(bo) if !bo.is_on(self.file()) => return Err(foreign()),
                Source::Packed(bo) => Weights::Packed(bo),
                Source::Rows(rows) => {
                    let columns = &s.groups[0].columns;
                    Weights::Streamed(self.stream(s, rows, &p.share.columns, columns)?)
                }
            });
        }
        let operands: Vec<Operands<'_>> = which
            .iter()
            .zip(&weights)
            .zip(&plans)
            .map(|((which, weights), s)| Operands {
                features: &features[*which],
                weights: match weights {
                    Weights::Packed(bo) => bo,
                    Weights::Streamed(bo) => bo,
                },
                columns: &s.groups[0].columns,
            })
            .collect();
        let mut loaded = Vec::with_capacity(pieces.len());
        let mut jobs = Vec::with_capacity(pieces.len());
        for (s, o) in plans.iter().zip(&operands) {
            loaded.push(self.load(s, &s.groups[0], *o)?);
        }
        for ((s, o), l) in plans.iter().zip(&operands).zip(&loaded) {
            jobs.extend(l.jobs(s, &s.groups[0], *o));
        }
        self.submit(&jobs, stats)?;
        drop(jobs);
        let last = pieces.len() - 1;
        for (i, l) in loaded.into_iter().enumerate() {
            let (s, out) = (&*plans[i], &mut *pieces[i].out);
            let planned = worker::planned(s);
            stats.executed_macs += planned.executed_macs;
            stats.padding_macs += planned.padding_macs;
            match self.finish(s, &s.groups[0], l, out, i == last) {
                // Once: the driver has reset the core by now.
                Err(Error::JobLost { job, jobs, doing }) => {
                    tracing::warn!("job {job} of {jobs} lost ({doing}); running the group again");
                    stats.retries += 1;
                    self.attempt(s, &s.groups[0], operands[i], out, stats)?;
                }
                other => other?,
            }
        }
        drop(operands);
        self.put(features);
        self.put(weights.into_iter().filter_map(|w| match w {
            Weights::Packed(_) => None,
            Weights::Streamed(bo) => Some(bo),
        }));
        Ok(())
    }
}
