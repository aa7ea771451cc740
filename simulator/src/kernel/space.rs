//! One file's IOVA space: 4 GiB from address zero (kernel-and-uapi A.3), and the device's view of
//! memory through it.

use super::fence::lock;
use super::memory::Memory;
use crate::silicon::Bus;
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

/// First address past the space.
const END: u64 = 1 << 32;

/// Where every live buffer of a file lies.
#[derive(Debug, Default)]
pub struct Space {
    live: Mutex<BTreeMap<u64, Arc<Memory>>>,
    /// Somebody else's memory, in place of all that.
    bus: Option<Arc<dyn Bus>>,
}

impl Space {
    /// The addresses of a bus.
    pub fn of_bus(bus: Arc<dyn Bus>) -> Space {
        Space { bus: Some(bus), ..Space::default() }
    }

    /// Maps memory at the first gap that holds it.
    pub fn insert(&self, size: u64, memory: &Arc<Memory>) -> Result<u64, Errno> {
        let mut live = lock(&self.live);
        let mut at = 0;
        for (&start, m) in live.iter() {
            if start - at >= size {
                break;
            }
            at = start + bytes(m);
        }
        if END - at < size {
            return Err(Errno::ENOSPC);
        }
        live.insert(at, Arc::clone(memory));
        Ok(at)
    }

    /// Unmaps what starts at `iova`.
    pub fn remove(&self, iova: u64) {
        lock(&self.live).remove(&iova);
    }

    /// What is mapped at `addr`: its start and memory.
    fn find(&self, addr: u64) -> Option<(u64, Arc<Memory>)> {
        let live = lock(&self.live);
        let (&start, m) = live.range(..=addr).next_back()?;
        (addr - start < bytes(m)).then(|| (start, Arc::clone(m)))
    }
}

fn bytes(m: &Memory) -> u64 {
    m.words().len() as u64 * 8
}

/// An address that is not mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub iova: u64,
    pub write: bool,
}

/// The device's side of a space: reads and writes in units of eight bytes, through a one-entry
/// TLB.
#[derive(Debug)]
pub struct Dma {
    space: Arc<Space>,
    last: Option<(u64, Arc<Memory>)>,
}

impl Dma {
    pub fn new(space: &Arc<Space>) -> Dma {
        Dma { space: Arc::clone(space), last: None }
    }

    /// Reads words from an 8-byte-aligned address.
    pub fn read(&mut self, addr: u64, to: &mut [u64]) -> Result<(), Fault> {
        if let Some(bus) = &self.space.bus {
            return bus.read(addr, to).map_err(|_| Fault { iova: addr, write: false });
        }
        let mut done = 0;
        while done < to.len() {
            let (from, at) = self.translate(addr + done as u64 * 8, false)?;
            let words = &from.words()[at..];
            let n = words.len().min(to.len() - done);
            for (d, s) in to[done..done + n].iter_mut().zip(words) {
                *d = s.load(Relaxed);
            }
            done += n;
        }
        Ok(())
    }

    /// Writes words to an 8-byte-aligned address.
    pub fn write(&mut self, addr: u64, from: &[u64]) -> Result<(), Fault> {
        if let Some(bus) = &self.space.bus {
            return bus.write(addr, from).map_err(|_| Fault { iova: addr, write: true });
        }
        let mut done = 0;
        while done < from.len() {
            let (to, at) = self.translate(addr + done as u64 * 8, true)?;
            let words = &to.words()[at..];
            let n = words.len().min(from.len() - done);
            for (d, s) in words.iter().zip(&from[done..done + n]) {
                d.store(*s, Relaxed);
            }
            done += n;
        }
        Ok(())
    }

    fn translate(&mut self, addr: u64, write: bool) -> Result<(&Memory, usize), Fault> {
        let hit = |(start, m): &(u64, Arc<Memory>)| {
            addr.checked_sub(*start).is_some_and(|off| off < bytes(m))
        };
        if !self.last.as_ref().is_some_and(hit) {
            self.last = self.space.find(addr);
        }
        match &self.last {
            Some((start, m)) => Ok((m, ((addr - start) / 8) as usize)),
            None => Err(Fault { iova: addr, write }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mem(pages: u64) -> Arc<Memory> {
        Arc::new(Memory::zeroed(pages * 4096).unwrap())
    }

    #[test]
    fn first_fit_reuses_gaps() {
        let s = Space::default();
        let at: Vec<u64> = [1, 2, 1].map(|p| s.insert(p * 4096, &mem(p)).unwrap()).to_vec();
        assert_eq!(at, [0, 0x1000, 0x3000]);
        s.remove(0x1000);
        assert_eq!(s.insert(3 * 4096, &mem(3)), Ok(0x4000));
        assert_eq!(s.insert(4096, &mem(1)), Ok(0x1000));
        assert_eq!(s.insert(4096, &mem(1)), Ok(0x2000));
        assert_eq!(s.insert(END, &mem(1)), Err(Errno::ENOSPC));
    }

    #[test]
    fn a_transfer_spans_neighbours_and_faults_past_them() {
        let s = Arc::new(Space::default());
        let _ = (s.insert(4096, &mem(1)).unwrap(), s.insert(4096, &mem(1)).unwrap());
        let mut dma = Dma::new(&s);
        let data: Vec<u64> = (0..8).collect();
        dma.write(0x1000 - 32, &data).unwrap();
        let mut back = [0; 8];
        dma.read(0x1000 - 32, &mut back).unwrap();
        assert_eq!(back.as_slice(), data);
        assert_eq!(dma.read(0x2000 - 8, &mut back), Err(Fault { iova: 0x2000, write: false }));
        s.remove(0);
        assert_eq!(Dma::new(&s).write(8, &data), Err(Fault { iova: 8, write: true }));
    }
}
