//! Every rule, broken alone: the smallest change to a good program (one register wherever the rule
//! is about registers) breaks exactly this rule, and what follows is what its class says.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use rocket_runtime::device::JobRef;
use rocket_sim::listing::{self, NamedProgram, Place};
use rocket_sim::{Config, Fault, Rule, SimBoard};
use std::time::Duration;

const PLAIN: Shape =
    Shape { m: 16, k: 64, n: 32, wide: false, ew: None, data_reuse: false, weight_reuse: false };
const ADDING: Shape = Shape { ew: Some(EW_ADD), ..PLAIN };
const WIDE: Shape = Shape { wide: true, ..PLAIN };
/// As large as PLAIN, for kernel groups of 64.
const NIBBLES: Shape = Shape { n: 64, ..PLAIN };

/// A test of each rule, and the table of all.
macro_rules! table {
    ($($test:ident: $rule:ident, $change:expr => $run:expr;)*) => {
        $(#[test]
        fn $test() {
            let run: fn() -> Seen = $run;
            run().assert(Rule::$rule, $change);
        })*

        const TABLE: &[(Rule, Change, fn() -> Seen)] = &[$((Rule::$rule, $change, $run)),*];
    };
}

use Change::{Outside, Program, Register, Registers, Word};

table! {
    mrdma_without_feed: MrdmaWithoutFeed, Register(0x5044) => || one(PLAIN, None, 0x5044, 0x7808);
    enable_without_rdma: EnableWithoutRdma, Word("the enable word") =>
        || plain(|w| w[125] = 0x0081_0000_000d_0008);
    operand_half_armed: OperandHalfArmed, Register(0x5034) =>
        || one(PLAIN, None, 0x5034, 0x4000_0008);
    core_wedged: CoreWedged, Outside("the job before wedged the core") => wedged;
    enable_not_fetched: EnableNotFetched, Outside("the task's count") => short_count;
    chain_without_link: ChainWithoutLink, Word("the link to the second program") => unlinked;
    chained_integers: ChainedIntegers, Outside("tasks that work one by one, in one kick") =>
        integers_in_one_kick;
    chain_not_batched: ChainNotBatched, Outside("the job's flag") => chain_one_by_one;
    registers_not_written: RegistersNotWritten, Word("a write left out") => || plain(|w| w[10] = 0);
    task_dma_base: TaskDmaBase, Word("the filler becomes a write of the PC") =>
        || plain(|w| w[122] = 0x0101_0000_0001_0034);
    dpu_precision_7: DpuPrecision7, Register(0x4010) => || one(PLAIN, None, 0x4010, 0x4800_0007);
    tf32_as_fp32: Tf32AsFp32, Register(0x3010) => || one(WIDE, Some(TF32), 0x3010, 0x501);
    int4_as_float: Int4AsFloat, Registers(&[0x100c, 0x3010], "the CNA's and the CORE's; one alone \
        is another rule") => || int4(3);
    surfaces_too_few: SurfacesTooFew, Register(0x4050) => || one(PLAIN, None, 0x4050, 2);
    rows_not_multiple_of_4: RowsNotMultipleOf4, Register(0x1080) => odd_rows;
    channels_not_aligned: ChannelsNotAligned, Register(0x1038) =>
        || one(PLAIN, None, 0x1038, 1 << 24 | 1 << 16 | 24);
    slack_bank_missing: SlackBankMissing, Register(0x1040) =>
        || one(Shape { m: 144, k: 224, ..WIDE }, Some(INT8_F32), 0x1040, 11 << 4 | 1);
    fc_data_bank: FcDataBank, Register(0x1040) => || one(PLAIN, None, 0x1040, 0x1b1);
    too_large_for_cbuf: TooLargeForCbuf, Program("every size that knows M") => too_many_rows;
    stale_reuse: StaleReuse, Register(0x1040) => || one(PLAIN, None, 0x1040, 0x10b1);
    operand_in_place: OperandInPlace, Register(SRC) =>
        || changed(|| product(ADDING, None), None, |s, w| set(w, SRC, s.output.iova()));
    operand_misstrided: OperandMisstrided, Register(0x504c) => || one(ADDING, None, 0x504c, 512);
    operand_notch_zero: OperandNotchZero, Register(0x504c) => || one(ADDING, None, 0x504c, 0);
    integer_operand: IntegerOperand, Registers(&[0x4070, 0x5034, 0x5044], "no integer program has \
        an operand, and it takes these to arm one") => integers_in_the_adder;
    operand_in_flight: OperandInFlight, Registers(&[0x4070, 0x5034], "one alone is half armed") =>
        operand_in_flight_run;
    int16_output: Int16Output, Program("the format itself is the trap") => int16;
    full_dimension: FullDimension, Program("every size that knows the width") => full_width;
    image_too_low: ImageTooLow, Program("every size that knows the image") => low_image;
    buffer_in_both_lists: BufferInBothLists, Outside("the job's lists") => twice_in_the_lists;
    unmapped_address: UnmappedAddress, Register(FEATURE) =>
        || one(PLAIN, None, FEATURE, 0x00d0_0000);
    address_unaligned: AddressUnaligned, Register(FEATURE) =>
        || changed(|| product(PLAIN, None), None, |s, w| set(w, FEATURE, s.input.iova() + 8));
    lookup_of_zero: LookupOfZero, Register(0x4104) => zero_entry;
    pooling_precision: PoolingPrecision, Register(0x7030) => pooled_bytes;
    pooling_of_one: PoolingOfOne, Register(0x6034) => average_of_one;
    unknown_word: UnknownWord, Word("a target without its lowest bit") =>
        || plain(|w| w[60] = 0x1000_0000_0000_4030);
    page_mismatch: PageMismatch, Word("another block's target") =>
        || plain(|w| w[60] = 0x0201_0000_0000_4030);
    barrier_missing: BarrierMissing, Word("the barrier word") => || plain(|w| w[124] = 0);
    unknown_mask: UnknownMask, Word("the enable word") =>
        || plain(|w| w[125] = 0x0081_0000_001c_0008);
    precisions_disagree: PrecisionsDisagree, Register(0x3010) => || one(PLAIN, None, 0x3010, 0x301);
    sizes_disagree: SizesDisagree, Register(0x1028) => || one(PLAIN, None, 0x1028, 2);
    weight_sizes: WeightSizes, Register(0x1034) => || one(PLAIN, None, 0x1034, 64);
    bank_split: BankSplit, Register(0x1040) => || one(PLAIN, None, 0x1040, 0xa1);
    weights_exceed_banks: WeightsExceedBanks, Register(0x1040) =>
        || one(Shape { k: 512, n: 64, ..PLAIN }, None, 0x1040, 1 << 4 | 11);
    data_entries: DataEntries, Register(0x1044) => || one(PLAIN, None, 0x1044, 3);
    output_format: OutputFormat, Register(0x4084) => || one(PLAIN, None, 0x4084, 1);
    compressed_weights: CompressedWeights, Register(0x1100) => || one(PLAIN, None, 0x1100, 1);
    surfaces_too_many: SurfacesTooMany, Register(0x4050) => || one(PLAIN, None, 0x4050, 0x36e);
    both_reuse_bits: BothReuseBits, Register(0x1040) =>
        || second(Shape { data_reuse: true, ..PLAIN }, true, |w| set(w, 0x1040, 0x30b1));
    delta_program: DeltaProgram, Word("a write left out in the job's second program") =>
        || second(PLAIN, false, |w| w[10] = 0);
    int4_as_tf32: Int4AsTf32, Registers(&[0x100c, 0x3010], "the CNA's and the CORE's; one alone \
        is another rule") => || int4(7);
    modes_disagree: ModesDisagree, Register(0x3010) => || one(PLAIN, None, 0x3010, 0x203);
    tables_not_uploaded: TablesNotUploaded, Word("the last entry left out in the job's second \
        program") => half_a_table;
    unknown_register: UnknownRegister, Word("the filler becomes a write to a gap of the DPU") =>
        || plain(|w| w[122] = word(0x4f00, 1));
    job_rejected: JobRejected, Outside("a handle of nothing in the job's lists") => unknown_handle;
    closed_in_flight: ClosedInFlight, Outside("the file is closed before its job has run") =>
        closed_early;
    job_too_long: JobTooLong, Outside("the driver's limit") => out_of_time;
    not_modelled: NotModelled, Register(0x4088) => || one(PLAIN, None, 0x4088, 1);
    injected: Injected, Outside("the fault") => injected_hang;
}

