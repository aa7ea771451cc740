//! What the spec leaves open and how the simulator resolves it, each choice once.
//!
//! Numbers are those of the list in npu-rk3588 section 9. [`Assumptions`] holds the choices that
//! a board can be made with otherwise, see [`Config::assumptions`](crate::Config::assumptions);
//! these are built in:
//!
//! * Items 1 and 3: fp16 results round to nearest even; subnormals, infinities and NaN behave as
//!   IEEE says. A sum is rounded once to fp32 when the accumulator delivers it.
//! * 3.2: a unit of LINE_STRIDE is a quarter of an atom of each line.
//! * Item 8: EW_SURF_STRIDE takes no part in addressing.
//! * Item 10 and Appendix C: a program whose operands do not fit their CBUF banks, or whose
//!   registers must agree and do not, is refused: it hangs with an explanation.
//! * Item 12: FEATURE_GRAINS and the burst lengths are inert.
//! * Item 15: the last segment's REGISTER_AMOUNTS is inert.
//! * Border values of floats and of 16-bit integers are the low bits of PAD_CON1 in their format.
//! * npu-ops 1.1: BS adds before its ReLU; its multiplier is refused, as nobody has used it.
//! * npu-ops 2.2: the look-up tables stay in the core until overwritten or reset; leaning on that
//!   is noted. A code beyond fp16 is infinite before its exponent is moved; NaN has index zero.
//! * npu-ops 4.8: the pooling sum and its two factors are fp32, narrowed once.
//! * Trap 1: MRDMA enabled without an armed operand hangs whatever COMB_USE says.
//! * Trap 4: only traps 1 and 3 wedge a core, only with
//!   [`Config::sticky_wedge`](crate::Config::sticky_wedge), and a core reset does not unwedge it.
//! * Trap 8: the first segment of a chained buffer run task by task completes its stores before
//!   the controller runs on into the next one and hangs.
//! * Trap 9: a register counts as written if a program of the same job wrote it (1.2); leaning on
//!   that is noted.
//! * A barrier word must stand directly before the enable word; its absence hangs.
//! * kernel-and-uapi A.5: a patched driver checks a job's flags before anything else. A handle
//!   twice in one list is as bad as one in both. GEM_CLOSE of an unknown handle gives EINVAL.
//! * kernel-and-uapi A.5: an idle file moves to the core with the fewest other files and waiting
//!   jobs, staying where it is on a tie, else to the lowest.
//! * kernel-and-uapi B.6 U1: jobs of a closed file still run to their end.

/// What is assumed where the spec leaves a choice. The defaults are what fits the most that is known
/// of silicon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assumptions {
    /// Items 1 and 6.4: the element-wise adder works in fp32 with a single narrowing to fp16
    /// afterwards. Otherwise the accumulator is narrowed first. Default: true.
    pub ew_narrows_once: bool,
    /// Item 2: tf32 operands are rounded to their 10 bits, ties to even. Otherwise the low 13 bits
    /// are cut off, as the checker of the reference has it. Default: false.
    pub tf32_rounds: bool,
    /// Item 3: fp16 results beyond the largest value become that value. Otherwise infinity.
    /// Default: false.
    pub fp16_saturates: bool,
    /// Item 4: a requantised value half way between two integers becomes the even one, as measured
    /// on the RK3576. Otherwise the one further from zero. Default: true.
    pub requant_ties_to_even: bool,
    /// Item 7: with a zero SURF_NOTCH every operand surface is the first surface of the cube, as
    /// was observed. Otherwise the address rule holds, and predicts overlapping surfaces.
    /// Default: true.
    pub zero_notch_repeats_first_surface: bool,
    /// Item 8 and trap 22: the operand's pointers move on by a notch of at least this many atoms,
    /// so that a register which says less does not help. With 0 the register's value holds.
    /// Default: 12.
    pub notch_floor_atoms: u32,
    /// Item 9: what M < 4 or M mod 4 != 0 computes is unknown; every element becomes noise.
    /// Otherwise the program is only explained, and computes by its strides. Default: true.
    pub bad_rows_spoil_everything: bool,
    /// Item 14: REGISTER_AMOUNTS has this many bits, at most 24; higher bits of a count are lost.
    /// Default: 16.
    pub register_amounts_bits: u32,
    /// Items 16 and 17: a core reset clears the register file, the CBUF and the look-up tables.
    /// Default: true.
    pub reset_clears_core: bool,
    /// Trap 17: how many pixels at the end of the tile a missing slack bank spoils. Default: 4.
    pub missing_slack_spoils_pixels: usize,
    /// Trap 18: how many of every hundred results a non-zero FC_DATA_BANK spoils; 64 to 75 were
    /// seen. Default: 70.
    pub fc_data_bank_spoils_percent: u64,
    /// Trap 27: how many values at the end a cube dimension at its maximum spoils; 54 of 65528
    /// were seen. Default: 54.
    pub full_dimension_spoils_values: usize,
    /// npu-ops 4.5: int8 borders take the second byte of PAD_CON1 in odd channels below 32 of every
    /// 64, the first elsewhere, in direct convolutions as in depthwise ones. Otherwise the first
    /// byte is the border everywhere. Default: true.
    pub pad_byte_1_on_odd_low_channels: bool,
    /// npu-ops 9 item 1: a look-up index half way between two integers becomes the even one.
    /// Otherwise the one further from zero. Default: true.
    pub lut_index_ties_to_even: bool,
    /// npu-ops 9 item 1: the extrapolation below the table rounds towards minus infinity. Otherwise
    /// towards zero. Default: true.
    pub lut_slope_rounds_down: bool,
}

impl Default for Assumptions {
    fn default() -> Assumptions {
        Assumptions {
            ew_narrows_once: true,
            tf32_rounds: false,
            fp16_saturates: false,
            requant_ties_to_even: true,
            zero_notch_repeats_first_surface: true,
            notch_floor_atoms: 12,
            bad_rows_spoil_everything: true,
            register_amounts_bits: 16,
            reset_clears_core: true,
            missing_slack_spoils_pixels: 4,
            fc_data_bank_spoils_percent: 70,
            full_dimension_spoils_values: 54,
            pad_byte_1_on_odd_low_channels: true,
            lut_index_ties_to_even: true,
            lut_slope_rounds_down: true,
        }
    }
}

/// Not of the spec: most values one task may unfold or pool. Registers can ask for hundreds of
/// times what a program in use does; such a task is refused before the host's memory is.
pub(crate) const MOST_VALUES_A_TASK: usize = 1 << 28;
