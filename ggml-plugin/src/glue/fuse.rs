//! Products that share an activation, as the projections of a layer: they run together, so that the
//! activation is packed once and a worker has one SUBMIT for all of them.
#![allow(unsafe_code)]

use super::backend::Instance;
use super::plugin::Runner;
use super::{facts, operands};
use crate::abi::tensor::Tensor;
use crate::exec::mul_mat::{self, Means};
use crate::exec::{OpRecord, Redo};
use crate::live::Seen;
use crate::route::{self, Dtype, Numerics, Policy, Route};
use std::sync::PoisonError;

/// Most that run together: Q, K, V and a gate.
const MOST: usize = 4;

/// Most bytes of results that wait for their turn.
const MOST_WAITING: usize = 64 << 20;

/// A product that may run together with others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member<'a> {
    pub(super) node: &'a Tensor,
    pub(super) seen: Seen,
    pub(super) route: Route,
    /// Its place is in use until its turn: the result is kept elsewhere.
    waits: bool,
}

impl Member<'_> {
    /// Elements of the result.
    fn results(&self) -> usize {
        self.route.products().map_or(0, |[m, _, n, slices]| m * n * slices)
    }
}

/// A node as a member: one product in F16.
fn member<'a>(instance: &Instance, policy: &Policy, node: &'a Tensor) -> Option<Member<'a>> {
    let facts = facts::of(&instance.plugin.host, node)?;
    let route = route::decide(&facts, policy).ok()?;
    let fits = matches!(route, Route::Product { numerics: Numerics::Fp16, slices: 1, .. });
    fits.then_some(Member { node, seen: Seen::of(&facts), route, waits: false })
}

/// The products that the first of `nodes` may run together with, itself first, none when there are
/// no others. Between them lie views, and biases and copies of theirs, which are computed in their turn;
/// anything else ends the group.
pub(super) fn group<'a>(
    instance: &Instance,
    policy: &Policy,
    nodes: impl IntoIterator<Item = &'a Tensor>,
) -> Vec<Member<'a>> {
    let mut found: Vec<Member<'a>> = Vec::new();
    let mut before: Vec<&Tensor> = Vec::new();
    for node in nodes {
        match (member(instance, policy, node), found.first().copied()) {
            (Some(m), None) => found.push(m),
            (Some(m), Some(first)) if of_one_activation(first, m) => {
                let m = Member { waits: has_to_wait(node, &before), ..m };
                if !may_come_forward(node, &before) || waiting(&found, m) > MOST_WAITING {
                    break;
                }
                found.push(m);
            }
            (_, Some(_)) if is_view(instance, node) => continue,
            (_, Some(_)) if follows(instance, policy, node, &before) => {}
            _ => break,
        }
        before.push(node);
        if found.len() == MOST {
            break;
        }
    }
    if found.len() > 1 { found } else { Vec::new() }
}

/// Whether a node adds a bias to, or copies, what one of those before it has computed.
fn follows(instance: &Instance, policy: &Policy, node: &Tensor, before: &[&Tensor]) -> bool {
    let source = node.source(0).map(std::ptr::from_ref);
    let route = facts::of(&instance.plugin.host, node).map(|f| route::decide(&f, policy));
    matches!(route, Some(Ok(Route::Bias | Route::Copy)))
        && before.iter().any(|b| source == Some(std::ptr::from_ref(*b)))
}

/// Whether a product that runs before those `before` it reads what it would have read in its turn.
fn may_come_forward(product: &Tensor, before: &[&Tensor]) -> bool {
    let operands = [product.source(0), product.source(1)];
    before.iter().all(|b| operands.into_iter().flatten().all(|o| apart(range(b), range(o))))
}

/// Whether its result, written before those `before` it have run, would change what they read or be
/// overwritten.
fn has_to_wait(product: &Tensor, before: &[&Tensor]) -> bool {
    let clear = |b: &Tensor, t: Option<&Tensor>| apart(range(product), range(t.unwrap_or(b)));
    !before.iter().all(|b| clear(b, None) && clear(b, b.source(0)) && clear(b, b.source(1)))
}

