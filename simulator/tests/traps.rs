//! Every rule, broken by one change to a good program: the class and the name must be right.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use rocket_runtime::device::JobRef;
use rocket_runtime::uapi::{JOB_BATCHED, Task};
use rocket_sim::{Arithmetic, Config, DriverProfile, Fault, Rule};

const PLAIN: Shape =
    Shape { m: 16, k: 64, n: 32, wide: false, ew: None, data_reuse: false, weight_reuse: false };

fn plain() -> Setup {
    Setup::new(&Rig::new(quick()), PLAIN)
}

fn with_operand() -> Setup {
    Setup::new(&Rig::new(quick()), Shape { ew: Some(EW_ADD), ..PLAIN })
}

/// One register changed in the plain program.
fn broken(offset: u16, value: u32, rule: Rule) {
    let s = plain();
    s.run_with(|w| set(w, offset, value));
    s.assert_rule(rule);
}

/// One register changed in the accumulating program.
fn broken_operand(offset: u16, value: u32, rule: Rule) {
    let s = with_operand();
    s.run_with(|w| set(w, offset, value));
    s.assert_rule(rule);
}

#[test]
fn good_programs_break_nothing() {
    for ew in [None, Some(EW_ADD), Some(EW_MUL), Some(EW_MAX), Some(EW_MIN)] {
        for arithmetic in [Arithmetic::Exact, Arithmetic::Fast] {
            let rig = Rig::new(Config { arithmetic, ..quick() });
            let s = Setup::new(&rig, Shape { ew, ..PLAIN });
            s.run();
            assert_eq!(s.result(), s.expected(), "{ew:?}");
            assert_eq!(rig.board.explanations(), []);
        }
    }
}

#[test]
fn what_silicon_accepts_is_accepted() {
    let s = plain();
    s.run_with(|w| {
        set(w, 0x1010, 51 << 4); // FEATURE_GRAINS is a hint
        set(w, 0x5068, 0x0202_0202); // arbitration weights
        w.swap(3, 60); // order of registers
    });
    assert_eq!(s.result(), s.expected());
    assert_eq!(s.rig.board.explanations(), []);
}

#[test]
fn operand_feed() {
    broken(0x5044, 0x7808, Rule::MrdmaWithoutFeed);
    let s = plain();
    s.run_with(|w| w.retain(|w| w >> 48 != 0x2001));
    s.assert_rule(Rule::MrdmaWithoutFeed);
    broken(0x4070, EW_ADD, Rule::OperandHalfArmed);
    broken(0x5034, 0x4000_0008, Rule::OperandHalfArmed);
    broken_operand(0x5034, 1, Rule::OperandHalfArmed);
    broken_operand(0x4070, 0x383, Rule::OperandHalfArmed);
    broken_operand(0x5044, 0x17d50, Rule::OperandHalfArmed);
    broken_operand(0x5044, 0x17840, Rule::MrdmaWithoutFeed);
    broken_operand(0x4070, 0x10c2_02c0, Rule::NotModelled);
}

#[test]
fn enable_mask() {
    for (mask, rule) in [
        (0x0d, Rule::EnableWithoutRdma),
        (0x18, Rule::NotModelled),
        (0x60, Rule::RegistersNotWritten),
        (0x7f, Rule::UnknownMask),
    ] {
        let s = plain();
        s.run_with(|w| *w.last_mut().unwrap() = 0x0081_0000_0000_0008 | mask << 16);
        s.assert_rule(rule);
    }
}

#[test]
fn wedged_until_reload() {
    let rig = Rig::new(Config { sticky_wedge: true, ..quick() });
    let s = Setup::new(&rig, PLAIN);
    s.run_with(|w| set(w, 0x5034, 0x4000_0008));
    s.assert_rule(Rule::OperandHalfArmed);
    s.run();
    assert_eq!(rig.last().unwrap().rule, Rule::CoreWedged);
    assert!(s.untouched());
    rig.board.reload();
    s.run();
    assert_eq!(s.result(), s.expected());
}

