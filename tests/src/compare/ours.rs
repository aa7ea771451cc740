//! How the runtime is called for each kind of product. Nothing is multiplied, so operands are zeros,
//! but for the weights of int4, whose magnitudes bound the K steps.

use crate::reference::{Kind, Residency};
use half::{bf16, f16};
use rocket_runtime::Result;
use rocket_runtime::dtype::DType;
use rocket_runtime::matmul::{
    Bf16, Format, Fp16, Int4, Int8, Integer, Matrix, Npu, Operand, Resident, Rows, Scales,
    Summation, Tf32, Together,
};
use rocket_runtime::plan::Shape;

/// A call to be measured.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    npu: &'a Npu,
    shape: Shape,
    residency: Residency,
}

/// Makes ready what comes before the call, calls `begin`, and multiplies once; false when the
/// runtime has no product of that kind.
///
/// # Errors
/// What the runtime says.
pub fn run(
    npu: &Npu,
    kind: Kind,
    shape: Shape,
    residency: Residency,
    begin: &mut dyn FnMut(),
) -> Result<bool> {
    let call = Call { npu, shape, residency };
    // Codes of -7..=7, as the reference's group-wise and per-channel entries have them (7.6).
    let int4 = |full| Int4 { full, group: kind.group };
    let halves = || vec![f16::ZERO; shape.n * shape.k];
    match kind.dtype {
        DType::Fp16 => call.with(Fp16, &halves(), begin, |a, w, c| {
            npu.gemm(a, w, c, None, Summation::OnChip).map(drop)
        })?,
        DType::Fp16F32Out => call.with(Fp16, &halves(), begin, |a, w, c| {
            npu.gemm(a, w, c, None, Summation::Host).map(drop)
        })?,
        DType::Bf16 => {
            call.with(Bf16, &vec![bf16::ZERO; shape.n * shape.k], begin, |a, w, c| {
                npu.gemm_float(a, w, c, None).map(drop)
            })?;
        }
        DType::Tf32 => {
            call.with(Tf32, &vec![0.0; shape.n * shape.k], begin, |a, w, c| {
                npu.gemm_float(a, w, c, None).map(drop)
            })?;
        }
        DType::Int8 => call.codes(Int8 { group: kind.group }, begin)?,
        DType::Int4 => call.codes(int4(kind == Kind::INT4_EXACT), begin)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Packs weights of one K for calls of `rows`, calls `begin`, and multiplies one activation with all
/// of them.
///
/// # Errors
/// What the runtime says.
pub fn together(
    npu: &Npu,
    rows: usize,
    k: usize,
    ns: &[usize],
    begin: &mut dyn FnMut(),
) -> Result<()> {
    let zeros = |n: usize| vec![f16::ZERO; n * k];
    let packed: Vec<Resident> =
        ns.iter().map(|&n| npu.pack(Fp16, &Rows::new(&zeros(n), n, k))).collect::<Result<_>>()?;
    let (a, scale) = (zeros(rows), vec![1.0; rows]);
    let a = Matrix::new(&a, rows, k, k);
    let mut outs: Vec<Vec<f32>> = ns.iter().map(|n| vec![0.0; rows * n]).collect();
    begin();
    let mut products: Vec<Together<'_>> =
        packed.iter().zip(&mut outs).map(|(w, out)| Together { w, out }).collect();
    npu.gemm_together(a, &mut products, Some(&scale), Summation::OnChip).map(drop)
}

impl Call<'_> {
    /// Zeros times `w`, packed as the residency says.
    fn with<F: Format, C: Copy + Default>(
        &self,
        format: F,
        w: &[F::Element],
        begin: &mut dyn FnMut(),
        multiply: impl FnOnce(Matrix<'_, F::Element>, Operand<'_, F>, &mut [C]) -> Result<()>,
    ) -> Result<()>
    where
        F::Element: Copy + std::fmt::Debug + Sync,
    {
        let Shape { m, k, n } = self.shape;
        let a: Vec<F::Element> = vec![bytemuck::Zeroable::zeroed(); m * k];
        let mut c = vec![C::default(); m * n];
        let rows = Rows::new(w, n, k);
        let packed: Option<Resident<F>> = match self.residency {
            Residency::Resident => Some(self.npu.pack_for(m, format, &rows)?),
            Residency::Streaming => None,
        };
        let w = packed.as_ref().map_or(Operand::Stream(format, &rows), Operand::Resident);
        begin();
        multiply(Matrix::new(&a, m, k, k), w, &mut c)
    }

    fn codes<F: Integer>(&self, format: F, begin: &mut dyn FnMut()) -> Result<()> {
        let (npu, Shape { m, k, n }) = (self.npu, self.shape);
        let w = match format.dtype() {
            DType::Int4 => normal_codes(n * k),
            _ => vec![0; n * k],
        };
        let Some(group) = format.group() else {
            return self.with(format, &w, begin, |a, w, c| npu.gemm_exact(a, w, c).map(drop));
        };
        let groups = k.div_ceil(group);
        let (rows, columns) = (vec![1.0; groups * m], vec![1.0; groups * n]);
        let scales = Scales { rows: &rows, columns: &columns };
        self.with(format, &w, begin, |a, w, c| npu.gemm_scaled(a, w, scales, c).map(drop))
    }
}

/// Codes as a scale a row gives them for normally distributed weights: 7 is the largest of a few
/// thousand, 3.7 standard deviations out.
fn normal_codes(len: usize) -> Vec<i8> {
    let mut x = 1u64;
    let mut uniform = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    // Four uniform numbers have a variance of a third.
    let mut one = || (0..4).map(|_| uniform()).sum::<f32>() * 3f32.sqrt();
    (0..len).map(|_| (one() * 7.0 / 3.7).round().clamp(-7.0, 7.0) as i8).collect()
}
