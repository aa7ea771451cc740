use std::fmt;

/// What a broken rule leads to (npu-rk3588 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The job does not complete; the driver times it out.
    Hang,
    /// The job completes with wrong data.
    Garbage,
    /// The job completes and stores nothing, or only a part.
    Silent,
    /// Works here, but must not be relied on.
    Note,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Hang => "hang",
            Class::Garbage => "garbage",
            Class::Silent => "nothing stored",
            Class::Note => "note",
        })
    }
}

macro_rules! rules {
    ($($name:ident = $number:literal, $class:ident, $section:literal, $title:literal;)*) => {
        /// Every rule that the simulator checks. Numbers below 100 are those of the trap list in
        /// npu-rk3588 4.5, from 100 on geometry and decoding, from 200 on the driver, from 300
        /// on the simulator itself.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Rule {
            $(#[doc = concat!($title, " (", $section, ").")] $name,)*
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

            /// Where it is stated.
            pub const fn section(self) -> &'static str {
                match self { $(Rule::$name => $section,)* }
            }

            /// What is wrong, in words.
            pub const fn title(self) -> &'static str {
                match self { $(Rule::$name => $title,)* }
            }
        }
    };
}

rules! {
    MrdmaWithoutFeed = 1, Hang, "npu-rk3588 4.5 trap 1", "the operand reader waits for a feed that never comes";
    EnableWithoutRdma = 2, Hang, "npu-rk3588 4.5 trap 2", "enable mask without DPU-RDMA";
    OperandHalfArmed = 3, Hang, "npu-rk3588 4.5 trap 3", "element-wise operand armed on one side only";
    CoreWedged = 4, Hang, "npu-rk3588 4.5 trap 4", "core wedged by an earlier wrong operand configuration";
    EnableNotFetched = 5, Hang, "npu-rk3588 4.5 trap 5", "the fetched words contain no enable word";
    ChainWithoutLink = 6, Hang, "npu-rk3588 4.5 trap 6", "chained job without a link to the next program";
    ChainedIntegers = 7, Garbage, "npu-rk3588 4.5 trap 7", "integers in a chain: right in the first program only";
    ChainNotBatched = 8, Hang, "npu-rk3588 4.5 trap 8", "chained program run task by task";
    RegistersNotWritten = 9, Silent, "npu-rk3588 4.5 trap 9", "program relies on registers it did not write";
    TaskDmaBase = 10, Hang, "npu-rk3588 4.5 trap 10", "PC TASK_DMA_BASE_ADDR is not zero";
    DpuPrecision7 = 11, Silent, "npu-rk3588 4.5 trap 11", "the DPU does not know precision 7";
    Tf32AsFp32 = 12, Garbage, "npu-rk3588 4.5 trap 12", "tf32 data with fp32 in the CORE";
    Int4AsFloat = 13, Garbage, "npu-rk3588 4.5 trap 13", "int4 data with bf16 in CNA and CORE";
    SurfacesTooFew = 14, Silent, "npu-rk3588 4.5 trap 14", "SIZE_E too small: part of each kernel group is not stored";
    RowsNotMultipleOf4 = 15, Garbage, "npu-rk3588 4.5 trap 15", "M below 4 or not a multiple of 4";
    ChannelsNotAligned = 16, Hang, "npu-rk3588 4.5 trap 16", "K or N is not a multiple of the weight block (refused)";
    SlackBankMissing = 17, Garbage, "npu-rk3588 4.2, 4.5 trap 17", "int8 features fill their last bank nearly, without a bank of slack";
    FcDataBank = 18, Garbage, "npu-rk3588 4.5 trap 18", "FC_DATA_BANK is not zero";
    TooLargeForCbuf = 19, Hang, "npu-rk3588 4.5 trap 19", "features need more than 11 banks, or a kernel more than one (refused)";
    StaleReuse = 20, Garbage, "npu-rk3588 4.5 trap 20", "reuse bit with another tile in the CBUF";
    OperandInPlace = 21, Garbage, "npu-rk3588 4.5 trap 21", "operand and output overlap";
    OperandMisstrided = 22, Garbage, "npu-rk3588 4.5 trap 22", "operand surfaces are not where the notch points";
    OperandNotchZero = 23, Garbage, "npu-rk3588 4.5 trap 23", "zero notch: the operand pointer never advances";
    IntegerOperand = 24, Garbage, "npu-rk3588 4.5 trap 24", "the element-wise stage takes integers for floats";
    OperandInFlight = 25, Garbage, "npu-rk3588 4.5 trap 25", "element-wise operand without a convolution reads as zero";
    Int16Output = 26, Silent, "npu-rk3588 4.5 trap 26", "int16 product: only 16 channels of the first row are stored";
    FullDimension = 27, Garbage, "npu-rk3588 4.5 trap 27", "cube dimension at its maximum";
    ImageTooLow = 28, Garbage, "npu-rk3588 4.5 trap 28", "convolution of an image less than 4 high";
    BufferInBothLists = 29, Silent, "npu-rk3588 4.5 trap 29; kernel-and-uapi A.5", "the same buffer twice in a job's lists: job dropped";
    UnmappedAddress = 30, Hang, "npu-rk3588 4.5 trap 30", "IOMMU fault";
    AddressUnaligned = 31, Hang, "npu-rk3588 4.5 trap 31", "address not on a 16-byte boundary (refused)";
    LookupOfZero = 33, Garbage, "npu-rk3588 4.5 traps 33 and 34; npu-ops 2.6", "a look-up met the code zero, which decodes to a power of two";
    PoolingPrecision = 35, Garbage, "npu-rk3588 4.5 trap 35", "the PPU reads everything as fp16";
    PoolingOfOne = 36, Garbage, "npu-rk3588 4.5 trap 36", "average over an extent of 1: its reciprocal is infinite";
    UnknownWord = 100, Hang, "npu-rk3588 1.2", "command word that no block decodes";
    PageMismatch = 101, Hang, "npu-rk3588 1.2", "command word's target does not own the register";
    BarrierMissing = 102, Hang, "npu-rk3588 1.2", "no barrier word immediately before the enable word";
    UnknownMask = 103, Hang, "npu-rk3588 1.3", "enable mask that no program uses";
    PrecisionsDisagree = 110, Hang, "npu-rk3588 2.1", "precision fields of the blocks do not agree";
    SizesDisagree = 111, Hang, "npu-rk3588 Appendix C", "sizes of the blocks do not agree";
    WeightSizes = 112, Hang, "npu-rk3588 2.3", "WEIGHT_SIZE registers do not follow from the kernels";
    BankSplit = 113, Hang, "npu-rk3588 2.2", "DATA_BANK + WEIGHT_BANK is not 12, or too few banks for the features";
    WeightsExceedBanks = 114, Hang, "npu-rk3588 4.1", "weights do not fit their banks (refused)";
    DataEntries = 115, Hang, "npu-rk3588 2.3", "DATA_ENTRIES is not the size of an image line";
    OutputFormat = 116, Hang, "npu-rk3588 2.1", "output conversion does not fit the output precision";
    CompressedWeights = 117, Hang, "npu-rk3588 4.4", "weight decompression (refused)";
    SurfacesTooMany = 118, Hang, "npu-rk3588 3.4", "SIZE_E larger than the kernel group has surfaces (refused)";
    BothReuseBits = 119, Note, "npu-rk3588 4.3", "both reuse bits in one task";
    DeltaProgram = 120, Note, "npu-rk3588 1.2", "program leans on an earlier program of its job";
    Int4AsTf32 = 121, Silent, "npu-rk3588 4.5 trap 13", "int4 data with tf32 in CNA and CORE";
    ModesDisagree = 122, Hang, "npu-rk3588 B.2", "depthwise in some blocks only";
    TablesNotUploaded = 123, Note, "npu-ops 2.2", "look-up tables of an earlier program";
    JobRejected = 200, Silent, "kernel-and-uapi A.5", "malformed job";
    ClosedInFlight = 201, Note, "kernel-and-uapi B.6 U1", "file closed with jobs in flight: use after free (U1) in a stock driver";
    JobTooLong = 202, Hang, "kernel-and-uapi A.5", "modelled time of the job exceeds the driver's limit";
    NotModelled = 300, Hang, "simulator", "not modelled yet";
    Injected = 301, Hang, "simulator", "injected fault";
    Internal = 302, Hang, "simulator", "the simulator itself failed";
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}: {}", self.number(), self.title())
    }
}