#[test]
fn the_table_covers_every_rule() {
    for rule in Rule::ALL {
        let cases = TABLE.iter().filter(|(r, ..)| r == rule).count();
        // Internal is a panic of a core's thread, and nothing that is known makes one panic.
        assert_eq!(cases, usize::from(*rule != Rule::Internal), "{rule}");
    }
}

#[test]
fn explanations_name_the_rule() {
    let s = product(PLAIN, None).0;
    s.run_with(|w| set(w, 0x5034, 0x4000_0008));
    let text = s.rig.last().unwrap().to_string();
    for part in ["hang: operand-half-armed: element-wise operand", "trap 3", "ERDMA on"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(Rule::OperandHalfArmed.to_string().contains("(operand-half-armed)"));
}

#[test]
fn registers_are_what_most_rules_take() {
    // A rule that names registers is broken by one of them alone, or the table says why not.
    for (rule, change, _) in TABLE {
        let why = match change {
            Register(_) => continue,
            Registers(_, why) | Word(why) | Program(why) | Outside(why) => why,
        };
        assert!(why.split(' ').count() > 1, "{rule}: {why}");
    }
    let single = TABLE.iter().filter(|(_, c, _)| matches!(c, Register(_))).count();
    assert!(single >= 30, "{single}");
}

#[test]
fn a_listing_finds_what_a_run_does() {
    let mut listed = 0;
    for (rule, change, run) in TABLE {
        match (rule, change) {
            (_, Outside(_)) => continue,
            // What lies in memory, and what an earlier program of the job left.
            (Rule::UnmappedAddress | Rule::LookupOfZero, _) => continue,
            (Rule::DeltaProgram | Rule::BothReuseBits | Rule::TablesNotUploaded, _) => continue,
            // Two programs in one buffer.
            (Rule::ChainWithoutLink, _) => continue,
            _ => listed += 1,
        }
        let [good, bad] = run().words.map(|words| {
            let name = rule.id().to_owned();
            let listing = listing::list(&NamedProgram { name, words, place: Place::First });
            listing.findings.iter().map(|f| f.rule).collect::<Vec<_>>()
        });
        assert_eq!((good, bad), (vec![], vec![*rule]));
    }
    assert!(listed >= 40, "{listed}");
}

fn plain(change: impl FnOnce(&mut Vec<u64>)) -> Seen {
    changed(|| product(PLAIN, None), None, |_, w| change(w))
}

fn int4(code: u32) -> Seen {
    changed(
        || product(NIBBLES, Some(INT4)),
        Some(INT4),
        |_, w| {
            set(w, 0x100c, code << 7 | code << 4);
            set(w, 0x3010, code << 8);
        },
    )
}

fn wedged() -> Seen {
    let rig = Rig::new(Config { sticky_wedge: true, cores: 1, ..quick() });
    let (s, t) = (Setup::new(&rig, PLAIN), Setup::new(&rig, PLAIN));
    t.run();
    Seen::of(&t, None).assert_good();
    s.run_with(|w| set(w, 0x5034, 0x4000_0008));
    let before = rig.board.explanations().len();
    let t = Setup::new(&rig, PLAIN);
    t.run();
    let mut seen = Seen::of(&t, None);
    // What the job before broke is another case.
    seen.rules.drain(..before);
    Seen { timed_out: seen.timed_out - 1, ..seen }
}

fn short_count() -> Seen {
    let s = product(PLAIN, None).0;
    s.run_words(&s.words, 124);
    Seen::of(&s, None)
}

fn unlinked() -> Seen {
    let run = |linked| Two::new(patched(), [PLAIN; 2], None).run(linked, true);
    let (good, bad) = (run(true), run(false));
    good.assert_good();
    let ([good, _], [words, _]) = (good.words, bad.words);
    Seen { words: [good, words], ..bad }
}

fn integers_in_one_kick() -> Seen {
    let two = || Two::new(patched(), [WIDE; 2], Some(INT8_F32));
    two().run(false, false).assert_good();
    two().run(true, true)
}

fn chain_one_by_one() -> Seen {
    Two::new(patched(), [PLAIN; 2], None).run(true, true).assert_good();
    Two::new(patched(), [PLAIN; 2], None).run(true, false)
}

fn odd_rows() -> Seen {
    let make = || {
        let s = Setup::new(&Rig::new(quick()), Shape { m: 15, ..PLAIN });
        let words = as_image(&s, 1, 15);
        (s, words)
    };
    // The matmul's formula, which truncates, where the convolution's stood.
    changed(make, None, |_, w| set(w, 0x1080, 4 * (15 / 4 - 1)))
}

fn too_many_rows() -> Seen {
    let of = |m| product(Shape { m, k: 256, n: 16, ..PLAIN }, None);
    replaced(of(704), of(708), [None; 2])
}

fn integers_in_the_adder() -> Seen {
    let kind = Some(INT8_F32);
    changed(
        || product(WIDE, kind),
        kind,
        |_, w| {
            set(w, 0x4070, 0x10c2_02c0);
            set(w, 0x5034, 0x4000_000c);
            set(w, 0x5044, 0x27d80);
        },
    )
}

fn operand_in_flight_run() -> Seen {
    let x = ramp(64);
    // With the operand that memory holds, whatever it is, multiplication is no constant zero.
    pass_changed(
        [&x, &x, &x],
        |i, o| flying(8, i, o),
        |w| {
            set(w, 0x4070, EW_MUL);
            set(w, 0x5034, 0x4000_0008);
        },
    )
}

fn int16() -> Seen {
    replaced(product(WIDE, None), product(WIDE, Some(INT16)), [None, Some(INT16)])
}

fn full_width() -> Seen {
    let (x, y) = (ramp(8 * 8190), ramp(8 * 8191));
    let good = pass_seen(&x, &x, |i, o| flying(8190, i, o));
    good.assert_good();
    let bad = pass_seen(&y, &y, |i, o| flying(8191, i, o));
    let [good, _] = good.words;
    let [words, _] = bad.words;
    Seen { words: [good, words], ..bad }
}

#[test]
fn a_pooling_cube_has_a_full_dimension_as_well() {
    let line = |width: u32| {
        move |i, o| {
            let mut words = pooling(1, [1, 1], i, o);
            for (reg, value) in [
                (0x600c, width - 1),
                (0x6010, 0),
                (0x6018, width - 1),
                (0x601c, 0),
                (0x607c, 16 * width),
                (0x6084, (16 * width) | 2),
                (0x700c, width - 1),
                (0x7010, 0),
                (0x7024, 16 * width),
                (0x7028, 16 * width),
            ] {
                set(&mut words, reg, value);
            }
            words
        }
    };
    let (x, y) = (ramp(8 * 8190), ramp(8 * 8191));
    pass_seen(&x, &x, line(8190)).assert_good();
    let seen = pass_seen(&y, &y, line(8191));
    assert_eq!(seen.rules, [Rule::FullDimension]);
    let differ = seen.got.chunks(2).zip(seen.want.chunks(2)).filter(|(a, b)| a != b).count();
    assert_eq!(differ, 54);
    assert_eq!(seen.got[..16], seen.want[..16]);
}

#[test]
fn few_rows_are_misstrided_whatever_the_notch_says() {
    let few = Shape { m: 8, ..ADDING };
    let (s, mut words) = product(few, None);
    [0x5040, 0x504c, 0x506c].into_iter().for_each(|reg| set(&mut words, reg, 16 * 8));
    s.run_words(&words, 126);
    let seen = Seen::of(&s, None);
    assert_eq!(seen.rules, [Rule::OperandMisstrided]);
    // The first kernel group is right, the second is not.
    let half = seen.got.len() / 2;
    assert_eq!(seen.got[..half], seen.want[..half]);
    assert_ne!(seen.got[half..], seen.want[half..]);
}

#[test]
fn a_line_pitch_between_atoms_is_refused() {
    for stride in [1, 2, 3, 5, 7] {
        one(PLAIN, None, 0x107c, stride).assert(Rule::AddressUnaligned, Register(0x107c));
    }
}

fn low_image() -> Seen {
    let of = |w, h| {
        let s = Setup::new(&Rig::new(quick()), PLAIN);
        let words = as_image(&s, w, h);
        (s, words)
    };
    replaced(of(4, 4), of(8, 2), [None; 2])
}

fn twice_in_the_lists() -> Seen {
    let s = product(PLAIN, None).0;
    let program = s.rig.words(&s.words);
    let reads = [&s.input, &s.weights, &s.output, &program];
    s.rig.submit(&[task(&program, 126)], &reads, &[&s.output]).unwrap();
    s.rig.wait(&s.output);
    Seen::of(&s, None)
}

fn unknown_handle() -> Seen {
    let s = product(PLAIN, None).0;
    let program = s.rig.words(&s.words);
    let (tasks, writes) = ([task(&program, 126)], [s.output.handle()]);
    let reads = [s.input.handle(), s.weights.handle(), program.handle(), 1000];
    let job = JobRef { tasks: &tasks, reads: &reads, writes: &writes, flags: 0 };
    s.rig.node.submit(&[job]).unwrap();
    s.rig.wait(&s.output);
    Seen::of(&s, None)
}

fn zero_entry() -> Seen {
    let x: Vec<f32> = (0..64).map(|i| if i % 2 == 0 { 0.0 } else { -64.0 }).collect();
    // The right side would give nothing for the empty entry.
    let want: Vec<f32> = (0..64).map(|i| if i % 2 == 0 { 0.0 } else { 0.25 }).collect();
    let lo = 2 + 514 + 1;
    pass_changed(
        [&x, &[0.25; 64], &want],
        |i, o| looking_up(8, i, o),
        |w| {
            assert_eq!(w[lo], word(0x4104, 0x2000));
            w[lo] = word(0x4104, 0);
        },
    )
}

fn pooled_bytes() -> Seen {
    let x = ramp(8 * 64);
    let pooled = |o: usize, c: usize, better: fn(f32, f32) -> f32| {
        let at = |dy: usize, dx: usize| x[((o / 4 * 2 + dy) * 8 + o % 4 * 2 + dx) * 8 + c];
        better(better(at(0, 0), at(0, 1)), better(at(1, 0), at(1, 1)))
    };
    let good: Vec<f32> = (0..16 * 8).map(|i| pooled(i / 8, i % 8, f32::max)).collect();
    // The largest bytes, 16 of a pixel, would be right.
    let bytes: Vec<i8> =
        x.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).map(|b| b as i8).collect();
    let want: Vec<u8> = (0..16 * 16)
        .map(|i| {
            let (o, c) = (i / 16, i % 16);
            let at = |dy: usize, dx: usize| bytes[((o / 4 * 2 + dy) * 8 + o % 4 * 2 + dx) * 16 + c];
            at(0, 0).max(at(0, 1)).max(at(1, 0)).max(at(1, 1)) as u8
        })
        .collect();
    let seen =
        pass_changed([&x, &good, &good], |i, o| pooling(1, [2, 2], i, o), |w| set(w, 0x7030, 0));
    assert_eq!(seen.got, seen.want, "pooled as fp16");
    Seen { want, ..seen }
}