#[test]
fn command_words() {
    let s = plain();
    s.run_words(&s.words, 100);
    s.assert_rule(Rule::EnableNotFetched);
    // An odd count still covers the last word: the length is in pairs.
    let s = plain();
    s.run_words(&s.words, 125);
    assert_eq!(s.result(), s.expected());
    for (i, word, rule) in [
        (60, 0x0401_0000_0000_2010, Rule::PageMismatch),
        (60, 0x0201_0000_0000_4030, Rule::PageMismatch),
        (60, 0x1000_0000_0000_4030, Rule::UnknownWord),
        (60, 0x0101_0000_0001_0034, Rule::TaskDmaBase),
        (124, 0, Rule::BarrierMissing),
    ] {
        let s = plain();
        s.run_with(|w| w[i] = word);
        s.assert_rule(rule);
    }
}

#[test]
fn unaligned_program() {
    let s = plain();
    let mut shifted = vec![0];
    shifted.extend(&s.words);
    let program = s.rig.words(&shifted);
    let t = Task { regcmd: program.iova() + 8, regcmd_count: 126 };
    s.rig.submit(&[t], &[&s.input, &s.weights, &program], &[&s.output]).unwrap();
    s.rig.wait(&s.output);
    s.assert_rule(Rule::AddressUnaligned);
}

#[test]
fn chains() {
    // Gapped slots with the batched flag: no link after the first.
    let rig = Rig::new(Config { profile: DriverProfile::V1_1, ..quick() });
    let (s, t) = (Setup::new(&rig, PLAIN), Setup::new(&rig, PLAIN));
    let mut words = s.words.clone();
    words.resize(128, 0);
    words.extend(&t.words);
    let program = rig.words(&words);
    let tasks = [0, 1024].map(|o| Task { regcmd: program.iova() + o, regcmd_count: 126 });
    let reads = [&s.input, &s.weights, &t.input, &t.weights, &program].map(Buf::handle);
    let writes = [s.output.handle(), t.output.handle()];
    let job = JobRef { tasks: &tasks, reads: &reads, writes: &writes, flags: JOB_BATCHED };
    rig.node.submit(&[job]).unwrap();
    rig.wait(&t.output);
    assert_eq!(rig.last().unwrap().rule, Rule::ChainWithoutLink);
    rig.wait(&s.output);
    assert_eq!(s.result(), s.expected());
    assert!(t.untouched());

    // The same on a stock driver runs task by task.
    let rig = Rig::new(quick());
    let s = Setup::new(&rig, PLAIN);
    s.run_with(|w| w[122] = word(0x10, 0x1000));
    assert_eq!(rig.last().unwrap().rule, Rule::ChainNotBatched);
    assert_eq!(rig.board.counters().jobs_timed_out, 1);
}

#[test]
fn registers_of_earlier_programs() {
    let s = plain();
    s.run();
    s.output.put(0, &vec![SENTINEL; s.shape.out_bytes() as usize]);
    s.rig.node.fini_bo(s.output.handle()).unwrap();
    // A later job may not lean on what that one wrote.
    s.run_with(|w| {
        w.remove(10);
    });
    s.assert_rule(Rule::RegistersNotWritten);
    assert!(s.untouched());

    // A later program of the same job may, but is noted.
    let s = plain();
    let mut delta = s.words.clone();
    delta.remove(10);
    let (full, delta) = (s.rig.words(&s.words), s.rig.words(&delta));
    let tasks = [task(&full, 126), task(&delta, 125)];
    s.rig.submit(&tasks, &[&s.input, &s.weights, &full, &delta], &[&s.output]).unwrap();
    s.rig.wait(&s.output);
    s.assert_rule(Rule::DeltaProgram);
}

