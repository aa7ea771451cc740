//! Programs without a convolution: flying passes through the DPU (npu-rk3588 B.4, npu-ops 2.3)
//! and pooling (npu-rk3588 B.3, npu-ops 4.8).

use super::geometry::expect;
use super::{Hang, Plan, Rule, history, stages};
use crate::assumptions::MOST_VALUES_A_TASK;
use crate::core::ATOM;
use crate::dpu::Dpu;
use crate::format::{Format, Out};
use crate::lut::Tables;
use crate::ppu::{Method, Ppu};
use crate::rdma::Rdma;
use crate::regs::{self, RegFile};

const FP16: u64 = 2;

/// Registers that a flying pass must write.
const FLYING: &[u16] = &[
    regs::DPU_FEATURE_MODE_CFG,
    regs::DPU_DATA_FORMAT,
    regs::DPU_DST_BASE_ADDR,
    regs::DPU_DST_SURF_STRIDE,
    regs::DPU_DATA_CUBE_WIDTH,
    regs::DPU_DATA_CUBE_HEIGHT,
    regs::DPU_DATA_CUBE_CHANNEL,
    regs::DPU_BS_CFG,
    regs::DPU_BS_OW_CFG,
    regs::DPU_WDMA_SIZE_0,
    regs::DPU_WDMA_SIZE_1,
    regs::DPU_BN_CFG,
    regs::DPU_EW_CFG,
    regs::DPU_OUT_CVT_OFFSET,
    regs::DPU_OUT_CVT_SCALE,
    regs::DPU_OUT_CVT_SHIFT,
    regs::DPU_SURFACE_ADD,
    regs::RDMA_DATA_CUBE_WIDTH,
    regs::RDMA_DATA_CUBE_HEIGHT,
    regs::RDMA_DATA_CUBE_CHANNEL,
    regs::RDMA_SRC_BASE_ADDR,
    regs::RDMA_ERDMA_CFG,
    regs::RDMA_FEATURE_MODE_CFG,
];

/// A flying pass that may run.
#[derive(Debug)]
pub struct Flight {
    pub dpu: Dpu,
    pub rdma: Rdma,
    pub findings: Vec<(Rule, String)>,
    pub store_nothing: bool,
    /// Values at the end that become noise.
    pub spoil_tail: usize,
}

/// Checks a flying pass.
pub fn flying(r: &RegFile, tables: &Tables) -> Result<Flight, Hang> {
    let mut flight = Flight {
        dpu: Dpu::read(r, ATOM, Out::Fp16),
        rdma: Rdma::read(r),
        findings: Vec::new(),
        store_nothing: false,
        spoil_tail: 0,
    };
    if let Some(finding) = history::not_written(r, FLYING.iter().copied()) {
        flight.store_nothing = finding.0 == Rule::RegistersNotWritten;
        flight.findings.push(finding);
        if flight.store_nothing {
            return Ok(flight);
        }
    }
    let (w, h) = (flight.dpu.rows as u64, 0);
    for (field, want) in [
        ((regs::DPU_FEATURE_MODE_CFG, 31, 25), 0),
        ((regs::DPU_FEATURE_MODE_CFG, 4, 0), 5),
        ((regs::DPU_DATA_FORMAT, 31, 29), FP16),
        ((regs::DPU_DATA_FORMAT, 28, 26), FP16),
        ((regs::DPU_DATA_FORMAT, 25, 3), 0),
        ((regs::DPU_DATA_FORMAT, 2, 0), FP16),
        ((regs::DPU_DATA_CUBE_HEIGHT, 12, 0), h),
        ((regs::DPU_DATA_CUBE_CHANNEL, 12, 0), ATOM as u64 - 1),
        ((regs::RDMA_FEATURE_MODE_CFG, 17, 15), FP16),
        ((regs::RDMA_FEATURE_MODE_CFG, 7, 5), FP16),
        // fp16 becomes fp32 on the way in; direct mode; flying.
        ((regs::RDMA_FEATURE_MODE_CFG, 3, 0), 9),
    ] {
        expect(r, Rule::NotModelled, field, want)?;
    }
    for (field, want) in [
        ((regs::DPU_DATA_CUBE_CHANNEL, 28, 16), ATOM as u64 - 1),
        ((regs::DPU_WDMA_SIZE_0, 12, 0), ATOM as u64 - 1),
        ((regs::DPU_WDMA_SIZE_1, 12, 0), w - 1),
        ((regs::DPU_WDMA_SIZE_1, 28, 16), h),
        ((regs::RDMA_DATA_CUBE_WIDTH, 12, 0), w - 1),
        ((regs::RDMA_DATA_CUBE_HEIGHT, 12, 0), h),
        ((regs::RDMA_DATA_CUBE_CHANNEL, 12, 0), ATOM as u64 - 1),
    ] {
        expect(r, Rule::SizesDisagree, field, want)?;
    }
    for reg in [regs::DPU_DST_BASE_ADDR, regs::RDMA_SRC_BASE_ADDR] {
        expect(r, Rule::AddressUnaligned, (reg, 3, 0), 0)?;
    }
    if !flight.rdma.mrdma_on {
        let message = "flying pass with MRDMA disabled".to_owned();
        return Err(Hang::new(Rule::MrdmaWithoutFeed, message));
    }
    // Trap 25.
    let armed = flight.dpu.operand.is_some();
    if armed != flight.rdma.erdma_on {
        let message = "flying pass".to_owned();
        return Err(Hang::new(Rule::OperandHalfArmed, message));
    }
    if !armed && flight.dpu.lookup.is_none() {
        expect(r, Rule::NotModelled, (regs::DPU_EW_CFG, 0, 0), 1)?;
    }
    flight.findings.extend(stages::surfaces(r, &flight.dpu)?);
    stages::check(r, &flight.dpu, Format::Fp16)?;
    flight.findings.extend(stages::tables(&flight.dpu, tables));
    if armed {
        let message = "operand of a flying pass".to_owned();
        flight.findings.push((Rule::OperandInFlight, message));
    }
    if let Some(finding) = full_dimension(flight.dpu.rows) {
        flight.findings.push(finding);
        flight.spoil_tail = r.assume.full_dimension_spoils_values;
    }
    Ok(flight)
}

