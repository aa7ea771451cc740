//! `experts-placement`: which products with experts are taken, asked of stacks that hold no numbers.
//! Modes and budgets are variables of the plugin, read once a process: one process for each.

use super::case::Batch;
use super::is;
use super::op::build;
use crate::Setup;
use crate::ggml::{Backend, Buffer, Context, Node, Type};
use crate::report;
use anyhow::{Context as _, Result, ensure};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Instead of every boundary: so many stacks of 16777216 weights, whoever finds room.
    #[arg(long, value_name = "COUNT")]
    stacks: Option<usize>,
}

/// How the op differs from the plain one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    /// The stack lies in a buffer of something else.
    NotKept,
    /// The stack is a view.
    View,
    /// The elements of an activation row are apart.
    Transposed,
    /// Each expert of a token has its own row, and ids have gaps.
    OwnRows,
}

/// What becomes of it: `""` is taken.
type Answers = [&'static str; 4];

struct Case {
    dtype: Type,
    /// K, N, experts.
    stack: [usize; 3],
    /// Tokens, used.
    batch: [usize; 2],
    form: Form,
    /// By ROCKET_MOE auto, 1 and 0, and auto without native numbers.
    answers: Answers,
}

/// The mode's place in [`Answers`].
fn mode() -> usize {
    match () {
        () if is("ROCKET_MOE", "1") => 1,
        () if is("ROCKET_MOE", "0") => 2,
        () if is("ROCKET_MOE_NATIVE", "0") => 3,
        () => 0,
    }
}

/// Every boundary, with the defaults of `docs/knobs.md` but for eight rows as the least that any
/// product needs. Each has a K and N of its own.
fn list() -> Vec<Case> {
    let (off, plain) = ("experts_off", "experts_unquantized");
    let case = |dtype, stack, batch, form, answers| Case { dtype, stack, batch, form, answers };
    let (f16, q8, q4k) = (Type::F16, Type::Q8_0, Type::Q4_K);
    let worth = ["", "", off, plain];
    let auto = |why| [why, "", off, plain];
    let all = |why| [why, why, off, why];
    let mut cases = vec![
        // 128 rows an expert of 2.9 million weights.
        case(q4k, [2048, 1408, 16], [512, 4], Form::Plain, worth),
        case(q8, [2048, 1440, 16], [512, 4], Form::OwnRows, worth),
        // Tokens.
        case(q4k, [2048, 1424, 16], [511, 4], Form::Plain, auto("experts_few_tokens")),
        // 64 rows an expert exactly, one row less of 32 experts.
        case(q4k, [2816, 2816, 32], [512, 4], Form::Plain, worth),
        case(q4k, [2816, 2832, 33], [527, 4], Form::Plain, auto("experts_few_rows")),
        case(q4k, [2816, 2848, 33], [528, 4], Form::Plain, worth),
        // 64 times 2560 times N: 340.1 and 339.97 million.
        case(q4k, [2560, 2076, 32], [512, 4], Form::Plain, worth),
        case(q4k, [2560, 2075, 32], [512, 4], Form::Plain, auto("experts_little_work")),
        // Types.
        case(f16, [2048, 1408, 16], [512, 4], Form::Plain, [plain, "", off, plain]),
        case(Type::BF16, [2048, 1412, 16], [512, 4], Form::Plain, [plain, "", off, plain]),
        case(Type::F32, [2048, 1416, 16], [512, 4], Form::Plain, [plain, "", off, plain]),
        // Where the stack lies.
        case(q4k, [2048, 1456, 16], [512, 4], Form::NotKept, auto("experts_not_kept")),
        case(q4k, [2048, 1472, 16], [512, 4], Form::View, all("weight_not_leaf")),
        // Shapes.
        case(q8, [32, 128, 8], [512, 4], Form::Plain, all("k_too_small")),
        case(q8, [64, 63, 8], [512, 4], Form::Plain, all("n_too_small")),
        case(q8, [64, 64, 8], [512, 4], Form::Plain, auto("experts_little_work")),
        case(q8, [128, 144, 8], [512, 4], Form::Transposed, all("not_contiguous")),
        // The least rows of any product.
        case(q8, [64, 80, 8], [8, 2], Form::Plain, auto("experts_few_tokens")),
    ];
    let few = "experts_few_tokens";
    cases.push(case(q8, [64, 96, 8], [7, 2], Form::Plain, [few, few, off, plain]));
    cases
}

/// A product with a stack of another context, of which nothing has memory.
fn product<'c>(context: &'c Context, stack: Node<'c>, case: &Case, name: &str) -> Result<Node<'c>> {
    let ([tokens, used], [k, n, experts]) = (case.batch, case.stack);
    let batch = match case.form {
        Form::OwnRows => Batch { own_rows: true, id_gap: 12, ..Batch::new(tokens, used) },
        _ => Batch::new(tokens, used),
    };
    match case.form {
        Form::View => {
            let (ne, nb) = ([k, n, experts, 1].map(|n| n as i64), stack.nb());
            let view = context.view(stack, ne, [nb[1], nb[2], nb[3]], nb[2])?;
            Ok(build(context, view, &batch, name)?[2])
        }
        Form::Transposed => {
            let ne = [tokens as i64, 1, k as i64, 1];
            let whole = context.tensor(Type::F32, ne, "activation")?;
            let activation = context.permute(whole, [2, 1, 0, 3])?;
            let ids = context.tensor(Type::I32, [used as i64, tokens as i64, 1, 1], "ids")?;
            context.mul_mat_id(stack, activation, ids, name)
        }
        _ => Ok(build(context, stack, &batch, name)?[2]),
    }
}

fn boundaries(setup: &Setup) -> Result<bool> {
    let (host, device) = (setup.host, setup.device()?);
    let cases = list();
    let contexts = |_: &Case| Ok((Context::new(host, 1)?, Context::new(host, 6)?));
    let contexts: Vec<_> = cases.iter().map(contexts).collect::<Result<_>>()?;
    let ours = Backend::new(host, device)?;
    let mut asked = Vec::new();
    for (i, (case, (stored, context))) in cases.iter().zip(&contexts).enumerate() {
        let [k, n, experts] = case.stack;
        // A view is of one that has an expert more.
        let more = usize::from(case.form == Form::View);
        let ne = [k, n, experts + more, 1].map(|n| n as i64);
        let stack = stored.tensor(case.dtype, ne, &format!("blk.{i}.ffn_exps.weight"))?;
        let buffer = Buffer::of(stored, case.form != Form::NotKept)?;
        let op = product(context, stack, case, &format!("op-{i}"))?;
        asked.push((op, host.supports(device, op, &[&buffer])?, buffer));
    }
    let (mut wrong, mut taken) = (0, 0);
    // The first answer stays.
    for (i, (op, answer, buffer)) in asked.iter().enumerate().rev() {
        if host.supports(device, *op, &[buffer])? != *answer {
            println!("!! case {i}: the answer changed from {answer}");
            wrong += 1;
        }
    }
    drop(ours);
    let report = report::read(&setup.report)?;
    for (i, (case, (_, answer, _))) in cases.iter().zip(&asked).enumerate() {
        let expected = case.answers[mode()];
        let [k, n, _] = case.stack.map(|n| n as i64);
        let dtype = host.type_name(case.dtype)?;
        let reason = report.declined.iter().find(|(t, rk, rn, _)| (t, *rk, *rn) == (&dtype, k, n));
        let got = reason.map_or("", |d| &d.3);
        if *answer != expected.is_empty() || got != expected {
            println!(
                "!! case {i}: {dtype} {:?}, {:?}: taken {answer}, '{got}'",
                case.stack, case.batch
            );
            println!("!!   expected: '{expected}'");
            wrong += 1;
        }
        taken += usize::from(*answer);
    }
    println!("{} questions about experts: {taken} accepted", asked.len());
    println!("wrong: {wrong}");
    Ok(wrong == 0)
}

/// Stacks of one shape, asked twice over, the second time backwards.
fn budget(setup: &Setup, count: usize) -> Result<bool> {
    let (host, device) = (setup.host, setup.device()?);
    let case = Case {
        dtype: Type::Q4_K,
        stack: [2048, 1024, 8],
        batch: [2048, 4],
        form: Form::Plain,
        answers: [""; 4],
    };
    let stored = Context::new(host, count)?;
    let ne = [2048, 1024, 8, 1];
    let stacks: Vec<_> = (0..count)
        .map(|i| stored.tensor(case.dtype, ne, &format!("blk.{i}.ffn_exps.weight")))
        .collect::<Result<_>>()?;
    let buffer = Buffer::of(&stored, true)?;
    let context = Context::new(host, 3 * count)?;
    let ops: Vec<_> = stacks
        .iter()
        .enumerate()
        .map(|(i, stack)| product(&context, *stack, &case, &format!("op-{i}")))
        .collect::<Result<_>>()?;
    let ours = Backend::new(host, device)?;
    let ask = |op: &Node<'_>| host.supports(device, *op, &[&buffer]);
    let first: Vec<bool> = ops.iter().map(ask).collect::<Result<_>>()?;
    let mut again: Vec<bool> = ops.iter().rev().map(ask).collect::<Result<_>>()?;
    again.reverse();
    ensure!(first == again, "the answers changed: {first:?} {again:?}");
    drop(ours);
    let taken = first.iter().filter(|yes| **yes).count();
    // First come, first served: stacks of one size.
    let in_order = first.iter().take(taken).all(|yes| *yes);
    let report = report::read(&setup.report)?;
    let mut reasons: Vec<&str> = report.declined.iter().map(|d| d.3.as_str()).collect();
    reasons.dedup();
    println!("stacks admitted: {taken}");
    println!("declined for: {reasons:?}");
    let why = if taken == count { reasons.is_empty() } else { reasons == ["experts_no_room"] };
    Ok(in_order && why)
}

/// Asks. True if every answer is the one expected.
///
/// # Errors
/// Those of the host.
pub fn run(setup: &Setup, arguments: &Arguments) -> Result<bool> {
    match arguments.stacks {
        Some(count) => budget(setup, count).context("stacks of one size"),
        None => boundaries(setup),
    }
}
