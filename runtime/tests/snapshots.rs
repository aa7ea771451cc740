//! Our own programs, plans and sequences, kept. They were equal to the golden vectors when they
//! were taken; a clone without the vectors is guarded by them.

use rocket_runtime::dtype::DType;
use rocket_runtime::plan::{Place, Request, Sequence, Shape, plan};
use rocket_runtime::program::{Ew, MatmulTask, Operand, Reuse, Word, chain};
use std::fmt::Write;

fn task(dtype: DType, [m, k, n]: [u32; 3]) -> MatmulTask {
    MatmulTask {
        dtype,
        m,
        k,
        n,
        input: 0x0010_0000,
        weights: 0x0040_0000,
        output: 0x0080_0000,
        operand: None,
        reuse: Reuse::None,
    }
}

fn lines(words: &[Word]) -> String {
    words.iter().enumerate().fold(String::new(), |mut s, (i, w)| {
        writeln!(s, "{i:3} {w:?}").expect("writes to a string");
        s
    })
}

#[test]
fn programs() {
    for dtype in DType::ALL {
        let t = dtype.info();
        let small = task(dtype, [4, t.k_group as u32, t.n_group as u32]);
        insta::assert_snapshot!(
            format!("{}_small", t.name),
            lines(&small.encode().expect("encodes"))
        );
    }
    let base = task(DType::Fp16, [64, 256, 128]);
    let operand = Some(Operand { op: Ew::Add, iova: 0x00A0_0000 });
    for (name, t) in [
        ("fp16_64x256x128", base),
        ("fp16_64x256x128_add", MatmulTask { operand, ..base }),
        ("fp16_64x256x128_data_reuse", MatmulTask { reuse: Reuse::Data, ..base }),
        ("fp16_64x256x128_weight_reuse", MatmulTask { reuse: Reuse::Weights, ..base }),
        ("fp16_f32out_64x256x128", MatmulTask { dtype: DType::Fp16F32Out, ..base }),
    ] {
        insta::assert_snapshot!(name, lines(&t.encode().expect("encodes")));
    }
}

#[test]
fn chained_programs() {
    let one = task(DType::Fp16, [16, 64, 32]).encode().expect("encodes");
    let words = chain::link(&[one, one, one], 0x0200_0000);
    let trailers: Vec<Word> = (1..=3).flat_map(|i| words[i * 126 - 4..i * 126].to_vec()).collect();
    insta::assert_snapshot!("chain_trailers", lines(&trailers));
}

#[test]
fn plans_and_sequences() {
    let mut text = String::new();
    for dtype in DType::ALL {
        for [m, k, n] in [[512, 3840, 4096], [128, 896, 4864], [12, 4096, 64], [1500, 512, 512]] {
            let p = plan(dtype, Shape { m, k, n });
            writeln!(text, "{} {m}x{k}x{n}: {p:?}", dtype.info().name).expect("writes");
        }
    }
    for [m, k, n] in [[300, 2080, 400], [260, 1056, 272], [512, 576, 1536]] {
        for dtype in [DType::Fp16, DType::Int8] {
            let s = Sequence::new(Request::new(dtype, Shape { m, k, n })).expect("plans");
            let Shape { m: rows, k: channels, n: columns } = s.padded;
            writeln!(text, "{m}x{k}x{n} {} runs {rows}x{channels}x{columns}", dtype.info().name)
                .expect("writes");
            for (i, job) in s.jobs().enumerate() {
                for t in &job.tiles {
                    let size = |s: Shape| format!("{}x{}x{}", s.m, s.k, s.n);
                    let place = |p: &Place| match p {
                        Place::Image { index, offset } => format!("{index}+{offset}"),
                        Place::Witness { job } => format!("witness {job}"),
                    };
                    let operand = t.operand.as_ref().map_or_else(String::new, place);
                    let (at, extent) = (size(t.origin), size(t.extent));
                    let (to, reuse) = (place(&t.output), t.reuse);
                    writeln!(text, "  job {i} at {at} {extent} {reuse:?} to {to} adds {operand}")
                        .expect("writes");
                }
            }
        }
    }
    insta::assert_snapshot!("plans_and_sequences", text);
}