/// Trap 27.
pub fn full_dimension(extent: usize) -> Option<(Rule, String)> {
    const MOST: usize = 8191;
    (extent >= MOST).then(|| (Rule::FullDimension, format!("extent {extent}")))
}

/// A pooling pass that may run.
#[derive(Debug)]
pub struct Pool {
    pub ppu: Ppu,
    pub method: Method,
    pub findings: Vec<(Rule, String)>,
    pub store_nothing: bool,
    /// Values at the end that become noise.
    pub spoil_tail: usize,
}

/// Checks a pooling pass.
pub fn pool(r: &RegFile) -> Result<Pool, Hang> {
    let ppu = Ppu::read(r);
    let Some(method) = ppu.method else {
        return Err(Hang::new(Rule::NotModelled, "unknown pooling method".to_owned()));
    };
    let mut pool = Pool { ppu, method, findings: Vec::new(), store_nothing: false, spoil_tail: 0 };
    let all = regs::NAMES.iter().map(|(o, _)| *o).filter(|o| *o >> 12 >= 6);
    if let Some(finding) = history::not_written(r, all) {
        pool.store_nothing = finding.0 == Rule::RegistersNotWritten;
        pool.findings.push(finding);
        if pool.store_nothing {
            return Ok(pool);
        }
    }
    let values = |sides: &[usize]| sides.iter().fold(1usize, |p, &x| p.saturating_mul(x));
    let ppu = &pool.ppu;
    let work = values(&ppu.output).saturating_mul(values(&ppu.kernel));
    if values(&ppu.input).max(work) > MOST_VALUES_A_TASK {
        let message =
            format!("pooling {:?} to {:?} is more than is simulated", ppu.input, ppu.output);
        return Err(Hang::new(Rule::NotModelled, message));
    }
    // Fed by its reader, no index output, no notch.
    expect(r, Rule::NotModelled, (regs::PPU_OPERATION_MODE_CFG, 31, 2), 4)?;
    expect(r, Rule::NotModelled, (regs::PPU_DATA_FORMAT, 3, 3), 0)?;
    for (i, reg) in [
        regs::PPU_RDMA_CUBE_IN_WIDTH,
        regs::PPU_RDMA_CUBE_IN_HEIGHT,
        regs::PPU_RDMA_CUBE_IN_CHANNEL,
    ]
    .into_iter()
    .enumerate()
    {
        expect(r, Rule::SizesDisagree, (reg, 12, 0), pool.ppu.input[i] as u64 - 1)?;
    }
    let stride = u64::from(r.field(regs::PPU_DST_SURF_STRIDE, 31, 4));
    expect(r, Rule::SizesDisagree, (regs::PPU_DATA_FORMAT, 31, 4), stride)?;
    if !pool.ppu.extents_agree() {
        let (from, to) = (pool.ppu.input, pool.ppu.output);
        let message = format!("pooling {from:?} to {to:?} with kernel {:?}", pool.ppu.kernel);
        return Err(Hang::new(Rule::SizesDisagree, message));
    }
    for reg in [
        regs::PPU_DST_BASE_ADDR,
        regs::PPU_RDMA_SRC_BASE_ADDR,
        regs::PPU_RDMA_SRC_LINE_STRIDE,
        regs::PPU_RDMA_SRC_SURF_STRIDE,
    ] {
        expect(r, Rule::AddressUnaligned, (reg, 3, 0), 0)?;
    }
    for reg in [regs::PPU_DATA_FORMAT, regs::PPU_RDMA_DATA_FORMAT] {
        let code = r.field(reg, 2, 0);
        if u64::from(code) != FP16 {
            let message = format!("precision {code} in {}", regs::name(reg));
            pool.findings.push((Rule::PoolingPrecision, message));
        }
    }
    if method == Method::Average && pool.ppu.kernel.contains(&1) {
        let message = format!("kernel {:?}", pool.ppu.kernel);
        pool.findings.push((Rule::PoolingOfOne, message));
    }
    let mut extents = pool.ppu.input.into_iter().chain(pool.ppu.output);
    if let Some(finding) = extents.find_map(full_dimension) {
        pool.findings.push(finding);
        pool.spoil_tail = r.assume.full_dimension_spoils_values;
    }
    Ok(pool)
}

impl Plan {
    /// Trap 27 in a convolution.
    pub(super) fn check_dimensions(&mut self, r: &RegFile) {
        let w = &self.cna.window;
        let extents = [w.out_width, w.out_height, self.dpu.channels];
        let Some(finding) = extents.into_iter().find_map(full_dimension) else { return };
        self.findings.push(finding);
        self.spoil_tail = self.spoil_tail.max(r.assume.full_dimension_spoils_values);
    }
}