fn average_of_one() -> Seen {
    let x = ramp(8 * 64);
    let at = |o: usize, dy: usize, dx: usize, c: usize| {
        x[((o / 4 * 2 + dy) * 8 + o % 4 * 2 + dx) * 8 + c]
    };
    let mean = |o: usize, c: usize| {
        (at(o, 0, 0, c) + at(o, 0, 1, c) + at(o, 1, 0, c) + at(o, 1, 1, c)) / 4.0
    };
    let good: Vec<f32> = (0..16 * 8).map(|i| mean(i / 8, i % 8)).collect();
    let narrow = |o: usize, c: usize| (at(o, 0, 0, c) + at(o, 1, 0, c)) / 2.0;
    let want: Vec<f32> = (0..16 * 8).map(|i| narrow(i / 8, i % 8)).collect();
    // One pixel wide, in steps of two as before.
    pass_changed(
        [&x, &good, &want],
        |i, o| pooling(0, [2, 2], i, o),
        |w| set(w, 0x6034, 1 << 8 | 1 << 16 | 1 << 20),
    )
}

/// The second of two tasks of a job, on the first one's operands or on its own.
fn second(shape: Shape, shared: bool, change: fn(&mut Vec<u64>)) -> Seen {
    let two = || {
        let mut two = Two::new(quick(), [PLAIN, shape], None);
        if shared {
            let [_, words] = &mut two.words;
            set(words, FEATURE, two.first.input.iova());
            set(words, WEIGHTS, two.first.weights.iova());
        }
        two
    };
    let seen = two().run(false, false);
    seen.assert_good();
    let [good, _] = seen.words;
    let mut two = two();
    change(&mut two.words[1]);
    let bad = two.run(false, false);
    let [words, _] = bad.words;
    // The two boards are alike to the address.
    Seen { words: [good, words], ..bad }
}

