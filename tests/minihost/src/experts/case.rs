//! Products with experts as models make them: stacks, and the batches that meet each.

use crate::ggml::{Host, Type};
use crate::values::Values;
use anyhow::Result;

/// Which experts the tokens go to; those of one token are never the same, but for [`Routing::Twice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    /// All alike.
    Balanced,
    /// Most of them to the first two.
    Skewed,
    /// None to the last.
    Unused,
    /// One row to the last.
    Single,
    /// One id is beyond the stack.
    Beyond,
    /// One id is negative.
    Negative,
    /// A token names an expert twice, which means nothing (ggml-abi 1): it must do no harm.
    Twice,
}

/// What is special about the activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// In -1..1.
    Ordinary,
    /// One row times 3000.
    LargeRow,
    /// A few columns times 8: what rotation is for.
    Outliers,
    /// An activation is not a number.
    NotANumber,
}

/// What should become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// It runs on the NPU.
    Npu,
    /// It runs there, and its result means nothing.
    Anything,
    /// The graph fails.
    Fails,
    /// The CPU computes it after all, for this reason.
    Redone(&'static str),
    /// It is not accepted, for this reason.
    Declined(&'static str),
}

/// The weights of all experts of one matrix.
#[derive(Debug, Clone)]
pub struct Stack {
    pub dtype: Type,
    pub k: usize,
    pub n: usize,
    pub experts: usize,
    /// It lies in a buffer of weights.
    pub kept: bool,
    pub batches: Vec<Batch>,
}

/// One op with a stack.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    pub tokens: usize,
    /// Experts of a token.
    pub used: usize,
    /// Each of them has its own row of activation, or all share one.
    pub own_rows: bool,
    pub routing: Routing,
    /// Elements between the ids of a token and the next one's.
    pub id_gap: usize,
    /// Elements between rows of activation.
    pub row_gap: usize,
    pub numbers: Numbers,
    pub expect: Expect,
}

impl Batch {
    pub fn new(tokens: usize, used: usize) -> Batch {
        Batch {
            tokens,
            used,
            own_rows: false,
            routing: Routing::Balanced,
            id_gap: 0,
            row_gap: 0,
            numbers: Numbers::Ordinary,
            expect: Expect::Npu,
        }
    }

    /// Rows of activation of a token.
    pub fn rows(&self) -> usize {
        if self.own_rows { self.used } else { 1 }
    }

    /// In words.
    pub fn describe(&self) -> String {
        let mut text = format!("{} tokens, {} used, {:?}", self.tokens, self.used, self.routing);
        if self.own_rows {
            text += ", own rows";
        }
        for (what, gap) in [("ids", self.id_gap), ("rows", self.row_gap)] {
            if gap > 0 {
                text += &format!(", gaps of {gap} between {what}");
            }
        }
        if self.numbers != Numbers::Ordinary {
            text += &format!(", {:?}", self.numbers);
        }
        text
    }

    /// The expert of each result row, token after token.
    pub fn ids(&self, experts: usize) -> Vec<i32> {
        let (used, wide) = (self.used, |x: usize| x as i32);
        let among = |count: usize, t: usize, j: usize| wide((t * used + j) % count);
        let mut ids: Vec<i32> = (0..self.tokens * used)
            .map(|i| {
                let (t, j) = (i / used, i % used);
                match self.routing {
                    // Every sixteenth token goes elsewhere.
                    Routing::Skewed if t % 16 == 7 => wide((2 + j + t / 16) % experts),
                    Routing::Skewed => wide(j),
                    Routing::Unused | Routing::Single => among(experts - 1, t, j),
                    _ => among(experts, t, j),
                }
            })
            .collect();
        let middle = self.tokens / 2 * used;
        match self.routing {
            Routing::Single => ids[middle] = wide(experts - 1),
            Routing::Beyond => ids[middle] = wide(experts),
            Routing::Negative => ids[middle] = -1,
            Routing::Twice => ids[middle + 1] = ids[middle],
            _ => {}
        }
        ids
    }

    /// Activations, row after row without gaps.
    pub fn activation(&self, k: usize, values: &mut Values) -> Vec<f32> {
        let mut a = values.take(k * self.rows() * self.tokens);
        match self.numbers {
            Numbers::Ordinary => {}
            Numbers::LargeRow => a[3 * k..4 * k].iter_mut().for_each(|x| *x *= 3000.0),
            Numbers::Outliers => {
                for row in a.chunks_exact_mut(k) {
                    row.iter_mut().step_by(k / 3).for_each(|x| *x *= 8.0);
                }
            }
            Numbers::NotANumber => a[5 * k + 2] = f32::NAN,
        }
        a
    }
}

impl Stack {
    fn new(dtype: Type, [k, n, experts]: [usize; 3], batches: &[Batch]) -> Stack {
        Stack { dtype, k, n, experts, kept: true, batches: batches.to_vec() }
    }

    /// What the host's encoder makes of values in -1..1, and what it decodes to.
    ///
    /// # Errors
    /// Those of the host.
    pub fn weights(&self, host: &Host, values: &mut Values) -> Result<(Vec<u8>, Vec<f32>)> {
        let w = values.take(self.k * self.n * self.experts);
        let bytes = host.encode(self.dtype, &w, self.k)?;
        let decoded = host.decode(self.dtype, &bytes, self.k)?;
        Ok((bytes, decoded))
    }
}

