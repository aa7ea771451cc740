//! Weights that are packed once and kept on disk: see [`store`](crate::store).

use super::format::Format;
use super::operand::Weights;
use super::resident::{self, Columns, Resident};
use super::{Inner, Npu, Step, request};
use crate::Result;
use crate::plan::Shape;
use crate::store::{Key, Packed, Saved, Store};

/// Where resident weights came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// From the store: nothing was packed, no weight was read.
    Store,
    /// Packed now, and kept for the next start if there was room.
    Packed(Saved),
}

impl Npu {
    /// As [`Npu::pack_for`], from `store` where it holds these weights; else they are packed and
    /// saved, which waits for the disk.
    ///
    /// `content` stands for every byte the weights are made from, see
    /// [`content`](crate::store::content): weights of one name and shape and other bytes have
    /// another one. How many files share a weight, the rows it is planned for and the driver's way
    /// of running jobs are part of the key as well.
    ///
    /// # Errors
    /// As [`Npu::pack`], and [`Error::Store`](crate::Error::Store) for a directory that must be mended. A file
    /// that is damaged is no error: it is refused with a warning, and the weights are packed.
    pub fn pack_stored<F: Format>(
        &self,
        store: &Store,
        content: u128,
        rows: usize,
        format: F,
        weights: &dyn Weights<F::Element>,
    ) -> Result<(Resident<F>, Origin)> {
        self.pack_stored_over(self.cores_of_board, store, content, rows, format, weights)
    }

    /// As [`Npu::pack_whole`], through a store as [`Npu::pack_stored`].
    ///
    /// # Errors
    /// As [`Npu::pack_stored`].
    pub fn pack_whole_stored<F: Format>(
        &self,
        store: &Store,
        content: u128,
        rows: usize,
        format: F,
        weights: &dyn Weights<F::Element>,
    ) -> Result<(Resident<F>, Origin)> {
        self.pack_stored_over(1, store, content, rows, format, weights)
    }

    /// The weights that [`Npu::pack_whole_stored`] would find in the store, `None` when they are not
    /// there: for a caller who prepares weights before it packs them. Of `weights` only the sizes are
    /// read, and the notes recalled.
    ///
    /// # Errors
    /// As [`Npu::pack_stored`].
    pub fn whole_from_store<F: Format>(
        &self,
        store: &Store,
        content: u128,
        rows: usize,
        format: F,
        weights: &dyn Weights<F::Element>,
    ) -> Result<Option<Resident<F>>> {
        let shape = Shape { m: rows.max(1), k: weights.k(), n: weights.n() };
        match store.load(&self.key(1, content, shape, format))? {
            Some(packed) => self.unpack(1, &packed, shape, format, weights),
            None => Ok(None),
        }
    }

    fn pack_stored_over<F: Format>(
        &self,
        most_workers: usize,
        store: &Store,
        content: u128,
        rows: usize,
        format: F,
        weights: &dyn Weights<F::Element>,
    ) -> Result<(Resident<F>, Origin)> {
        let shape = Shape { m: rows.max(1), k: weights.k(), n: weights.n() };
        let key = self.key(most_workers, content, shape, format);
        if let Some(packed) = store.load(&key)?
            && let Some(resident) = self.unpack(most_workers, &packed, shape, format, weights)?
        {
            return Ok((resident, Origin::Store));
        }
        let mut resident = self.pack_over(most_workers, rows, format, weights)?;
        let saved = save(store, &key, &mut resident, &weights.notes())?;
        Ok((resident, Origin::Packed(saved)))
    }

    fn key<F: Format>(&self, most_workers: usize, content: u128, shape: Shape, format: F) -> Key {
        let workers = self.lock().workers.len().min(most_workers);
        let group = format.group().map_or_else(String::new, |g| format!(" groups of {g}"));
        let chained = if self.manner.chained { ", chained" } else { "" };
        Key {
            content,
            format: format.name(),
            n: shape.n as u64,
            k: shape.k as u64,
            // The order of `pack_columns`, which any plan reads.
            plan: format!(
                "rk3588 step-major, notes:{group} {workers} parts for {} rows{chained}",
                shape.m
            ),
        }
    }

