//! Every rule as data: number, class, id, where it is stated, registers involved, title, and what
//! silicon does in a sentence.

use super::Class;
use crate::regs;
use std::fmt;

macro_rules! rules {
    ($($name:ident = $number:literal, $class:ident, $id:literal, $section:literal,
       [$($register:ident),*], $title:literal, $sentence:literal;)*) => {
        /// Every rule that the simulator checks. Numbers below 100 are those of the trap list in
        /// npu-rk3588 4.5, from 100 on geometry and decoding, from 200 on the driver, from 300
        /// on the simulator itself.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Rule {
            $(#[doc = concat!($sentence, " (", $section, ")")] $name,)*
        }

        impl Rule {
            /// Every rule, by number.
            pub const ALL: &[Rule] = &[$(Rule::$name),*];

            /// Its number.
            pub const fn number(self) -> u16 {
                match self { $(Rule::$name => $number,)* }
            }

            /// What breaking it leads to.
            pub const fn class(self) -> Class {
                match self { $(Rule::$name => Class::$class,)* }
            }

            /// Its name in files and on command lines; never changes.
            pub const fn id(self) -> &'static str {
                match self { $(Rule::$name => $id,)* }
            }

            /// Where it is stated.
            pub const fn section(self) -> &'static str {
                match self { $(Rule::$name => $section,)* }
            }

            /// Offsets of the registers it is about; none for rules of the word stream, the
            /// driver and the simulator. [`register_name`](crate::register_name) names them.
            pub const fn registers(self) -> &'static [u16] {
                match self { $(Rule::$name => &[$(regs::$register),*],)* }
            }

            /// What is wrong, in words.
            pub const fn title(self) -> &'static str {
                match self { $(Rule::$name => $title,)* }
            }

            /// What silicon does and why, in one sentence.
            pub const fn sentence(self) -> &'static str {
                match self { $(Rule::$name => $sentence,)* }
            }
        }
    };
}

impl Rule {
    /// The rule with this [`id`](Rule::id).
    pub fn from_id(id: &str) -> Option<Rule> {
        Rule::ALL.iter().copied().find(|r| r.id() == id)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {} ({}): {}", self.number(), self.id(), self.title())
    }
}