fn half_a_table() -> Seen {
    let rig = Rig::new(quick());
    let x = [0.0f32; 64];
    let input = rig.with(&[0; 128]);
    let want: Vec<u8> = bytemuck::cast_slice(&[half::f16::from_f32(0.25); 64]).to_vec();
    let output = rig.with(&vec![SENTINEL; want.len()]);
    let good = looking_up(8, input.iova(), output.iova());
    pass_seen(&x, &[0.25; 64], |i, o| looking_up(8, i, o)).assert_good();
    let mut bad = good.clone();
    bad[2 + 2 * 514 - 1] = 0;
    let (p, q) = (rig.words(&good), rig.words(&bad));
    let tasks = [task(&p, good.len()), task(&q, bad.len())];
    rig.submit(&tasks, &[&input, &p, &q], &[&output]).unwrap();
    rig.wait(&output);
    Seen {
        rules: rig.board.explanations().iter().map(|e| e.rule).collect(),
        timed_out: rig.board.counters().jobs_timed_out,
        got: output.take(0, want.len()),
        want,
        words: [good, bad],
    }
}

fn closed_early() -> Seen {
    // The one core is kept busy by another file's job, so that this one is surely in flight.
    let board = SimBoard::new(Config { cores: 1, ..quick() });
    let busy = Setup::new(&Rig::on(&board), PLAIN);
    let rig = Rig::on(&board);
    let s = Setup::new(&rig, PLAIN);
    let (program, blocker) = (rig.words(&s.words), busy.rig.words(&busy.words));
    board.inject(Fault::HangJob(0));
    busy.rig.submit(&[task(&blocker, 126)], &[&busy.input], &[&busy.output]).unwrap();
    let reads = [&s.input, &s.weights, &program];
    rig.submit(&[task(&program, 126)], &reads, &[&s.output]).unwrap();
    let want = s.stored(None).len() as u64;
    drop((rig, s, program));
    busy.rig.wait(&busy.output);
    for _ in 0..1000 {
        if board.counters().tasks > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mine = board.explanations().into_iter().filter(|e| e.file == 1).map(|e| e.rule);
    Seen {
        rules: mine.collect(),
        timed_out: board.counters().jobs_timed_out - 1,
        // A closed file cannot be read; what the job stored is counted.
        got: board.counters().dma_write.to_le_bytes().to_vec(),
        want: want.to_le_bytes().to_vec(),
        words: Default::default(),
    }
}

fn out_of_time() -> Seen {
    Two::new(quick(), [PLAIN; 2], None).run(false, false).assert_good();
    let job_limit = Duration::from_nanos(1);
    Two::new(Config { job_limit, ..quick() }, [PLAIN; 2], None).run(false, false)
}

fn injected_hang() -> Seen {
    let s = product(PLAIN, None).0;
    s.rig.board.inject(Fault::HangJob(0));
    s.run();
    Seen::of(&s, None)
}
