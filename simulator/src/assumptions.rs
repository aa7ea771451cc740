//! What the spec leaves open and how the simulator resolves it, each choice once.
//!
//! Numbers are those of the list in npu-rk3588 section 9. The constants below can be changed;
//! these choices are built in:
//!
//! * Items 1 and 3: fp16 results round to nearest even and overflow to infinity; subnormals,
//!   infinities and NaN behave as IEEE says. A sum is rounded once to fp32 when the accumulator
//!   delivers it.
//! * Item 8: EW_SURF_STRIDE takes no part in addressing.
//! * Item 2: tf32 operands lose their low 13 bits, without rounding.
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

/// Items 1 and 6.4: the element-wise adder works in fp32 with a single narrowing to fp16
/// afterwards. The other candidate narrows the accumulator first.
pub const EW_NARROWS_ONCE: bool = true;

/// Item 7: with a zero SURF_NOTCH every operand surface is the first surface of the cube, as was
/// observed; the address rule would predict overlapping surfaces.
pub const ZERO_NOTCH_REPEATS_FIRST_SURFACE: bool = true;

/// Item 8 and trap 22: the operand's pointers move on by a notch of at least this many atoms, so
/// that a register which says less does not help. The other candidate is 0: the register's value.
pub const NOTCH_FLOOR_ATOMS: u64 = 12;

/// Item 9: what M < 4 or M mod 4 != 0 computes is unknown; every element becomes noise.
/// Otherwise the program is only explained, and computes by its strides.
pub const BAD_ROWS_SPOIL_EVERYTHING: bool = true;

/// Trap 18: how many of every hundred results a non-zero FC_DATA_BANK spoils (64 to 75 were seen).
pub const FC_DATA_BANK_SPOILS_PERCENT: u64 = 70;

/// Item 14: REGISTER_AMOUNTS has this many bits; higher bits of a count are lost.
pub const REGISTER_AMOUNTS_BITS: u32 = 16;

/// Items 16 and 17: a core reset clears the register file and the CBUF.
pub const RESET_CLEARS_CORE: bool = true;

/// 3.2: one image line is this many bytes per unit of LINE_STRIDE, which counts 16-byte atoms of
/// four lines.
pub const LINE_PITCH_PER_STRIDE: u64 = 4;

/// Item 4: a requantised value half way between two integers becomes the even one, as measured
/// on the RK3576. The other candidate is away from zero.
pub const REQUANT_TIES_TO_EVEN: bool = true;

/// npu-ops 4.5: int8 borders take the second byte of PAD_CON1 in odd channels below 32 of every 64,
/// the first elsewhere, in direct convolutions as in depthwise ones. Otherwise the first byte is
/// the border everywhere.
pub const PAD_BYTE_1_ON_ODD_LOW_CHANNELS: bool = true;

/// npu-ops 9 item 1: a look-up index half way between two integers becomes the even one.
pub const LUT_INDEX_TIES_TO_EVEN: bool = true;

/// npu-ops 9 item 1: the extrapolation below the table rounds towards minus infinity. The other
/// candidate is towards zero.
pub const LUT_SLOPE_ROUNDS_DOWN: bool = true;

/// Trap 17: how many pixels at the end of the tile a missing slack bank spoils.
pub const MISSING_SLACK_SPOILS_PIXELS: usize = 4;

/// Trap 27: how many values at the end a cube dimension at its maximum spoils (54 of 65528 were
/// seen).
pub const FULL_DIMENSION_SPOILS_VALUES: usize = 54;

/// Not of the spec: most values one task may unfold or pool. Registers can ask for hundreds of
/// times what a program in use does; such a task is refused before the host's memory is.
pub const MOST_VALUES_A_TASK: usize = 1 << 28;
