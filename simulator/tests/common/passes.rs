//! Programs without a convolution.

use super::*;

/// A pass of `cols` atoms through the DPU alone (npu-ops 2.3), without its tables.
pub fn flying(cols: u32, input: u32, output: u32) -> Vec<u64> {
    let mut words = vec![word(0x4004, 0xe), word(0x5004, 0xe)];
    words.extend(
        [
            (0x400c, 0x1e5),
            (0x4010, 0x4800_0002),
            (0x4020, output),
            (0x4024, cols << 4),
            (0x4030, cols - 1),
            (0x4034, 0),
            (0x403c, 0x7_0007),
            (0x4040, 0x53),
            (0x4050, 2),
            (0x4058, 7),
            (0x405c, cols - 1),
            (0x4060, 0x53),
            (0x4070, 0x383),
            (0x4078, 1),
            (0x4080, 0),
            (0x4084, 0x10001),
            (0x4088, 0),
            (0x40c0, cols << 4),
            (0x500c, cols - 1),
            (0x5010, 0),
            (0x5014, 7),
            (0x5018, input),
            (0x5034, 1),
            (0x5044, 0x17849),
            (0x5068, 0x0101_0101),
        ]
        .map(|(reg, value)| word(reg, value)),
    );
    words.extend([0, 0x0101_0000_0000_0014, 0x0041_0000_0000_0000, 0x0081_0000_0018_0008]);
    words
}

pub fn ramp(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i % 97) as f32 - 48.0).collect()
}

/// Pooling of an 8x8 image of 8 channels (npu-rk3588 B.3).
pub fn pooling(method: u32, [kw, kh]: [u32; 2], input: u32, output: u32) -> Vec<u64> {
    let (ow, oh) = (8 / kw, 8 / kh);
    let recip = |k: u32| u32::from(f16::from_f32(65536.0 / k as f32).to_bits());
    let recip = if method == 0 { [recip(kw), recip(kh)] } else { [0, 0] };
    let surface = oh * ow * 16;
    let mut words = vec![word(0x6004, 0xe), word(0x7004, 0xe)];
    words.extend(
        [
            (0x600c, 7),
            (0x6010, 7),
            (0x6014, 7),
            (0x6018, ow - 1),
            (0x601c, oh - 1),
            (0x6020, 7),
            (0x6024, 0x10 | method),
            (0x6034, (kw - 1) | (kh - 1) << 8 | (kw - 1) << 16 | (kh - 1) << 20),
            (0x6038, recip[0]),
            (0x603c, recip[1]),
            (0x6040, 0),
            (0x6044, 0),
            (0x6048, 0),
            (0x6070, output),
            (0x607c, surface),
            (0x6084, surface | 2),
            (0x60dc, 3),
            (0x700c, 7),
            (0x7010, 7),
            (0x7014, 7),
            (0x701c, input),
            (0x7024, 128),
            (0x7028, 1024),
            (0x7030, 2),
        ]
        .map(|(reg, value)| word(reg, value)),
    );
    words.extend([0, 0x0101_0000_0000_0014, 0x0041_0000_0000_0000, 0x0081_0000_0060_0008]);
    words
}

/// A flying pass that looks everything up in whatever tables are there (npu-ops 2.3).
pub fn looking_up_in_old_tables(cols: u32, input: u32, output: u32) -> Vec<u64> {
    let mut words = flying(cols, input, output);
    set(&mut words, 0x4070, 0x300);
    set(&mut words, 0x4088, 1 << 31 | 15 << 12);
    let at = words.len() - 4;
    let config = [
        (0x4108, 0x68),
        (0x410c, 0x50500),
        (0x4110, 0xffff_c000),
        (0x411c, 0x4000),
        (0x4120, 0),
        (0x4124, 0),
        (0x4128, 0),
        (0x412c, 0),
    ];
    words.splice(at..at, config.map(|(reg, value)| word(reg, value)));
    words
}

/// The same with tables of one value (npu-ops 2.2): a quarter.
pub fn looking_up(cols: u32, input: u32, output: u32) -> Vec<u64> {
    let mut words = looking_up_in_old_tables(cols, input, output);
    let tables = (0..2u32).flat_map(|table| {
        let entries = std::iter::repeat_n(word(0x4104, 0x2000), 513);
        std::iter::once(word(0x4100, 1 << 17 | table << 16)).chain(entries)
    });
    let tables: Vec<u64> = tables.collect();
    words.splice(2..2, tables);
    words
}
