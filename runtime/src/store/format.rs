//! The file format, on bytes alone: the table is in the module's documentation.

use std::ops::Range;
use twox_hash::XxHash3_128;

/// Version of the format. Another one is another file name as well.
pub(super) const VERSION: u32 = 1;
/// Parts start at multiples of it: the page size of the board.
pub(super) const ALIGN: u64 = 4096;
const MAGIC: [u8; 8] = *b"rocketPW";
/// From the magic to the length of the key.
const FIXED: usize = 32;
/// Offset, length, checksum.
const ENTRY: usize = 32;
const SUM: usize = 16;
/// Longest header; it bounds what is read before a checksum vouches for it.
const HEADER_MAX: u64 = 1 << 20;

/// Where things are in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes of the header, padding included.
    pub header: u64,
    /// The bytes of each part.
    pub parts: Vec<Range<u64>>,
    /// Bytes of the file.
    pub total: u64,
}

/// The layout for a key of `key` bytes and parts of `lens` bytes. It is the only one: a file that
/// says otherwise is refused. `None`: no file can hold it.
pub(super) fn layout(key: usize, lens: &[u64]) -> Option<Layout> {
    let table = ENTRY.checked_mul(lens.len())?;
    let header = FIXED.checked_add(table)?.checked_add(key)?.checked_add(SUM)?;
    let header = (header as u64).checked_next_multiple_of(ALIGN).filter(|h| *h <= HEADER_MAX)?;
    let mut total = header;
    let mut parts = Vec::with_capacity(lens.len());
    for len in lens {
        let end = total.checked_add(*len)?;
        parts.push(total..end);
        total = end.checked_next_multiple_of(ALIGN)?;
    }
    // off_t is signed.
    (total <= i64::MAX as u64).then_some(Layout { header, parts, total })
}

/// The header of a file.
pub(super) fn header(key: &[u8], layout: &Layout, sums: &[u128]) -> Vec<u8> {
    let mut out = Vec::with_capacity(layout.header as usize);
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    out.extend((layout.header as u32).to_le_bytes());
    out.extend(layout.total.to_le_bytes());
    out.extend((layout.parts.len() as u32).to_le_bytes());
    out.extend((key.len() as u32).to_le_bytes());
    for (part, sum) in layout.parts.iter().zip(sums) {
        out.extend(part.start.to_le_bytes());
        out.extend((part.end - part.start).to_le_bytes());
        out.extend(sum.to_le_bytes());
    }
    out.extend(key);
    out.resize(layout.header as usize - SUM, 0);
    out.extend(XxHash3_128::oneshot(&out).to_le_bytes());
    out
}

/// Little-endian numbers, one after another.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (head, rest) = self.0.split_at_checked(len).ok_or("its header is cut short")?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const L: usize>(&mut self) -> Result<[u8; L], String> {
        let mut out = [0; L];
        out.copy_from_slice(self.bytes(L)?);
        Ok(out)
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Result<u128, String> {
        self.array().map(u128::from_le_bytes)
    }
}

/// Checks every byte of `file`, and finds its parts. `key` is the key in bytes.
///
/// # Errors
/// Why the file is not the image of that key, in words that follow "it is refused: ".
pub(super) fn read(file: &[u8], key: &[u8]) -> Result<Vec<Range<usize>>, String> {
    let mut fixed = Reader(file);
    if fixed.array()? != MAGIC {
        return Err("it does not begin like a file of packed weights".into());
    }
    let version = fixed.u32()?;
    if version != VERSION {
        return Err(format!("it is of version {version}, this program writes {VERSION}"));
    }
    let header_len = u64::from(fixed.u32()?);
    if header_len > HEADER_MAX || header_len < (FIXED + SUM) as u64 {
        return Err(format!("its header of {header_len} bytes cannot be"));
    }
    let header = Reader(file).bytes(header_len as usize)?;
    let (summed, sum) = header.split_at(header.len() - SUM);
    if XxHash3_128::oneshot(summed).to_le_bytes() != sum {
        return Err("its header does not match its checksum".into());
    }
    let total = fixed.u64()?;
    let parts = fixed.u32()? as usize;
    let key_len = fixed.u32()? as usize;
    let mut rest = Reader(&summed[FIXED..]);
    let mut table = Reader(rest.bytes(parts.saturating_mul(ENTRY))?);
    if rest.bytes(key_len)? != key {
        return Err("it holds the image of another key".into());
    }
    if rest.0.iter().any(|b| *b != 0) {
        return Err("the padding of its header is not zero".into());
    }
    let entries: Vec<(u64, u64, u128)> = (0..parts)
        .map(|_| Ok((table.u64()?, table.u64()?, table.u128()?)))
        .collect::<Result<_, String>>()?;
    let lens: Vec<u64> = entries.iter().map(|e| e.1).collect();
    let layout = layout(key_len, &lens)
        .filter(|l| l.header == header_len && l.total == total)
        .filter(|l| l.parts.iter().zip(&entries).all(|(p, e)| p.start == e.0))
        .ok_or("its table of parts is not one that is written")?;
    if file.len() as u64 != total {
        return Err(format!("it is {} bytes long and says {total}", file.len()));
    }
    let found: Vec<Range<usize>> =
        layout.parts.iter().map(|p| p.start as usize..p.end as usize).collect();
    for (i, (part, (.., sum))) in found.iter().zip(&entries).enumerate() {
        let end = found.get(i + 1).map_or(file.len(), |next| next.start);
        if XxHash3_128::oneshot(&file[part.clone()]) != *sum {
            return Err(format!("part {i} does not match its checksum"));
        }
        if file[part.end..end].iter().any(|b| *b != 0) {
            return Err(format!("the padding of part {i} is not zero"));
        }
    }
    Ok(found)
}