// rustfmt leaves macro input alone; a rule is three lines.
rules! {
    MrdmaWithoutFeed = 1, Hang, "mrdma-without-feed", "npu-rk3588 4.5 trap 1", [RDMA_FEATURE_MODE_CFG],
        "the operand reader waits for a feed that never comes",
        "With MRDMA enabled and no operand armed, or with the DPU-RDMA registers left unwritten, the DPU's reader waits for a feed that never comes.";
    EnableWithoutRdma = 2, Hang, "enable-without-rdma", "npu-rk3588 4.5 trap 2", [],
        "enable mask without DPU-RDMA",
        "The mask 0x0d leaves DPU-RDMA out, and the DPU waits for its reader for ever.";
    OperandHalfArmed = 3, Hang, "operand-half-armed", "npu-rk3588 4.5 trap 3", [DPU_EW_CFG, RDMA_ERDMA_CFG, RDMA_FEATURE_MODE_CFG],
        "element-wise operand armed on one side only",
        "The element-wise stage and the readers of its operand must be armed together, or one waits for the other.";
    CoreWedged = 4, Hang, "core-wedged", "npu-rk3588 4.5 trap 4", [],
        "core wedged by an earlier wrong operand configuration",
        "A wrong operand configuration may wedge a core, which then completes no job until the driver is reloaded.";
    EnableNotFetched = 5, Hang, "enable-not-fetched", "npu-rk3588 4.5 trap 5", [],
        "the fetched words contain no enable word",
        "The controller fetches as many words as the task says, and without an enable word among them nothing starts.";
    ChainWithoutLink = 6, Hang, "chain-without-link", "npu-rk3588 4.5 trap 6", [],
        "chained job without a link to the next program",
        "In a batched job the controller follows the address that each program leaves for it, and stalls where there is none.";
    ChainedIntegers = 7, Garbage, "chained-integers", "npu-rk3588 4.5 trap 7", [CNA_CONV_CON1],
        "integers in a chain: right in the first program only",
        "The integer accumulator is cleared once a kick, so that every program of a chain after the first starts from what the one before left.";
    ChainNotBatched = 8, Hang, "chain-not-batched", "npu-rk3588 4.5 trap 8", [],
        "chained program run task by task",
        "A driver that runs tasks one by one does not expect the controller to follow a link, which runs it into the next program.";
    RegistersNotWritten = 9, Silent, "registers-not-written", "npu-rk3588 4.5 trap 9", [],
        "program relies on registers it did not write",
        "A program that leaves registers to those of earlier jobs completes without storing anything.";
    TaskDmaBase = 10, Hang, "task-dma-base", "npu-rk3588 4.5 trap 10", [],
        "PC TASK_DMA_BASE_ADDR is not zero",
        "A non-zero TASK_DMA_BASE_ADDR stalls the program controller.";
    DpuPrecision7 = 11, Silent, "dpu-precision-7", "npu-rk3588 4.5 trap 11", [DPU_DATA_FORMAT],
        "the DPU does not know precision 7",
        "The DPU knows the precisions 0 to 6 only, and writes nothing when one of its fields holds 7.";
    Tf32AsFp32 = 12, Garbage, "tf32-as-fp32", "npu-rk3588 4.5 trap 12", [CNA_CONV_CON1, CORE_MISC_CFG, DPU_DATA_FORMAT],
        "tf32 data with fp32 in the CORE",
        "With tf32 in the CNA and fp32 in the CORE the MAC array reads its operands in another format than they are delivered in.";
    Int4AsFloat = 13, Garbage, "int4-as-float", "npu-rk3588 4.5 trap 13", [CNA_CONV_CON1, CORE_MISC_CFG, DPU_DATA_FORMAT],
        "int4 data with bf16 in CNA and CORE",
        "With bf16 in CNA and CORE but int4 in the DPU the sums saturate to nonsense.";
    SurfacesTooFew = 14, Silent, "surfaces-too-few", "npu-rk3588 4.5 trap 14", [DPU_BS_OW_CFG],
        "SIZE_E too small: part of each kernel group is not stored",
        "The writer stores SIZE_E + 1 surfaces of each kernel group and drops the rest.";
    RowsNotMultipleOf4 = 15, Garbage, "rows-not-multiple-of-4", "npu-rk3588 4.5 trap 15", [CNA_DATA_SIZE0, CNA_DMA_CON2],
        "M below 4 or not a multiple of 4",
        "The feature reader takes four rows at a time, and with the matmul's stride formula other numbers of rows are read from wrong places.";
    ChannelsNotAligned = 16, Hang, "channels-not-aligned", "npu-rk3588 4.5 trap 16", [CNA_DATA_SIZE1, CNA_WEIGHT_SIZE2],
        "K or N is not a multiple of the weight block (refused)",
        "Weights are read in blocks of whole kernel groups and channel units, and what a partial block gives is not known, so that it is refused.";
    SlackBankMissing = 17, Garbage, "slack-bank-missing", "npu-rk3588 4.2, 4.5 trap 17", [CNA_CBUF_CON0],
        "int8 features fill their last bank nearly, without a bank of slack",
        "The int8 feature reader runs into one bank more than the features need when their last bank is nearly full, and spoils the last rows.";
    FcDataBank = 18, Garbage, "fc-data-bank", "npu-rk3588 4.5 trap 18", [CNA_CBUF_CON0],
        "FC_DATA_BANK is not zero",
        "A non-zero FC_DATA_BANK corrupts two thirds of the results or more.";
    TooLargeForCbuf = 19, Hang, "too-large-for-cbuf", "npu-rk3588 4.5 trap 19", [CNA_DATA_SIZE0, CNA_DATA_SIZE1, CNA_WEIGHT_SIZE1],
        "features need more than 11 banks, or a kernel more than one (refused)",
        "The features must leave a bank to the weights and a kernel must fit one bank, and what silicon does otherwise is not known, so that it is refused.";
    StaleReuse = 20, Garbage, "stale-reuse", "npu-rk3588 4.3, 4.5 trap 20", [CNA_CBUF_CON0],
        "reuse bit with another tile in the CBUF",
        "A reuse bit takes whatever the task before left in the CBUF, and computes with it in silence when that is another tile.";
    OperandInPlace = 21, Garbage, "operand-in-place", "npu-rk3588 4.5 trap 21", [RDMA_SRC_BASE_ADDR, RDMA_EW_BASE_ADDR, DPU_DST_BASE_ADDR],
        "operand and output overlap",
        "The operand's reader and the writer of the output race when they work on the same bytes.";
    OperandMisstrided = 22, Garbage, "operand-misstrided", "npu-rk3588 4.5 trap 22, 6.3; npu-ops 1.8", [RDMA_SURF_NOTCH, RDMA_EW_SURF_NOTCH],
        "operand surfaces are not where the notch points",
        "The operand's pointers move on by a surface and a notch of no less than 12 atoms, which passes by the next surface pair unless the notch is the surface's own size.";
    OperandNotchZero = 23, Garbage, "operand-notch-zero", "npu-rk3588 4.5 trap 23", [RDMA_SURF_NOTCH, RDMA_EW_SURF_NOTCH],
        "zero notch: the operand pointer never advances",
        "With a zero notch the operand's pointers never advance, and every surface gets the first one.";
    IntegerOperand = 24, Garbage, "integer-operand", "npu-rk3588 4.5 trap 24, 6.5", [DPU_EW_CFG, DPU_DATA_FORMAT],
        "the element-wise stage takes integers for floats",
        "The element-wise stage works on floats only, and combines the bit patterns of integers as such.";
    OperandInFlight = 25, Garbage, "operand-in-flight", "npu-rk3588 4.5 trap 25", [DPU_EW_CFG, DPU_FEATURE_MODE_CFG],
        "element-wise operand without a convolution reads as zero",
        "In a flying pass MRDMA feeds the main path, and the operand beside it reads as zero.";
    Int16Output = 26, Silent, "int16-output", "npu-rk3588 4.5 trap 26", [CNA_CONV_CON1, DPU_DATA_FORMAT],
        "int16 product: only 16 channels of the first row are stored",
        "The writer stores 16 channels of the first row of an int16 product and nothing else.";
    FullDimension = 27, Garbage, "full-dimension", "npu-rk3588 4.5 trap 27", [DPU_DATA_CUBE_WIDTH, DPU_DATA_CUBE_HEIGHT, DPU_DATA_CUBE_CHANNEL, PPU_DATA_CUBE_IN_WIDTH, PPU_DATA_CUBE_IN_HEIGHT, PPU_DATA_CUBE_IN_CHANNEL, PPU_DATA_CUBE_OUT_WIDTH, PPU_DATA_CUBE_OUT_HEIGHT, PPU_DATA_CUBE_OUT_CHANNEL],
        "cube dimension at its maximum",
        "A cube whose 13-bit dimension is at its maximum is corrupt in a handful of places at its end.";
    ImageTooLow = 28, Garbage, "image-too-low", "npu-rk3588 4.5 trap 28", [CNA_DATA_SIZE0, CNA_DMA_CON2],
        "convolution of an image less than 4 high",
        "The feature reader takes four lines at a time, and reads an image of fewer lines from wrong places.";
    BufferInBothLists = 29, Silent, "buffer-in-both-lists", "npu-rk3588 4.5 trap 29; kernel-and-uapi A.5", [],
        "the same buffer twice in a job's lists: job dropped",
        "The driver cannot lock a buffer twice and drops the job, which a stock driver reports to nobody.";
    UnmappedAddress = 30, Hang, "unmapped-address", "npu-rk3588 4.5 trap 30", [CNA_FEATURE_DATA_ADDR, CNA_DCOMP_ADDR0, DPU_DST_BASE_ADDR, RDMA_SRC_BASE_ADDR, RDMA_BS_BASE_ADDR, RDMA_EW_BASE_ADDR, PPU_DST_BASE_ADDR, PPU_RDMA_SRC_BASE_ADDR],
        "IOMMU fault",
        "The IOMMU stops an access to an address that the file has not mapped, and the block that made it waits for ever.";
    AddressUnaligned = 31, Hang, "address-unaligned", "npu-rk3588 3.2, 4.5 trap 31", [CNA_FEATURE_DATA_ADDR, CNA_DMA_CON1, CNA_DCOMP_ADDR0, DPU_DST_BASE_ADDR, RDMA_SRC_BASE_ADDR, RDMA_BS_BASE_ADDR, RDMA_EW_BASE_ADDR, PPU_DST_BASE_ADDR, PPU_RDMA_SRC_BASE_ADDR, PPU_RDMA_SRC_LINE_STRIDE, PPU_RDMA_SRC_SURF_STRIDE],
        "address or pitch not a multiple of 16 bytes (refused)",
        "Programs and data are read in atoms of 16 bytes, and an address or a line pitch between two of them is refused.";
    LookupOfZero = 33, Garbage, "lookup-of-zero", "npu-rk3588 4.5 traps 33 and 34; npu-ops 2.6", [DPU_LUT_ACCESS_DATA, DPU_OUT_CVT_OFFSET, DPU_OUT_CVT_SHIFT],
        "a look-up met the code zero, which decodes to a power of two",
        "The decoder moves the exponent field of an fp16, which makes a power of two of a code that is zero.";
    PoolingPrecision = 35, Garbage, "pooling-precision", "npu-rk3588 4.5 trap 35", [PPU_DATA_FORMAT, PPU_RDMA_DATA_FORMAT],
        "the PPU reads everything as fp16",
        "The PPU takes the bytes of every other precision for fp16 values.";
    PoolingOfOne = 36, Garbage, "pooling-of-one", "npu-rk3588 4.5 trap 36", [PPU_POOLING_KERNEL_CFG, PPU_RECIP_KERNEL_WIDTH, PPU_RECIP_KERNEL_HEIGHT],
        "average over an extent of 1: its reciprocal is infinite",
        "An average multiplies by 65536 over the kernel's extents, which fp16 cannot hold for an extent of 1.";
    UnknownWord = 100, Hang, "unknown-word", "npu-rk3588 1.2, Appendix C", [],
        "command word that no block decodes",
        "No block takes a command word with this target, and the controller waits for one that does.";
    PageMismatch = 101, Hang, "page-mismatch", "npu-rk3588 1.2, Appendix C", [],
        "command word's target does not own the register",
        "A command word names its block twice, in the target and in the register's page, and no block takes it when the two differ.";
    BarrierMissing = 102, Hang, "barrier-missing", "npu-rk3588 1.2", [],
        "no barrier word immediately before the enable word",
        "The barrier word must stand immediately before the enable word, and without it the blocks are not started.";
    UnknownMask = 103, Hang, "unknown-mask", "npu-rk3588 1.3", [],
        "enable mask that no program uses",
        "No known program starts this set of blocks, and a block that waits for one left out never ends.";
    PrecisionsDisagree = 110, Hang, "precisions-disagree", "npu-rk3588 2.1", [CNA_CONV_CON1, CORE_MISC_CFG, DPU_DATA_FORMAT],
        "precision fields of the blocks do not agree",
        "Each block is told the number format by itself, and programs in which they differ are refused, as what such blocks do together is known of a few pairs only.";
    SizesDisagree = 111, Hang, "sizes-disagree", "npu-rk3588 2.3 to 2.6, Appendix C", [CNA_DATA_SIZE0, CNA_DATA_SIZE1, CNA_DATA_SIZE2, CNA_DATA_SIZE3, CNA_WEIGHT_SIZE2, CNA_FC_DATA_SIZE0, CNA_FC_DATA_SIZE1, CORE_DATAOUT_SIZE_0, CORE_DATAOUT_SIZE_1, DPU_DATA_CUBE_WIDTH, DPU_DATA_CUBE_HEIGHT, DPU_DATA_CUBE_CHANNEL, DPU_BS_OW_CFG, DPU_WDMA_SIZE_0, DPU_WDMA_SIZE_1, RDMA_DATA_CUBE_WIDTH, RDMA_DATA_CUBE_HEIGHT, RDMA_DATA_CUBE_CHANNEL, PPU_DATA_CUBE_OUT_WIDTH, PPU_DATA_CUBE_OUT_HEIGHT, PPU_DATA_CUBE_OUT_CHANNEL, PPU_DATA_FORMAT, PPU_RDMA_CUBE_IN_WIDTH, PPU_RDMA_CUBE_IN_HEIGHT, PPU_RDMA_CUBE_IN_CHANNEL],
        "sizes of the blocks do not agree",
        "Each block counts its own data, so that one which expects more than the block before it delivers would wait for the rest.";
    WeightSizes = 112, Hang, "weight-sizes", "npu-rk3588 2.3, Appendix C", [CNA_WEIGHT_SIZE0, CNA_WEIGHT_SIZE1],
        "WEIGHT_SIZE registers do not follow from the kernels",
        "The weight reader fetches the bytes it is told, which must be those of the kernels that the CORE waits for.";
    BankSplit = 113, Hang, "bank-split", "npu-rk3588 2.2, 4.1", [CNA_CBUF_CON0],
        "DATA_BANK + WEIGHT_BANK is not 12, or too few banks for the features",
        "The 12 banks of the CBUF are divided between features and weights, and a split that leaves some out or does not hold the features is refused.";
    WeightsExceedBanks = 114, Hang, "weights-exceed-banks", "npu-rk3588 4.1", [CNA_CBUF_CON0, CNA_WEIGHT_SIZE0],
        "weights do not fit their banks (refused)",
        "All weights of a task must fit their banks, and what silicon does otherwise is not known, so that it is refused.";
    DataEntries = 115, Hang, "data-entries", "npu-rk3588 2.3", [CNA_CBUF_CON1],
        "DATA_ENTRIES is not the size of an image line",
        "DATA_ENTRIES tells how many CBUF entries an image line takes, and another number than the line's own is refused.";
    OutputFormat = 116, Hang, "output-format", "npu-rk3588 2.1", [DPU_OUT_CVT_SCALE],
        "output conversion does not fit the output precision",
        "FP32TOFP16_EN narrows the results, and a writer that is told another width is refused.";
    CompressedWeights = 117, Hang, "compressed-weights", "npu-rk3588 4.4", [CNA_DCOMP_CTRL, CNA_DCOMP_REGNUM, CNA_DCOMP_AMOUNT0, CNA_DCOMP_AMOUNT1, CNA_DCOMP_AMOUNT2, CNA_DCOMP_AMOUNT3, CNA_DCOMP_AMOUNT4, CNA_DCOMP_AMOUNT5, CNA_DCOMP_AMOUNT6, CNA_DCOMP_AMOUNT7, CNA_DCOMP_AMOUNT8, CNA_DCOMP_AMOUNT9, CNA_DCOMP_AMOUNT10, CNA_DCOMP_AMOUNT11, CNA_DCOMP_AMOUNT12, CNA_DCOMP_AMOUNT13, CNA_DCOMP_AMOUNT14, CNA_DCOMP_AMOUNT15],
        "weight decompression (refused)",
        "Nobody has driven the weight decompressor, so that everything but its pass-through is refused.";
    SurfacesTooMany = 118, Hang, "surfaces-too-many", "npu-rk3588 3.4", [DPU_BS_OW_CFG],
        "SIZE_E larger than the kernel group has surfaces (refused)",
        "What the writer does when told of more surfaces than a kernel group gives is not known, so that it is refused.";
    BothReuseBits = 119, Note, "both-reuse-bits", "npu-rk3588 4.3", [CNA_CBUF_CON0],
        "both reuse bits in one task",
        "At most one operand may be reused in a task, as nobody has seen what both bits do.";
    DeltaProgram = 120, Note, "delta-program", "npu-rk3588 1.2", [],
        "program leans on an earlier program of its job",
        "Registers keep their contents within a job, but a program that leans on this stores nothing when it comes first.";
    Int4AsTf32 = 121, Silent, "int4-as-tf32", "npu-rk3588 4.5 trap 13", [CNA_CONV_CON1, CORE_MISC_CFG, DPU_DATA_FORMAT],
        "int4 data with tf32 in CNA and CORE",
        "With tf32 in CNA and CORE but int4 in the DPU nothing is written.";
    ModesDisagree = 122, Hang, "modes-disagree", "npu-rk3588 B.2", [CNA_CONV_CON1, CORE_MISC_CFG, DPU_FEATURE_MODE_CFG, RDMA_FEATURE_MODE_CFG],
        "depthwise in some blocks only",
        "Each block is told by itself whether the convolution is depthwise, and programs in which they differ are refused.";
    TablesNotUploaded = 123, Note, "tables-not-uploaded", "npu-ops 2.2", [DPU_LUT_ACCESS_CFG, DPU_LUT_ACCESS_DATA],
        "look-up tables of an earlier program",
        "The look-up tables stay in the core until overwritten, but a program that does not bring its own depends on what ran before.";
    UnknownRegister = 124, Note, "unknown-register", "npu-rk3588 1.2, 2.3 to 2.6", [],
        "write to a register that nobody has described",
        "A write to an offset that no register list names is taken and has no known effect, which is no promise that it has none.";
    JobRejected = 200, Silent, "job-rejected", "kernel-and-uapi A.5", [],
        "malformed job",
        "The driver drops a job with no task, an empty program or an unknown buffer, which a stock driver reports to nobody.";
    ClosedInFlight = 201, Note, "closed-in-flight", "kernel-and-uapi B.6 U1", [],
        "file closed with jobs in flight: use after free (U1) in a stock driver",
        "Closing a file frees its queue, which a stock driver still uses when a job of that file ends.";
    JobTooLong = 202, Hang, "job-too-long", "kernel-and-uapi A.5, B.5", [],
        "modelled time of the job exceeds the driver's limit",
        "The driver gives a job half a second as a whole and resets the core that takes longer.";
    NotModelled = 300, Hang, "not-modelled", "simulator", [],
        "not modelled yet",
        "The program asks for something that the simulator does not compute, so that it refuses instead of guessing.";
    Injected = 301, Hang, "injected", "simulator", [],
        "injected fault",
        "A test asked for this fault.";
    Internal = 302, Hang, "internal", "simulator", [],
        "the simulator itself failed",
        "The thread of a core panicked, which is a defect of the simulator.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_are_unique_and_kebab_case() {
        let ids: BTreeSet<&str> = Rule::ALL.iter().map(|r| r.id()).collect();
        assert_eq!(ids.len(), Rule::ALL.len());
        for id in ids {
            let part = |p: &str| {
                !p.is_empty() && p.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
            };
            assert!(id.split('-').all(part), "{id}");
            assert_eq!(Rule::from_id(id).map(Rule::id), Some(id));
        }
        assert_eq!(Rule::from_id("operand"), None);
    }

    #[test]
    fn sentences_are_one_sentence() {
        for rule in Rule::ALL {
            let s = rule.sentence();
            let full_stop = s.strip_suffix('.').is_some_and(|s| !s.contains(". "));
            assert!(full_stop && s.starts_with(|c: char| c.is_ascii_uppercase()), "{s}");
            assert!(s.split(' ').count() >= 5 && s != rule.title(), "{s}");
        }
    }

    #[test]
    fn registers_are_those_of_the_spec() {
        for rule in Rule::ALL {
            let known = |o: &u16| regs::NAMES.iter().any(|(n, _)| n == o);
            assert!(rule.registers().iter().all(known), "{rule}");
        }
    }
}