#[test]
fn precisions() {
    broken(0x4010, 0x4800_0007, Rule::DpuPrecision7);
    broken(0x4010, 0xe800_0002, Rule::DpuPrecision7);
    broken(0x100c, 0, Rule::PrecisionsDisagree);
    broken(0x100c, 5 << 7 | 5 << 4, Rule::NotModelled);
    broken(0x100c, 2 << 7, Rule::PrecisionsDisagree);
    broken(0x3010, 0x501, Rule::PrecisionsDisagree);
    broken(0x3010, 0x200, Rule::PrecisionsDisagree);
    broken(0x4010, 0x0800_0002, Rule::NotModelled);
    broken(0x4084, 1, Rule::OutputFormat);
}

#[test]
fn surfaces() {
    broken(0x4050, 0x2, Rule::SurfacesTooFew);
    broken(0x4050, 0x36e, Rule::SurfacesTooMany);
    broken(0x4050, 0x12a, Rule::SizesDisagree);
    // Exactly the second half of every group is missing.
    let s = plain();
    s.run_with(|w| set(w, 0x4050, 0x2));
    let (got, want) = (s.result(), s.expected());
    for i in 0..got.len() {
        assert_eq!(got[i] == want[i], i % 16 < 8, "{i}");
    }
}

#[test]
fn rows_and_channels() {
    for m in [1, 2, 3, 5, 6] {
        let s = Setup::new(&Rig::new(quick()), Shape { m, ..PLAIN });
        s.run();
        s.assert_rule(Rule::RowsNotMultipleOf4);
    }
    for (k, n) in [(48, 32), (64, 24)] {
        let rig = Rig::new(quick());
        let s = Setup::new(&rig, PLAIN);
        let addr = [&s.input, &s.weights, &s.output, &s.operand].map(Buf::iova);
        let words = encode(&Shape { k, n, ..PLAIN }, addr);
        s.run_words(&words, 126);
        s.assert_rule(Rule::ChannelsNotAligned);
    }
}

#[test]
fn cbuf() {
    broken(0x1040, 0x1b1, Rule::FcDataBank);
    broken(0x1040, 0x0a1, Rule::BankSplit);
    broken(0x1044, 3, Rule::DataEntries);
    for (shape, rule) in [
        (Shape::new(256, 768, 16), Rule::TooLargeForCbuf),
        (Shape::new(256, 512, 160), Rule::WeightsExceedBanks),
        (Shape::new(4, 16416, 16), Rule::TooLargeForCbuf),
    ] {
        let s = Setup::new(&Rig::new(quick()), shape);
        s.run();
        s.assert_rule(rule);
    }
    let s = Setup::new(&Rig::new(quick()), Shape::new(256, 512, 16));
    s.run_with(|w| set(w, 0x1040, 0x57));
    s.assert_rule(Rule::BankSplit);
}

#[test]
fn fc_data_bank_spoils_its_share() {
    let s = plain();
    s.run_with(|w| set(w, 0x1040, 0x1b1));
    let (got, want) = (s.result(), s.expected());
    let wrong = got.iter().zip(&want).filter(|(g, w)| g != w).count() * 100 / got.len();
    assert!((60..=80).contains(&wrong), "{wrong} %");
}

#[test]
fn disagreeing_sizes() {
    for (reg, value) in [
        (0x1024, 64),
        (0x1028, 2),
        (0x102c, 17),
        (0x1084, 1 << 16 | 12),
        (0x1088, 32),
        (0x3014, 11 << 16),
        (0x3018, 15),
        (0x4030, 1),
        (0x4034, 11),
        (0x403c, 31),
        (0x4058, 15),
        (0x405c, 0),
        (0x500c, 1),
        (0x5010, 0),
        (0x5014, 0),
    ] {
        broken(reg, value, Rule::SizesDisagree);
    }
    broken(0x1030, 64 * 2 * 16, Rule::WeightSizes);
    broken(0x1034, 64, Rule::WeightSizes);
}