/// Bytes that wait when `last` is among them.
fn waiting(found: &[Member<'_>], last: Member<'_>) -> usize {
    found.iter().chain([&last]).filter(|m| m.waits).map(|m| m.results().saturating_mul(4)).sum()
}

/// First byte of a tensor's elements, and one behind the last or beyond.
pub(super) fn range(t: &Tensor) -> (usize, usize) {
    let wide = |n: i64| usize::try_from(n).unwrap_or(usize::MAX);
    let len = if Dtype(t.dtype).is_quantized() {
        // Blocks; a weight lies without gaps.
        t.nb[3].saturating_mul(wide(t.ne[3]))
    } else {
        let element = if Dtype(t.dtype) == Dtype::F32 { 4 } else { 2 };
        let steps =
            t.ne.iter().zip(t.nb).map(|(&n, nb)| wide(n).saturating_sub(1).saturating_mul(nb));
        steps.fold(element, usize::saturating_add)
    };
    let first = t.data as usize;
    (first, first.saturating_add(len))
}

pub(super) fn apart(a: (usize, usize), b: (usize, usize)) -> bool {
    a.1 <= b.0 || b.1 <= a.0
}

fn is_view(instance: &Instance, node: &Tensor) -> bool {
    facts::of(&instance.plugin.host, node).is_some_and(|f| f == route::OpFacts::Nothing)
}

fn of_one_activation(a: Member<'_>, b: Member<'_>) -> bool {
    let activation = |m: Member<'_>| m.node.source(1).map(std::ptr::from_ref);
    let rows = |m: Member<'_>| m.route.products().map(|[m, k, ..]| [m, k]);
    activation(a).is_some() && activation(a) == activation(b) && rows(a) == rows(b)
}

/// What became of a member.
pub(super) struct Ran {
    pub(super) record: OpRecord,
    /// The result, when it waits.
    pub(super) result: Option<Vec<f32>>,
}

/// Runs them.
///
/// # Errors
/// Why they have to run one by one.
pub(super) fn run(
    instance: &Instance,
    runner: &Runner,
    members: &[Member<'_>],
    names: &[String],
) -> Result<Vec<Ran>, Redo> {
    let plugin = instance.plugin;
    let engine = runner.engine().ok_or(Redo::NotRouted)?;
    let mut kept: Vec<Option<Vec<f32>>> = {
        let mut spare = instance.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = |m: &Member<'_>| {
            let mut buffer = spare.pop().unwrap_or_default();
            buffer.resize(m.results(), 0.0);
            buffer
        };
        members.iter().map(|m| m.waits.then(|| buffer(m))).collect()
    };
    let mut all = Vec::with_capacity(members.len());
    for ((m, name), kept) in members.iter().zip(names).zip(&mut kept) {
        let mut one = operands::of(instance, m.node, name, m.route, kept.as_deref_mut())?;
        let operand = one.pop().filter(|o| one.is_empty() && o.key.is_some());
        all.push(operand.ok_or(Redo::NotRouted)?);
    }
    let mut scratch = instance.scratch.lock().unwrap_or_else(PoisonError::into_inner);
    let means =
        Means { engine, verify: &plugin.verify, threads: plugin.threads, scratch: &mut scratch };
    let records = mul_mat::run_together(means, &mut all)?;
    Ok(records.into_iter().zip(kept).map(|(record, result)| Ran { record, result }).collect())
}

/// Puts a result that waited where it belongs.
///
/// # Errors
/// When the node has no memory for it.
pub(super) fn put(instance: &Instance, node: &Tensor, result: Vec<f32>) -> Result<(), Redo> {
    // SAFETY: a product's result is contiguous F32 of as many elements, in host memory that the host
    // lets nobody touch while it waits for this graph.
    let place = unsafe { node.elements_mut::<f32>(result.len()) }.ok_or(Redo::NoData)?;
    place.copy_from_slice(&result);
    instance.spare.lock().unwrap_or_else(PoisonError::into_inner).push(result);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::tensor::tests::tensor;
    use std::ptr::from_ref;

    const RESULT: usize = 16 * 64 * 4;

    fn at(address: usize) -> Tensor {
        let mut t = tensor(0, 4, [64, 16, 1, 1]);
        t.data = address as *mut _;
        t
    }

    /// A second product behind a first one whose sum is copied: where its result would be read as
    /// another's or overwritten it waits, and where they change its operands it stays behind them.
    #[test]
    fn a_result_waits_where_its_place_is_in_use() {
        let [first, bias, activation] = [at(0x10_000), at(0x50_000), at(0x60_000)];
        let mut sum = at(0x20_000);
        sum.src[..2].copy_from_slice(&[&first, &bias].map(|t| from_ref(t).cast_mut()));
        let mut copy = tensor(1, 2, [64 * 16, 1, 1, 1]);
        copy.data = 0x30_000 as *mut _;
        copy.src[0] = from_ref(&sum).cast_mut();
        let before = [&first, &sum, &copy];
        for (address, waits) in [
            (0x40_000, false),
            (0x10_000 - RESULT, false),
            (0x10_000 + RESULT, false),
            (0x30_000 + RESULT / 2, false),
            (0x10_000, true),
            (0x10_000 - RESULT + 4, true),
            (0x10_000 + RESULT - 4, true),
            (0x20_000, true),
            (0x30_000 + RESULT / 2 - 4, true),
            (0x50_000, true),
        ] {
            assert_eq!(has_to_wait(&at(address), &before), waits, "{address:#x}");
        }
        let mut product = at(0x40_000);
        product.src[..2].copy_from_slice(&[&bias, &activation].map(|t| from_ref(t).cast_mut()));
        assert!(may_come_forward(&product, &before));
        product.src[1] = from_ref(&copy).cast_mut();
        assert!(!may_come_forward(&product, &before));
        product.src[..2].copy_from_slice(&[&sum, &activation].map(|t| from_ref(t).cast_mut()));
        assert!(!may_come_forward(&product, &before));
    }

    /// To the byte: dense, strided, of blocks.
    #[test]
    fn ranges_of_tensors() {
        let mut t = at(0x1000);
        assert_eq!(range(&t), (0x1000, 0x1000 + RESULT));
        t.nb = [4, 1024, 16 * 1024, 16 * 1024];
        assert_eq!(range(&t), (0x1000, 0x1000 + 15 * 1024 + 63 * 4 + 4));
        let mut blocks = tensor(2, 18, [64, 16, 1, 1]);
        blocks.nb = [18, 36, 36 * 16, 36 * 16];
        assert_eq!(range(&blocks), (0, 36 * 16));
    }
}
