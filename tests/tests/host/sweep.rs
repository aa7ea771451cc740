//! Prompts of every length that is a boundary of something: of the rows that a route takes, of the
//! rows that a tile holds, of the host's micro-batch. One process each asks for the next token.

use crate::graph::{self, Batch, Graph};
use crate::matrix::{CONTROL, GATE};
use crate::models::{host_of, line};
use crate::server::Server;
use crate::{Setup, gguf, macs, run};
use rocket_tests::generate::{self, Kind, TOKENS};
use std::process::Command;
use std::time::Instant;

/// Up to so many tokens.
const LONGEST: usize = 600;
/// The host's own.
const MICRO_BATCH: usize = 512;

/// All of the first ones, then every multiple of 64, one less and one more.
fn lengths() -> Vec<usize> {
    let around = (64..=LONGEST).step_by(64).flat_map(|n| [n - 1, n, n + 1]);
    (1..=35).chain(around).chain([LONGEST]).collect()
}

/// The distribution after each prompt. Each is a text of its own.
fn ask(s: &Setup, c: Command) -> Vec<Vec<f64>> {
    let text: Vec<u32> = line().bytes().map(generate::token_of).collect();
    let server = Server::start(s, c);
    let prompts = lengths().into_iter().enumerate().map(|(i, n)| &text[97 * i..][..n]);
    let found = prompts.map(|p| server.next(p, TOKENS, generate::token_of(b'a'))).collect();
    server.stop();
    found
}

fn divergence(from: &[f64], of: &[f64]) -> f64 {
    from.iter().zip(of).map(|(p, q)| p.exp() * (p - q)).sum()
}

/// From `min_rows` on the board multiplies: the distribution lies where the CPU puts it with the
/// same weights in F32. Below it is the CPU's own, to the last bit. The control is the CPU on the
/// file itself if that is quantized, as in `models`.
fn check(kind: Kind, min_rows: usize) {
    let begun = Instant::now();
    let recipe = generate::tiny(kind);
    let mut s = host_of(&recipe);
    let header = gguf::read(&s.model);
    let (c, report) = s.on_npu("llama-server");
    let npu = ask(&s, c);
    let at = begun.elapsed();
    let own = ask(&s, s.command("llama-server"));
    let file = |name: &str| s.scratch.path().join(name);
    let (decoded, coarse) = (file("decoded.gguf"), file("coarse.gguf"));
    // The last block's feed-forward part and the head see one row, which is the CPU's in each run.
    let last = format!("blk.{}.ffn_", header.blocks - 1);
    let exact = recipe.decoded(|t| !(t.name.starts_with(&last) || t.name.starts_with("output.")));
    exact.write(&decoded).expect("writes");
    run(s.command("llama-quantize").arg(&s.model).arg(&coarse).args(["Q8_0", "2"]));
    s.model = decoded;
    let exact = ask(&s, s.command("llama-server"));
    let control = match kind {
        Kind::F16 => {
            s.model = coarse;
            ask(&s, s.command("llama-server"))
        }
        _ => own.clone(),
    };

    let mut worst = (0.0, 0);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // A last micro-batch of few rows is the CPU's, after much that is the board's.
    let mut tails = [Vec::new(), Vec::new()];
    for (i, n) in lengths().into_iter().enumerate() {
        if n < min_rows {
            assert_eq!(own[i], npu[i], "{n} tokens are the CPU's, whoever is loaded");
            continue;
        }
        assert_ne!(own[i], npu[i], "{n} tokens are the board's");
        let apart = divergence(&exact[i], &npu[i]);
        if n > MICRO_BATCH && n - MICRO_BATCH < min_rows {
            tails[0].push(apart);
            tails[1].push(divergence(&exact[i], &own[i]));
            continue;
        }
        assert!(apart <= GATE, "{n} tokens: {apart} is beyond {GATE}");
        if apart > worst.0 {
            worst = (apart, n);
        }
        ours.push(apart);
        theirs.push(divergence(&exact[i], &control[i]));
    }
    let mean = |list: &[f64]| list.iter().sum::<f64>() / list.len() as f64;
    let (ours, theirs) = (mean(&ours), mean(&theirs));
    let [tail, own_tail] = tails.map(|t| mean(&t));
    let batch = |tokens, wanted, cached| graph::expected(&header, Batch { tokens, wanted, cached });
    let expected =
        Graph::of(lengths().into_iter().flat_map(|n| match n.checked_sub(MICRO_BATCH) {
            None | Some(0) => vec![batch(n, 1, n)],
            Some(rest) => vec![batch(MICRO_BATCH, 0, MICRO_BATCH), batch(rest, 1, n)],
        }));
    let routes = expected.check(&macs::read(&report));
    println!(
        "{} prompts of 1 to {LONGEST} tokens, {kind:?}: mean KLD from exact {ours:.7}, at most \
         {:.7} (at {}); control {theirs:.7}; with a last micro-batch on the CPU {tail:.7}, wholly \
         on the CPU {own_tail:.7}; {routes}; {:.1} s in all, {:.1} s with the board",
        lengths().len(),
        worst.0,
        worst.1,
        begun.elapsed().as_secs_f64(),
        at.as_secs_f64()
    );
    assert!(theirs >= CONTROL * ours, "the control is no coarser");
    assert!(tail <= 1.25 * own_tail + GATE, "{tail} is beyond the CPU's {own_tail}");
}

#[test]
fn host_prompts_of_every_length() {
    check(Kind::F16, 32);
}

#[test]
fn host_prompts_of_every_length_with_eight_bit_weights() {
    check(Kind::Q8_0, 128);
}