/// Every form of routing, activation and ids.
fn forms() -> Vec<Batch> {
    let (few, own) = (Batch::new(24, 2), Batch { own_rows: true, ..Batch::new(24, 2) });
    let mut all = Vec::new();
    for base in [&few, &own] {
        for routing in [Routing::Balanced, Routing::Skewed, Routing::Unused, Routing::Single] {
            all.push(Batch { routing, tokens: 48, ..*base });
        }
        all.push(Batch { id_gap: 5, ..*base });
        all.push(Batch { row_gap: 12, id_gap: 1, ..*base });
        all.push(Batch { numbers: Numbers::LargeRow, ..*base });
        all.push(Batch { numbers: Numbers::Outliers, ..*base });
        for (routing, expect) in [
            (Routing::Beyond, Expect::Fails),
            (Routing::Negative, Expect::Fails),
            (Routing::Twice, Expect::Anything),
        ] {
            all.push(Batch { routing, expect, ..*base });
        }
        let numbers = Numbers::NotANumber;
        let expect = Expect::Redone("activation_not_finite");
        all.push(Batch { numbers, expect, ..*base });
    }
    // One ingest serves every number of rows; all experts of a token, and one only.
    for (tokens, used) in [(8, 2), (17, 1), (100, 3), (200, 2), (33, 6), (64, 2)] {
        all.push(Batch::new(tokens, used));
        all.push(Batch { own_rows: true, ..Batch::new(tokens, used) });
    }
    all
}

/// The list.
///
/// # Errors
/// The host's table of types is not as expected.
pub fn list(host: &Host) -> Result<Vec<Stack>> {
    let known = host.encoded_types();
    let mxfp4 = known.contains(&Type::MXFP4).then_some(Type::MXFP4);
    let forms = forms();
    let mut all = Vec::new();
    // Columns are no multiple of 16, K no power of two.
    let sizes = [
        (Some(Type::F16), [96, 131, 6]),
        (mxfp4, [320, 99, 6]),
        (Some(Type::Q4_K), [768, 80, 6]),
        (Some(Type::Q8_0), [352, 67, 6]),
        (Some(Type::Q4_0), [1024, 72, 6]),
    ];
    for (dtype, size) in sizes.into_iter().filter_map(|(t, s)| Some((t?, s))) {
        let mut stack = Stack::new(dtype, size, &forms);
        // Numbers that are taken as they are, for nothing is gained by a rotation of exact ones.
        stack.batches.retain(|b| dtype != Type::MXFP4 || b.numbers != Numbers::Outliers);
        all.push(stack);
    }
    // Packed for each use.
    let plain = [
        Batch::new(24, 2),
        Batch { own_rows: true, routing: Routing::Single, ..Batch::new(40, 2) },
    ];
    let types = [Some(Type::F32), Some(Type::BF16), mxfp4, Some(Type::Q4_K), Some(Type::Q8_0)];
    for dtype in types.into_iter().flatten() {
        all.push(Stack { kept: false, ..Stack::new(dtype, [512, 101, 6], &plain) });
    }
    // Every type once; each time another stack of the same name, and often at the same address.
    for dtype in known {
        if !dtype.is_slow_to_encode() {
            let own = Batch { own_rows: true, ..Batch::new(40, 4) };
            all.push(Stack::new(dtype, [256, 77, 8], &[Batch::new(40, 4), own]));
        }
    }
    // Rows as long as those of real models.
    if let Some(dtype) = mxfp4 {
        all.push(Stack::new(dtype, [2880, 64, 4], &[Batch::new(32, 2)]));
    }
    all.push(Stack::new(Type::Q4_K, [2048, 64, 4], &[Batch::new(32, 2)]));
    all.push(Stack::new(Type::Q8_0, [1408, 64, 4], &[Batch::new(32, 2)]));
    // What stays on the CPU whatever the mode; each has a K and N of its own.
    let declined = |size, batch: Batch, why| {
        let batch = Batch { expect: Expect::Declined(why), ..batch };
        Stack::new(Type::Q8_0, size, &[batch])
    };
    all.push(declined([128, 65, 4], Batch::new(7, 2), "experts_few_tokens"));
    all.push(declined([32, 66, 4], Batch::new(24, 2), "k_too_small"));
    all.push(declined([128, 63, 4], Batch::new(24, 2), "n_too_small"));
    Ok(all)
}

/// A few stacks whose ingest takes a while, of few rows.
pub fn stored(host: &Host) -> Vec<Stack> {
    let mxfp4 = host.encoded_types().contains(&Type::MXFP4).then_some(Type::MXFP4);
    [
        (mxfp4, [576, 320, 64]),
        (Some(Type::Q4_K), [512, 384, 64]),
        (Some(Type::Q8_0), [704, 256, 64]),
    ]
    .into_iter()
    .filter_map(|(t, size)| Some(Stack::new(t?, size, &[Batch::new(64, 4)])))
    .collect()
}

/// The smallest that is worth a look, for boards that fail.
pub fn small(dtype: Type) -> Stack {
    Stack::new(dtype, [96, 80, 3], &[Batch::new(9, 2)])
}
