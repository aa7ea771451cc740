//! Little-endian fields from an untrusted file, each read checked against what the file holds.

use super::{Error, Result};
use std::io::{Read, Seek, SeekFrom};

/// Bytes of a header; the largest vocabularies take 30 MB. Bounds the time that a header takes.
const MOST: u64 = 256 << 20;

/// A file that is read from its beginning.
#[derive(Debug)]
pub struct Source<R> {
    from: R,
    at: u64,
    len: u64,
    /// Bytes of the header so far: what was skipped as a tensor's data is none of it.
    header: u64,
}

impl<R: Read + Seek> Source<R> {
    /// From the beginning.
    ///
    /// # Errors
    /// Those of seeking.
    pub fn new(mut from: R) -> Result<Source<R>> {
        let unreadable = |e: std::io::Error| Error::Unreadable(e.to_string());
        let len = from.seek(SeekFrom::End(0)).map_err(unreadable)?;
        from.rewind().map_err(unreadable)?;
        Ok(Source { from, at: 0, len, header: 0 })
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Bytes read and skipped.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Whether nothing is left.
    pub fn is_at_end(&self) -> bool {
        self.at >= self.len
    }

    /// Checks that so many bytes more are there, before anything is made of their number.
    fn claim(&mut self, bytes: u64) -> Result<()> {
        if bytes > self.len - self.at {
            let (at, len) = (self.at, self.len);
            return Err(Error::Truncated(format!("{bytes} bytes at {at} of {len}")));
        }
        self.header = self.header.saturating_add(bytes);
        if self.header > MOST {
            return Err(Error::Invalid(format!("its header is larger than {} MiB", MOST >> 20)));
        }
        self.at += bytes;
        Ok(())
    }

    fn fill(&mut self, to: &mut [u8]) -> Result<()> {
        self.claim(to.len() as u64)?;
        self.from.read_exact(to).map_err(|e| Error::Unreadable(e.to_string()))
    }

    /// So many bytes.
    ///
    /// # Errors
    /// The file ends before.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// A number of 32 bits.
    ///
    /// # Errors
    /// The file ends before.
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number of 32 bits that is not negative and at most `most`.
    ///
    /// # Errors
    /// It is another.
    pub fn count(&mut self, what: &str, most: u32) -> Result<u32> {
        let n = self.u32()?;
        if n > most {
            return Err(Error::Invalid(format!("{what} {n}, above {most}")));
        }
        Ok(n)
    }

    /// A number of 64 bits.
    ///
    /// # Errors
    /// The file ends before.
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Text of so many bytes, of which the first `most` are kept.
    ///
    /// # Errors
    /// The file ends before.
    pub fn text(&mut self, bytes: u64, most: u64) -> Result<String> {
        let mut kept = vec![0; bytes.min(most) as usize];
        self.fill(&mut kept)?;
        self.skip(bytes - kept.len() as u64)?;
        Ok(String::from_utf8_lossy(&kept).into_owned())
    }

    /// Leaves out a part of the header.
    ///
    /// # Errors
    /// The file ends before.
    pub fn skip(&mut self, bytes: u64) -> Result<()> {
        self.claim(bytes)?;
        self.forward(bytes)
    }

    /// Leaves out a tensor's data, which is no part of the header.
    ///
    /// # Errors
    /// The file ends before.
    pub fn skip_data(&mut self, bytes: u64) -> Result<()> {
        let left = self.len - self.at;
        if bytes > left {
            return Err(Error::Truncated(format!("{bytes} bytes of data, {left} are left")));
        }
        self.at += bytes;
        self.forward(bytes)
    }

    fn forward(&mut self, bytes: u64) -> Result<()> {
        let step = i64::try_from(bytes).map_err(|_| Error::Invalid("a file beyond 2^63".into()))?;
        // Within a buffer where there is one.
        self.from.seek_relative(step).map_err(|e| Error::Unreadable(e.to_string()))
    }
}
