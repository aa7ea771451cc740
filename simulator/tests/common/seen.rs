//! What a broken rule leads to: a good program is run first, then the same with one change.

use super::*;
use rocket_runtime::uapi::JOB_BATCHED;
use rocket_sim::DriverProfile;

/// How little was changed to break a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The value of this one register.
    Register(u16),
    /// The values of these registers, and why fewer do not break the rule alone.
    Registers(&'static [u16], &'static str),
    /// One word that is not a write of a register's value.
    Word(&'static str),
    /// The whole program, and why it takes that.
    Program(&'static str),
    /// Nothing in any program: the job, the file or the board.
    Outside(&'static str),
}

/// What became of the changed run.
#[derive(Debug)]
pub struct Seen {
    pub rules: Vec<Rule>,
    pub timed_out: u64,
    /// Output bytes found, and those of a right result.
    pub got: Vec<u8>,
    pub want: Vec<u8>,
    /// The good words and the changed ones.
    pub words: [Vec<u64>; 2],
}

impl Seen {
    /// What happened on the board of `s`.
    pub fn of(s: &Setup, kind: Option<Kind>) -> Seen {
        let want = s.stored(kind);
        Seen {
            rules: s.rig.board.explanations().iter().map(|e| e.rule).collect(),
            timed_out: s.rig.board.counters().jobs_timed_out,
            got: s.output.take(0, want.len()),
            want,
            words: Default::default(),
        }
    }

    /// Nothing was wrong.
    pub fn assert_good(&self) {
        assert_eq!(self.rules, [], "the program to change is good");
        assert!(self.timed_out == 0 && self.got == self.want, "the program to change is right");
    }

    /// Exactly this rule was broken, by this change, with the consequence of its class.
    pub fn assert(&self, rule: Rule, change: Change) {
        assert_eq!(self.rules, [rule]);
        match rule.class() {
            Class::Hang => {
                assert_eq!(self.timed_out, 1);
                assert!(self.got.iter().all(|b| *b == SENTINEL), "nothing is stored");
            }
            Class::Garbage => assert!(self.timed_out == 0 && self.got != self.want),
            Class::Silent => {
                let left = self.got.iter().zip(&self.want).any(|(g, w)| *g == SENTINEL && g != w);
                assert!(self.timed_out == 0 && left, "not all is stored");
            }
            Class::Note => assert!(self.timed_out == 0 && self.got == self.want),
        }
        self.assert_change(rule, change);
    }

    /// The words differ as the table says.
    fn assert_change(&self, rule: Rule, change: Change) {
        let [good, bad] = &self.words;
        let differ: Vec<(u64, u64)> =
            good.iter().zip(bad).filter(|(a, b)| a != b).map(|(a, b)| (*a, *b)).collect();
        let same_register =
            |(a, b): &(u64, u64)| a >> 48 == b >> 48 && *a as u16 == *b as u16 && a >> 48 & 1 == 1;
        let offsets: Vec<u16> = differ.iter().map(|(a, _)| *a as u16).collect();
        match change {
            Change::Register(offset) => {
                assert!(good.len() == bad.len() && differ.iter().all(same_register), "{differ:x?}");
                assert_eq!(offsets, [offset]);
                assert!(rule.registers().contains(&offset) || rule.registers().is_empty());
            }
            Change::Registers(registers, _) => {
                assert!(good.len() == bad.len() && differ.iter().all(same_register), "{differ:x?}");
                assert_eq!(offsets, registers);
                assert!(registers.iter().any(|r| rule.registers().contains(r)));
            }
            Change::Word(_) => assert!(good.len() == bad.len() && differ.len() == 1),
            Change::Program(_) => assert!(differ.len() > 1 || good.len() != bad.len()),
            Change::Outside(_) => assert_eq!(differ, []),
        }
    }
}

impl Setup {
    /// The right result as it is stored (npu-rk3588 3.4).
    pub fn stored(&self, kind: Option<Kind>) -> Vec<u8> {
        let code = kind.map_or(if self.shape.wide { 5 } else { 2 }, |k| k.out);
        let bytes = |v: f32| match code {
            1 => (v as i16).to_le_bytes().to_vec(),
            2 => f16::from_f32(v).to_le_bytes().to_vec(),
            4 => (v as i32).to_le_bytes().to_vec(),
            _ => v.to_le_bytes().to_vec(),
        };
        let (m, n) = (self.shape.m as usize, self.shape.n as usize);
        let size = bytes(0.0).len();
        let c2 = 16 / size;
        let mut out = vec![0; m * n * size];
        for (i, v) in self.expected().into_iter().enumerate() {
            let (r, c) = (i / n, i % n);
            out[size * (c / c2 * m * c2 + r * c2 + c % c2)..][..size].copy_from_slice(&bytes(v));
        }
        out
    }
}

/// A product set up on a new board, with its program.
pub fn product(shape: Shape, kind: Option<Kind>) -> (Setup, Vec<u64>) {
    let mut s = Setup::new(&Rig::new(quick()), shape);
    let words = words_in(&mut s, kind);
    (s, words)
}

fn words_in(s: &mut Setup, kind: Option<Kind>) -> Vec<u64> {
    match kind {
        Some(kind) => retyped(s, kind),
        None => s.words.clone(),
    }
}

/// Runs `make`'s program as it is, which must be good, then changed on a new board.
pub fn changed(
    make: impl Fn() -> (Setup, Vec<u64>),
    kind: Option<Kind>,
    change: impl FnOnce(&Setup, &mut Vec<u64>),
) -> Seen {
    let (s, good) = make();
    s.run_words(&good, good.len());
    Seen::of(&s, kind).assert_good();
    let (s, good) = make();
    let mut bad = good.clone();
    change(&s, &mut bad);
    s.run_words(&bad, good.len());
    Seen { words: [good, bad], ..Seen::of(&s, kind) }
}

/// Sets one register.
pub fn one(shape: Shape, kind: Option<Kind>, offset: u16, value: u32) -> Seen {
    changed(|| product(shape, kind), kind, |_, w| set(w, offset, value))
}

/// A good program, then another whole one.
pub fn replaced(good: (Setup, Vec<u64>), bad: (Setup, Vec<u64>), kinds: [Option<Kind>; 2]) -> Seen {
    let ((s, good), (t, bad)) = (good, bad);
    s.run_words(&good, good.len());
    Seen::of(&s, kinds[0]).assert_good();
    t.run_words(&bad, bad.len());
    Seen { words: [good, bad], ..Seen::of(&t, kinds[1]) }
}

/// Two programs in one job, on one core; what became of the second.
#[derive(Debug)]
pub struct Two {
    pub rig: Rig,
    pub first: Setup,
    pub second: Setup,
    pub words: [Vec<u64>; 2],
    kind: Option<Kind>,
}

impl Two {
    pub fn new(config: Config, shapes: [Shape; 2], kind: Option<Kind>) -> Two {
        let rig = Rig::new(config);
        let [mut first, mut second] = shapes.map(|s| Setup::new(&rig, s));
        let words = [words_in(&mut first, kind), words_in(&mut second, kind)];
        Two { rig, first, second, words, kind }
    }

    /// As two programs apart, or as one behind the other with a link, in one kick or in two.
    pub fn run(&self, linked: bool, batched: bool) -> Seen {
        let [mut a, b] = self.words.clone();
        let count = a.len();
        let program = self.rig.buf(8 * (count + b.len()));
        if linked {
            a[count - 4] = word(0x10, program.iova() + 8 * count as u32);
        }
        if linked || batched {
            a[count - 3] = word(0x14, (b.len() as u32).div_ceil(2) - 1);
        }
        a.extend(&b);
        program.put(0, bytemuck::cast_slice(&a));
        self.rig.node.fini_bo(program.handle()).unwrap();
        let at = |words: usize, n: usize| Task {
            regcmd: program.iova() + 8 * words as u32,
            regcmd_count: n as u32,
        };
        let tasks = [at(0, count), at(count, b.len())];
        let (s, t) = (&self.first, &self.second);
        let inputs = [&s.input, &s.weights, &s.operand, &t.input, &t.weights, &t.operand, &program];
        let (reads, writes) = (inputs.map(Buf::handle), [s.output.handle(), t.output.handle()]);
        let flags = if batched { JOB_BATCHED } else { 0 };
        let job = JobRef { tasks: &tasks, reads: &reads, writes: &writes, flags };
        self.rig.node.submit(&[job]).unwrap();
        self.rig.wait(&t.output);
        Seen { words: [a.clone(), a], ..Seen::of(t, self.kind) }
    }
}

/// Runs a program that reads fp16 values from one buffer and stores `want` to another.
pub fn pass_seen(values: &[f32], want: &[f32], words: impl Fn(u32, u32) -> Vec<u64>) -> Seen {
    let rig = Rig::new(quick());
    let halves = |v: &[f32]| -> Vec<f16> { v.iter().map(|v| f16::from_f32(*v)).collect() };
    let input = rig.with(bytemuck::cast_slice(&halves(values)));
    let want = bytemuck::cast_slice(&halves(want)).to_vec();
    let output = rig.with(&vec![SENTINEL; want.len()]);
    let words = words(input.iova(), output.iova());
    let program = rig.words(&words);
    rig.submit(&[task(&program, words.len())], &[&input, &program], &[&output]).unwrap();
    rig.wait(&output);
    Seen {
        rules: rig.board.explanations().iter().map(|e| e.rule).collect(),
        timed_out: rig.board.counters().jobs_timed_out,
        got: output.take(0, want.len()),
        want,
        words: [words.clone(), words],
    }
}

/// A good pass, then a changed one of which `want` would be right.
pub fn pass_changed(
    [values, good, want]: [&[f32]; 3],
    make: impl Fn(u32, u32) -> Vec<u64>,
    change: impl Fn(&mut Vec<u64>),
) -> Seen {
    let first = pass_seen(values, good, &make);
    first.assert_good();
    let bad = pass_seen(values, want, |i, o| {
        let mut words = make(i, o);
        change(&mut words);
        words
    });
    let [good, _] = first.words;
    let [bad_words, _] = bad.words;
    Seen { words: [good, bad_words], ..bad }
}

/// A board with the patched driver.
pub fn patched() -> Config {
    Config { profile: DriverProfile::V1_1, ..quick() }
}
