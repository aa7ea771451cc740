//! CNA: loads feature and weight cubes into the CBUF (npu-rk3588 2.3, 3.2, 3.3, 4.3).

use crate::assumptions::Assumptions;
use crate::check::{Hang, unmapped_in};
use crate::core::Scratch;
use crate::format::Format;
use crate::kernel::space::Dma;
use crate::regs::{self, RegFile};
use crate::window::Window;
use std::borrow::Cow;

/// One image line is this many bytes per unit of LINE_STRIDE, which counts 16-byte atoms of four
/// lines (npu-rk3588 3.2).
const LINE_PITCH_PER_STRIDE: u64 = 4;

/// One operand in the CBUF, decoded, with what it was fetched by. `depth` values a row.
#[derive(Debug, Default)]
pub struct Image {
    pub addr: u64,
    pub rows: usize,
    pub depth: usize,
    data: Vec<f32>,
}

impl Image {
    /// Nothing but what an image was fetched by.
    pub fn empty(addr: u64, rows: usize, depth: usize) -> Image {
        Image { addr, rows, depth, data: Vec::new() }
    }

    fn begin(&mut self, addr: u64, rows: usize, depth: usize) -> &mut [f32] {
        (self.addr, self.rows, self.depth) = (addr, rows, depth);
        self.data.resize(rows * depth, 0.0);
        &mut self.data
    }

    /// The image as `rows` by `depth`; where a stale one does not reach there are zeros.
    pub fn fitted(&self, rows: usize, depth: usize) -> Cow<'_, [f32]> {
        if (self.rows, self.depth) == (rows, depth) {
            return Cow::Borrowed(&self.data);
        }
        let mut out = vec![0.0; rows * depth];
        let (n, have) = (depth.min(self.depth), self.depth.max(1));
        for (to, from) in out.chunks_exact_mut(depth).zip(self.data.chunks_exact(have)) {
            to[..n].copy_from_slice(&from[..n]);
        }
        Cow::Owned(out)
    }
}

/// The CNA registers that say where operands lie and how large they are.
#[derive(Debug, Clone)]
pub struct Cna {
    pub feature_addr: u64,
    pub window: Window,
    pub channels: usize,
    pub depthwise: bool,
    line_pitch: u64,
    plane_pitch: u64,
    pub weight_addr: u64,
    pub kernels: usize,
    pub weight_bytes: u64,
    pub bytes_per_kernel: u64,
    pub data_reuse: bool,
    pub weight_reuse: bool,
    assume: Assumptions,
}

impl Cna {
    pub fn read(r: &RegFile) -> Cna {
        let line_stride = u64::from(r.field(regs::CNA_DMA_CON1, 27, 0));
        let surf_stride = u64::from(r.field(regs::CNA_DMA_CON2, 27, 0));
        Cna {
            feature_addr: r.get(regs::CNA_FEATURE_DATA_ADDR).into(),
            window: Window::read(r),
            channels: r.field(regs::CNA_DATA_SIZE1, 15, 0) as usize,
            depthwise: r.field(regs::CNA_CONV_CON1, 3, 0) == 3,
            line_pitch: LINE_PITCH_PER_STRIDE * line_stride,
            plane_pitch: 16 * (surf_stride + line_stride),
            weight_addr: r.get(regs::CNA_DCOMP_ADDR0).into(),
            kernels: r.field(regs::CNA_WEIGHT_SIZE2, 13, 0) as usize,
            weight_bytes: r.get(regs::CNA_WEIGHT_SIZE0).into(),
            bytes_per_kernel: r.field(regs::CNA_WEIGHT_SIZE1, 18, 0).into(),
            data_reuse: r.bit(regs::CNA_CBUF_CON0, 12),
            weight_reuse: r.bit(regs::CNA_CBUF_CON0, 13),
            assume: r.assume,
        }
    }

    /// Pixels of the image: the rows of the matrix.
    pub fn rows(&self) -> usize {
        self.window.in_width * self.window.in_height
    }

    /// Whether one plane of the image ends where the next begins.
    pub fn planes_adjoin(&self) -> bool {
        self.plane_pitch == 16 * self.rows() as u64
    }

