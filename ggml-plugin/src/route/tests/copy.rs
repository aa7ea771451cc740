//! CPY of a product: taken with it and not without.

use super::*;

fn bias() -> BiasFacts {
    BiasFacts {
        product: op(512, 576, 1536),
        bias: TensorFacts::contiguous(Dtype::F32, [1536, 1, 1, 1]),
        bias_in_host_memory: None,
        result: TensorFacts::contiguous(Dtype::F32, [1536, 512, 1, 1]),
    }
}

fn copied(of: Copied, change: impl FnOnce(&mut CopyFacts)) -> Result<Route, Reason> {
    let mut c = CopyFacts {
        of,
        result: TensorFacts::contiguous(Dtype::F16, [1536 * 512, 1, 1, 1]),
        result_in_host_memory: None,
    };
    change(&mut c);
    super::super::decide(&OpFacts::Copy(c), &POLICY)
}

#[test]
fn a_copy_goes_where_its_product_goes() {
    for of in [Copied::Product(op(512, 576, 1536)), Copied::Sum(bias())] {
        let taken = copied(of, |_| ());
        assert_eq!(taken, Ok(Route::Copy));
        assert_eq!(taken.map(|r| (r.products(), r.macs(), r.name())), Ok((None, 0, "copy")));
        let wide = TensorFacts::contiguous(Dtype::F32, [1536, 512, 1, 1]);
        assert_eq!(copied(of, |c| c.result = wide), Ok(Route::Copy));
        for change in [
            (|c| c.result.dtype = Dtype::BF16) as fn(&mut CopyFacts),
            |c| c.result.ne[0] -= 1,
            |c| c.result.ne[1] = 2,
            // A transposed copy.
            |c| c.result.nb[0] = 1024,
            |c| c.result_in_host_memory = Some(false),
        ] {
            assert_eq!(copied(of, change), Err(Reason::OpNotSupported));
        }
    }
    let few = Copied::Product(op(127, 576, 1536));
    assert_eq!(copied(few, |_| ()), Err(Reason::TooFewRows));
    let computed = Copied::Sum(BiasFacts {
        bias: TensorFacts::contiguous(Dtype::F32, [1536, 512, 1, 1]),
        ..bias()
    });
    assert_eq!(copied(computed, |_| ()), Err(Reason::OpNotSupported));
}
