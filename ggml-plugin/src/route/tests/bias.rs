//! ADD of a bias: taken with its product and not without.

use super::*;

fn biased(change: impl FnOnce(&mut BiasFacts)) -> Result<Route, Reason> {
    let mut b = BiasFacts {
        product: op(512, 576, 1536),
        bias: TensorFacts::contiguous(Dtype::F32, [1536, 1, 1, 1]),
        bias_in_host_memory: None,
        result: TensorFacts::contiguous(Dtype::F32, [1536, 512, 1, 1]),
    };
    change(&mut b);
    super::super::decide(&OpFacts::Bias(b), &POLICY)
}

#[test]
fn a_bias_goes_where_its_product_goes() {
    let taken = biased(|_| ());
    assert_eq!(taken, Ok(Route::Bias));
    assert_eq!(taken.map(|r| (r.products(), r.macs(), r.name())), Ok((None, 0, "bias")));
    assert_eq!(biased(|b| b.product = op(127, 576, 1536)), Err(Reason::TooFewRows));
    assert_eq!(biased(|b| b.product.weight_is_leaf = false), Err(Reason::WeightNotLeaf));
    for change in [
        (|b| b.bias.ne[1] = 512) as fn(&mut BiasFacts),
        |b| b.bias.ne[0] = 1,
        |b| b.bias.dtype = Dtype::F16,
        |b| b.bias.nb[0] = 8,
        |b| b.bias_in_host_memory = Some(false),
        |b| b.result.ne[1] = 511,
        |b| b.result.nb[1] += 4,
    ] {
        assert_eq!(biased(change), Err(Reason::OpNotSupported));
    }
}