    /// Makes an image resident. None when its parts are not ones that could be run.
    fn unpack<F: Format>(
        &self,
        most_workers: usize,
        packed: &Packed,
        shape: Shape,
        format: F,
        weights: &dyn Weights<F::Element>,
    ) -> Result<Option<Resident<F>>> {
        let mut images = packed.parts();
        let Some(parts) = images.next().and_then(|cut| read_cut(cut, shape, format)) else {
            return Ok(None);
        };
        if !images.next().is_some_and(|notes| weights.recall(notes)) {
            return Ok(None);
        }
        let images: Vec<&[u8]> = images.collect();
        let fits = images.len() == parts.len()
            && parts.iter().zip(&images).all(|(p, image)| p.bytes() == image.len());
        let mut inner = self.lock();
        let Inner { workers, plans, .. } = &mut *inner;
        let holders = resident::holders(workers, most_workers);
        if !fits || parts.len() > holders.len() {
            return Ok(None);
        }
        for p in &parts {
            // What cannot be planned must not become resident.
            let part = Shape { n: p.rows.len(), ..shape };
            let asked = request(format, format.dtype(), part, Step::Packed(p.step), self.manner);
            if plans.get(asked).is_err() {
                return Ok(None);
            }
        }
        let size = [shape.n, shape.k];
        let parts = holders.into_iter().zip(parts).collect();
        let cores = self.cores.as_deref();
        resident::fill(workers, &self.budget, format, size, parts, cores, |i, _, _, dst| {
            dst.copy_from_slice(images[i]);
            Ok(())
        })
        .map(Some)
    }
}

/// The first part of an image tells how the others are cut: columns and K step of each.
fn cut<F: Format>(resident: &Resident<F>) -> Vec<u8> {
    let numbers = resident.parts().flat_map(|(_, columns, step, _)| [columns.len(), step]);
    numbers.flat_map(|x| (x as u64).to_le_bytes()).collect()
}

/// What [`cut`] wrote, `None` when it is no cut of these weights.
fn read_cut<F: Format>(bytes: &[u8], shape: Shape, format: F) -> Option<Vec<Columns>> {
    let dtype = format.dtype();
    let t = dtype.info();
    let mut first = 0usize;
    let mut parts = Vec::new();
    for pair in bytes.chunks(16) {
        let (columns, step) = pair.split_at_checked(8)?;
        let number = |b: &[u8]| usize::try_from(u64::from_le_bytes(b.try_into().ok()?)).ok();
        let (columns, step) = (number(columns)?, number(step)?);
        let rows = first..first.checked_add(columns).filter(|end| *end <= shape.n)?;
        if rows.is_empty() || step == 0 || !step.is_multiple_of(t.k_group) || step > t.k_cap {
            return None;
        }
        first = rows.end;
        let padded = columns.next_multiple_of(t.n_group);
        parts.push(Columns { dtype, rows, padded, k: shape.k.next_multiple_of(t.k_group), step });
    }
    (first == shape.n && !parts.is_empty()).then_some(parts)
}

fn save<F: Format>(
    store: &Store,
    key: &Key,
    resident: &mut Resident<F>,
    notes: &[u8],
) -> Result<Saved> {
    let heads = [&cut(resident), notes];
    let images = resident.images().map(|bo| bo.len());
    let lens: Vec<u64> = heads.iter().map(|h| h.len()).chain(images).map(|n| n as u64).collect();
    let mut writer = store.writer(key, &lens)?;
    for (i, head) in heads.iter().enumerate() {
        writer.part(i, head)?;
    }
    for (i, bo) in resident.images().enumerate() {
        bo.read(|bytes: &[u8]| writer.part(heads.len() + i, bytes))??;
    }
    writer.commit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::Int8;

    /// Cuts that are not ones of these weights, one for each rule.
    #[test]
    fn a_cut_that_could_not_be_run_is_refused() {
        let shape = Shape { m: 512, k: 100, n: 40 };
        let read = |numbers: &[u64]| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
            read_cut(&bytes, shape, Int8::default()).map(|p| p.len())
        };
        assert_eq!(read(&[40, 128]), Some(1));
        assert_eq!(read(&[32, 128, 8, 64]), Some(2));
        for bad in [
            &[40][..],
            &[],
            &[39, 128],
            &[41, 128],
            &[40, 0],
            &[40, 48],
            &[40, 1 << 20],
            &[0, 32, 40, 32],
            &[u64::MAX, 32],
            &[32, 32, u64::MAX, 32],
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }
}
