//! What the spec leaves open and how the simulator resolves it: each choice once, by name.
//!
//! The numbers are those of the list in npu-rk3588 section 9.

/// Items 1 and 6.4: a sum is rounded once to fp32 when the accumulator delivers it, and the
/// element-wise adder works in fp32 with a single narrowing to fp16 afterwards. The other
/// candidate narrows the accumulator first.
pub const EW_NARROWS_ONCE: bool = true;

/// Items 1 and 3: fp16 results round to nearest even and overflow to infinity; subnormals,
/// infinities and NaN behave as IEEE says.
pub const FP16_OVERFLOWS_TO_INFINITY: bool = true;

/// Item 7: with a zero SURF_NOTCH every operand surface is the first surface of the cube, as
/// was observed; the address rule would predict overlapping surfaces.
pub const ZERO_NOTCH_REPEATS_FIRST_SURFACE: bool = true;

/// Item 8: EW_SURF_STRIDE takes no part in addressing.
pub const EW_SURF_STRIDE_IS_INERT: bool = true;

/// Item 9: what M < 4 or M mod 4 != 0 computes is unknown; every element becomes noise.
pub const BAD_ROWS_SPOIL_EVERYTHING: bool = true;

/// Trap 18: how many of every hundred results a non-zero FC_DATA_BANK spoils (64 to 75 were seen).
pub const FC_DATA_BANK_SPOILS_PERCENT: u64 = 70;

/// Item 10: a program whose operands do not fit their CBUF banks is refused (hangs).
pub const OVERFULL_CBUF_HANGS: bool = true;

/// Appendix C: registers that must agree and do not are refused (hang); silicon's behaviour is
/// not known.
pub const DISAGREEING_REGISTERS_HANG: bool = true;

/// Item 14: REGISTER_AMOUNTS has this many bits; higher bits of a count are lost.
pub const REGISTER_AMOUNTS_BITS: u32 = 16;

/// Items 16 and 17: a core reset clears the register file and the CBUF.
pub const RESET_CLEARS_CORE: bool = true;

/// 3.2: one image line is `4 * LINE_STRIDE` bytes long, since LINE_STRIDE counts 16-byte atoms
/// of four rows.
pub const LINE_PITCH_PER_STRIDE: u64 = 4;

/// Trap 8: the first segment of a chained buffer that is run task by task completes its stores
/// before the controller runs on into the next segment and hangs.
pub const UNBATCHED_CHAIN_RUNS_FIRST: bool = true;

/// Kernel A.5: the order of the flag check among the per-job checks of a patched driver is not
/// given; here it comes first.
pub const FLAGS_ARE_CHECKED_FIRST: bool = true;

/// Kernel A.5 and 1.7: which idle core a file moves to: the one with the fewest other files and
/// waiting jobs, staying where it is on a tie, else the lowest.
pub const LEAST_LOADED_CORE_FIRST: bool = true;
