//! Values of tensors. Quantized ones are not rounded from anything: their codes and scales are drawn,
//! and what they mean is what the format says (ggml-abi 2.9).

use super::{Tensor, Values};
use half::f16;
use std::hash::Hasher;
use std::io::{Result, Write};

/// Type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    F32,
    F16,
    Q8_0,
    Q4K,
    Mxfp4,
}

impl Kind {
    /// ggml's number of it.
    pub(super) fn number(self) -> u32 {
        match self {
            Kind::F32 => 0,
            Kind::F16 => 1,
            Kind::Q8_0 => 8,
            Kind::Q4K => 12,
            Kind::Mxfp4 => 39,
        }
    }

    /// Elements of a block, and its bytes.
    fn block(self) -> (usize, usize) {
        match self {
            Kind::F32 => (1, 4),
            Kind::F16 => (1, 2),
            Kind::Q8_0 => (32, 34),
            Kind::Q4K => (256, 144),
            Kind::Mxfp4 => (32, 17),
        }
    }

    pub(super) fn bytes(self, elements: usize) -> usize {
        let (per, bytes) = self.block();
        elements / per * bytes
    }
}

/// FNV-1a, which has 64 bits and no dependence on the machine.
pub(super) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.0 = (self.0 ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// SplitMix64.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn of(name: &str) -> Random {
        let mut seed = Fnv::default();
        seed.write(name.as_bytes());
        Random(seed.finish())
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The sum of four even draws: variance one, and nothing beyond 3.47.
    fn normal(&mut self) -> f32 {
        let z = self.next();
        let sum: u32 = (0..4).map(|i| (z >> (16 * i)) as u32 & 0xffff).sum();
        (sum as f32 / 65536.0 - 2.0) * 3f32.sqrt()
    }
}

/// What E2M1 codes mean, by their low three bits.
const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
/// Root mean square of all of them.
const E2M1_RMS: f32 = 2.926;

/// Codes of a Q8_0 block have this deviation; four of them are within the eight bits.
const Q8_DEVIATION: f32 = 36.0;

/// Draws a block.
type Draw = fn(&mut Random, f32, &mut [u8]);
/// What a block means.
type Mean = fn(&[u8], &mut [f32]);

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

fn draw_q8_0(rng: &mut Random, deviation: f32, bytes: &mut [u8]) {
    bytes[..2].copy_from_slice(&f16::from_f32(deviation / Q8_DEVIATION).to_le_bytes());
    for b in &mut bytes[2..] {
        *b = (rng.normal() * Q8_DEVIATION).round() as i8 as u8;
    }
}

fn mean_q8_0(bytes: &[u8], values: &mut [f32]) {
    let d = half_at(bytes, 0);
    for (b, v) in bytes[2..].iter().zip(values) {
        *v = d * f32::from(*b as i8);
    }
}

fn draw_mxfp4(rng: &mut Random, deviation: f32, bytes: &mut [u8]) {
    // Blocks of three octaves, as trained weights have them.
    let octave = (deviation / E2M1_RMS).log2().round() as i32 + (rng.next() % 3) as i32 - 1;
    bytes[0] = (octave + 127) as u8;
    for b in bytes[1..].chunks_mut(8) {
        b.copy_from_slice(&rng.next().to_le_bytes());
    }
}

fn mean_mxfp4(bytes: &[u8], values: &mut [f32]) {
    let unit = (f32::from(bytes[0]) - 127.0).exp2();
    let mean = |code: u8| {
        let size = E2M1[usize::from(code & 7)] * unit;
        if code & 8 == 0 { size } else { -size }
    };
    let (low, high) = values.split_at_mut(16);
    for (i, b) in bytes[1..].iter().enumerate() {
        (low[i], high[i]) = (mean(b & 15), mean(b >> 4));
    }
}