    /// Rows and values a row of the weight image: one row when depthwise.
    pub fn weight_extents(&self, format: Format) -> (usize, usize) {
        let values = |bytes: u64| bytes as usize * 8 / format.bits();
        if self.depthwise {
            (1, values(self.weight_bytes))
        } else {
            (self.kernels, values(self.bytes_per_kernel))
        }
    }

    /// Fetches the feature image plane by plane (npu-rk3588 3.2); says how many bytes that was.
    pub fn fetch_feature(
        &self,
        format: Format,
        dma: &mut Dma,
        scratch: &mut Scratch,
        image: &mut Image,
    ) -> Result<u64, Hang> {
        // Four planes at a time, so that whole cache lines of the image are written.
        const AT_ONCE: usize = 4;
        let (rows, depth, atom) = (self.rows(), self.channels, format.atom());
        let to = image.begin(self.feature_addr, rows, depth);
        let planes = depth / atom;
        for first in (0..planes).step_by(AT_ONCE) {
            let n = AT_ONCE.min(planes - first);
            let (words, floats) = scratch.buffers(2 * n * rows, n * rows * atom);
            for (i, plane) in words.chunks_exact_mut(2 * rows).enumerate() {
                let addr = self.feature_addr + (first + i) as u64 * self.plane_pitch;
                self.read_plane(dma, addr, plane)?;
            }
            format.decode_operand(self.assume, words, floats);
            let place = match atom {
                4 => place::<4>,
                8 => place::<8>,
                16 => place::<16>,
                _ => place::<32>,
            };
            place(to, depth, first, floats);
        }
        Ok(format.bytes(rows * depth) as u64)
    }

    /// One plane: the lines of one 16-byte channel atom.
    fn read_plane(&self, dma: &mut Dma, addr: u64, plane: &mut [u64]) -> Result<(), Hang> {
        let fault = |f| unmapped_in(f, regs::CNA_FEATURE_DATA_ADDR, "feature fetch");
        let width = self.window.in_width;
        if self.line_pitch == 16 * width as u64 {
            return dma.read(addr, plane).map_err(fault);
        }
        for (y, line) in plane.chunks_exact_mut(2 * width).enumerate() {
            dma.read(addr + y as u64 * self.line_pitch, line).map_err(fault)?;
        }
        Ok(())
    }

    /// Fetches the weight image: kernel groups one after another, in each the channel blocks one
    /// after another, in each the taps (npu-rk3588 3.3, B.1). Depthwise weights are one kernel,
    /// taken as it lies (B.2).
    pub fn fetch_weight(
        &self,
        format: Format,
        dma: &mut Dma,
        scratch: &mut Scratch,
        image: &mut Image,
    ) -> Result<u64, Hang> {
        let (kernels, depth) = self.weight_extents(format);
        let to = image.begin(self.weight_addr, kernels, depth);
        let (group, block) = if self.depthwise {
            (1, depth)
        } else {
            (format.kernel_group(), format.channel_unit())
        };
        let mut addr = self.weight_addr;
        for kernels in to.chunks_exact_mut(group * depth) {
            let (words, floats) = scratch.buffers(format.bytes(kernels.len()) / 8, kernels.len());
            let fault = |f| unmapped_in(f, regs::CNA_DCOMP_ADDR0, "weight fetch");
            dma.read(addr, words).map_err(fault)?;
            addr += words.len() as u64 * 8;
            format.decode_operand(self.assume, words, floats);
            for (n, kernel) in kernels.chunks_exact_mut(depth).enumerate() {
                for (b, to) in kernel.chunks_exact_mut(block).enumerate() {
                    to.copy_from_slice(&floats[(b * group + n) * block..][..block]);
                }
            }
        }
        Ok(addr - self.weight_addr)
    }
}

/// Copies planes of `ATOM` channels, a whole number of them in `planes`, to rows of `depth`
/// values, from plane `first` on. A constant length makes copies of atoms fast.
fn place<const ATOM: usize>(to: &mut [f32], depth: usize, first: usize, planes: &[f32]) {
    let rows = to.len() / depth;
    for (m, row) in to.chunks_exact_mut(depth).enumerate() {
        let row = row[first * ATOM..].chunks_exact_mut(ATOM);
        for (to, plane) in row.zip(planes.chunks_exact(rows * ATOM)) {
            to.copy_from_slice(&plane[m * ATOM..][..ATOM]);
        }
    }
}
