//! Small integers in the number formats of cubes (npu-rk3588 3.5, 3.6).

use half::{bf16, f16};
use rocket_runtime::dtype::DType;

/// Puts `v` at element `i` of a feature or weight cube whose bytes are still zero there.
pub fn put(dtype: DType, cube: &mut [u8], i: usize, v: i8) {
    let mut bytes = |raw: &[u8]| cube[i * raw.len()..][..raw.len()].copy_from_slice(raw);
    match dtype {
        DType::Fp16 | DType::Fp16F32Out => bytes(&f16::from_f32(v.into()).to_le_bytes()),
        DType::Bf16 => bytes(&bf16::from_f32(v.into()).to_le_bytes()),
        DType::Tf32 => bytes(&f32::from(v).to_le_bytes()),
        DType::Int16 => bytes(&i16::from(v).to_le_bytes()),
        DType::Int8 | DType::Int8F32Out => bytes(&v.to_le_bytes()),
        DType::Int4 => cube[i / 2] |= (v as u8 & 15) << (4 * (i % 2)),
    }
}

/// Element `i` of an output cube.
pub fn get(dtype: DType, cube: &[u8], i: usize) -> f64 {
    fn at<const N: usize>(cube: &[u8], i: usize) -> [u8; N] {
        std::array::from_fn(|b| cube[i * N + b])
    }
    match dtype {
        DType::Fp16 => f16::from_le_bytes(at(cube, i)).to_f64(),
        DType::Int4 => i16::from_le_bytes(at(cube, i)).into(),
        DType::Int8 | DType::Int16 => i32::from_le_bytes(at(cube, i)).into(),
        DType::Fp16F32Out | DType::Int8F32Out | DType::Bf16 | DType::Tf32 => {
            f32::from_le_bytes(at(cube, i)).into()
        }
    }
}