/// Eight sub-blocks of 32 codes 0..15, each with a scale and a minimum of six bits.
fn draw_q4_k(rng: &mut Random, deviation: f32, bytes: &mut [u8]) {
    // The mean of the codes is taken off, so that the minimum is the scale in its own unit. Even
    // codes have the deviation 4.61, and scales of 24..40 the mean square 1048.
    let d = f16::from_f32(deviation / (4.61 * 32.4));
    let min = f16::from_f32(d.to_f32() * 7.5);
    let scales: [u8; 8] = std::array::from_fn(|_| 24 + (rng.next() % 17) as u8);
    bytes[..2].copy_from_slice(&d.to_le_bytes());
    bytes[2..4].copy_from_slice(&min.to_le_bytes());
    for j in 0..4 {
        // The upper two bits of the later four lie above the earlier ones' six.
        let (s, later) = (scales[j], scales[j + 4]);
        bytes[4 + j] = s | (later >> 4) << 6;
        bytes[8 + j] = s | (later >> 4) << 6;
        bytes[12 + j] = (later & 15) | (later & 15) << 4;
    }
    for b in bytes[16..].chunks_mut(8) {
        b.copy_from_slice(&rng.next().to_le_bytes());
    }
}

fn mean_q4_k(bytes: &[u8], values: &mut [f32]) {
    let (d, min) = (half_at(bytes, 0), half_at(bytes, 2));
    let scale = |j: usize| match j {
        0..4 => bytes[4 + j] & 63,
        _ => bytes[8 + j] & 15 | bytes[j] >> 6 << 4,
    };
    // Scale and minimum of a sub-block are one number here.
    for (j, values) in values.chunks_mut(32).enumerate() {
        let (scale, codes) = (f32::from(scale(j)), &bytes[16 + j / 2 * 32..][..32]);
        for (v, b) in values.iter_mut().zip(codes) {
            *v = d * scale * f32::from(b >> (j % 2 * 4) & 15) - min * scale;
        }
    }
}

/// The type that is in the file.
pub(super) fn stored(t: &Tensor) -> Kind {
    if t.decoded { Kind::F32 } else { t.kind }
}

/// Writes the bytes of a tensor.
pub(super) fn tensor(t: &Tensor, out: &mut impl Write) -> Result<()> {
    let elements: usize = t.shape.iter().product();
    let mut rng = Random::of(&t.name);
    let (draw, mean): (Draw, Mean) = match t.kind {
        Kind::F32 | Kind::F16 => {
            for i in 0..elements {
                let v = rounded(plain(&t.values, &mut rng, i, elements), t.bits);
                match (t.kind, t.decoded) {
                    (Kind::F32, _) => out.write_all(&v.to_le_bytes())?,
                    (_, false) => out.write_all(&f16::from_f32(v).to_le_bytes())?,
                    (_, true) => out.write_all(&f16::from_f32(v).to_f32().to_le_bytes())?,
                }
            }
            return Ok(());
        }
        Kind::Q8_0 => (draw_q8_0, mean_q8_0),
        Kind::Q4K => (draw_q4_k, mean_q4_k),
        Kind::Mxfp4 => (draw_mxfp4, mean_mxfp4),
    };
    let Values::Normal(deviation) = t.values else {
        return Err(std::io::Error::other(format!("{}: blocks are drawn normal only", t.name)));
    };
    let (per, size) = t.kind.block();
    if !t.shape[0].is_multiple_of(per) {
        return Err(std::io::Error::other(format!("{}: rows of no whole blocks", t.name)));
    }
    let (mut bytes, mut values) = (vec![0; size], vec![0.0; per]);
    for _ in 0..elements / per {
        draw(&mut rng, deviation, &mut bytes);
        if t.decoded {
            mean(&bytes, &mut values);
            out.write_all(bytemuck::cast_slice(&values))?;
        } else {
            out.write_all(&bytes)?;
        }
    }
    Ok(())
}

/// To the nearest value of so many significant bits.
fn rounded(v: f32, bits: Option<u32>) -> f32 {
    let Some(bits) = bits else { return v };
    let dropped = f32::MANTISSA_DIGITS - bits;
    let half = 1u32 << dropped >> 1;
    f32::from_bits((v.to_bits() + half) >> dropped << dropped)
}

fn plain(values: &Values, rng: &mut Random, i: usize, of: usize) -> f32 {
    match *values {
        Values::Normal(deviation) => rng.normal() * deviation,
        Values::All(v) => v,
        Values::Outliers(times) if i % 97 == 13 => times,
        Values::Outliers(_) => 1.0,
        Values::Ramp(from, to) => from + (to - from) * i as f32 / (of.max(2) - 1) as f32,
    }
}