#[test]
fn stages_not_modelled() {
    for (reg, value) in [
        (0x100c, 0x121),
        (0x1014, 0x109),
        (0x4040, 0x42),
        (0x4060, 0x70),
        (0x400c, 0x1e5),
        (0x4088, 1),
        (0x501c, 2),
    ] {
        broken(reg, value, Rule::NotModelled);
    }
    broken(0x100c, 0x123, Rule::ModesDisagree);
    broken(0x3010, 0x203, Rule::ModesDisagree);
    broken(0x1014, 0x12, Rule::SizesDisagree);
    broken(0x1038, 3 << 24 | 3 << 16 | 32, Rule::WeightSizes);
    broken(0x1100, 1, Rule::CompressedWeights);
    broken(0x1144, 1, Rule::CompressedWeights);
}

#[test]
fn addresses() {
    for (reg, name) in [
        (FEATURE, "FEATURE_DATA_ADDR"),
        (WEIGHTS, "DCOMP_ADDR0"),
        (DST, "DST_BASE_ADDR"),
        (SRC, "SRC_BASE_ADDR"),
        (EW, "EW_BASE_ADDR"),
    ] {
        let s = with_operand();
        s.run_with(|w| set(w, reg, 0x00d0_0000));
        s.assert_rule(Rule::UnmappedAddress);
        let message = s.rig.last().unwrap().message;
        assert!(message.contains(name) && message.contains("0x00d00000"), "{message}");
        broken_operand(reg, 8, Rule::AddressUnaligned);
    }
    let s = plain();
    let t = Task { regcmd: 0x00d0_0000, regcmd_count: 126 };
    s.rig.submit(&[t], &[&s.input], &[&s.output]).unwrap();
    s.rig.wait(&s.output);
    s.assert_rule(Rule::UnmappedAddress);
}

#[test]
fn operand_cube() {
    broken_operand(0x504c, 0, Rule::OperandNotchZero);
    broken_operand(0x506c, 0, Rule::OperandNotchZero);
    broken_operand(0x504c, 512, Rule::OperandMisstrided);
    let s = with_operand();
    s.run_with(|w| {
        set(w, SRC, s.output.iova());
        set(w, EW, s.output.iova() + 16 * 16);
    });
    s.assert_rule(Rule::OperandInPlace);
    // The reference's floor of 12 rows, with two kernel groups and with one.
    let s = Setup::new(&Rig::new(quick()), Shape { m: 8, ew: Some(EW_ADD), ..PLAIN });
    s.run();
    s.assert_rule(Rule::OperandMisstrided);
    let s = Setup::new(&Rig::new(quick()), Shape { m: 8, n: 16, ew: Some(EW_ADD), ..PLAIN });
    s.run();
    assert_eq!(s.result(), s.expected());
}

#[test]
fn zero_notch_repeats_the_first_atom() {
    let s = with_operand();
    s.run_with(|w| [0x504c, 0x506c].into_iter().for_each(|r| set(w, r, 0)));
    let got = s.result();
    let want = s.expected();
    for i in 0..got.len() {
        let (m, n) = (i / 32, i % 32);
        assert_eq!(got[i], want[i] - s.add[i] + s.add[m * 32 + n % 8], "{m} {n}");
    }
}

#[test]
fn wrong_strides_read_and_write_by_the_registers() {
    // Half the plane pitch: reads overlapping planes, breaks no rule, is wrong.
    let s = plain();
    s.run_with(|w| set(w, 0x1080, 4));
    assert_ne!(s.result(), s.expected());
    assert_eq!(s.rig.board.explanations(), []);
    // Every surface stored onto the first: the rest keeps the sentinel.
    let s = plain();
    s.run_with(|w| [0x4024, 0x40c0].into_iter().for_each(|r| set(w, r, 0)));
    assert!(s.bytes()[16 * 16..].iter().all(|b| *b == SENTINEL));
}

/// Two tasks on one core, the second with a reuse bit.
fn reuse(second: Shape, other_input: bool) -> Setup {
    let rig = Rig::new(quick());
    let (s, t) = (Setup::new(&rig, PLAIN), Setup::new(&rig, second));
    let mut words = t.words.clone();
    if !other_input {
        set(&mut words, FEATURE, s.input.iova());
        set(&mut words, WEIGHTS, s.weights.iova());
    } else {
        t.input.put(0, &[0; 64]);
        rig.node.fini_bo(t.input.handle()).unwrap();
    }
    let (p, q) = (rig.words(&s.words), rig.words(&words));
    let tasks = [task(&p, 126), task(&q, 126)];
    let reads = [&s.input, &s.weights, &t.input, &t.weights, &p, &q];
    rig.submit(&tasks, &reads, &[&s.output, &t.output]).unwrap();
    rig.wait(&t.output);
    t
}

#[test]
fn reuse_bits() {
    for bit in [Shape { data_reuse: true, ..PLAIN }, Shape { weight_reuse: true, ..PLAIN }] {
        let t = reuse(bit, false);
        assert_eq!(t.rig.board.explanations(), []);
        assert_eq!(t.result(), t.expected());
        let c = t.rig.board.counters();
        let fetched = (c.dma_read_feature, c.dma_read_weight);
        let (f, w) = (u64::from(PLAIN.feature_bytes()), u64::from(PLAIN.weight_bytes()));
        assert_eq!(fetched, if bit.data_reuse { (f, 2 * w) } else { (2 * f, w) });
    }
    // Another tile: silently the old one.
    let t = reuse(Shape { data_reuse: true, ..PLAIN }, true);
    assert_eq!(t.rig.last().unwrap().rule, Rule::StaleReuse);
    // Another shape: what there is.
    let t = reuse(Shape { k: 128, data_reuse: true, ..PLAIN }, false);
    assert_eq!(t.rig.last().unwrap().rule, Rule::StaleReuse);
    assert_ne!(t.result(), t.expected());
    // The same tile beside another number of kernels, or rows.
    let t = reuse(Shape { n: 16, data_reuse: true, ..PLAIN }, false);
    assert_eq!(t.rig.last().unwrap().rule, Rule::StaleReuse);
    let t = reuse(Shape { m: 12, weight_reuse: true, ..PLAIN }, false);
    assert_eq!(t.rig.last().unwrap().rule, Rule::StaleReuse);
    // Another bank split moves the weights.
    let t = reuse(Shape { m: 512, weight_reuse: true, ..PLAIN }, false);
    t.assert_rule(Rule::StaleReuse);
    let t = reuse(Shape { data_reuse: true, weight_reuse: true, ..PLAIN }, false);
    t.assert_rule(Rule::BothReuseBits);
    // First task of a job.
    let s = Setup::new(&Rig::new(quick()), Shape { data_reuse: true, ..PLAIN });
    s.run();
    s.assert_rule(Rule::StaleReuse);
}

#[test]
fn jobs_that_take_too_long_by_the_model() {
    let job_limit = std::time::Duration::from_micros(120);
    let rig = Rig::new(Config { job_limit, ..quick() });
    let s = Setup::new(&rig, PLAIN);
    let t = Setup::new(&rig, PLAIN);
    s.run();
    assert_eq!(rig.board.explanations(), []);
    let (p, q) = (rig.words(&s.words), rig.words(&t.words));
    let tasks = [task(&p, 126), task(&p, 126), task(&p, 126), task(&q, 126)];
    let reads = [&s.input, &s.weights, &t.input, &t.weights, &p, &q];
    rig.submit(&tasks, &reads, &[&s.output, &t.output]).unwrap();
    rig.wait(&t.output);
    t.assert_rule(Rule::JobTooLong);
}

#[test]
fn numbers_and_names_are_unique() {
    for (i, a) in Rule::ALL.iter().enumerate() {
        for b in &Rule::ALL[i + 1..] {
            assert!(a.number() < b.number() && a.title() != b.title(), "{a:?} {b:?}");
        }
    }
}

#[test]
fn injected_hangs_say_so() {
    let s = plain();
    s.rig.board.inject(Fault::HangJob(0));
    s.run();
    s.assert_rule(Rule::Injected);
}
