//! Whole models with generated weights, of architectures and shapes for which no real weights can
//! be had (`rocket_tests::generate`). For each: what it computes with weights, from its header, is
//! what the host lists and what the board executed; and the board's logits lie where exact products
//! with the same weights put them.
//!
//! The prompt is one batch of 1024 tokens: more than every number of rows, of cached tokens and of
//! rows an expert from which a route is taken; or, for a small model, 2048 tokens in the host's
//! micro-batches of 512, which cross the number of cached tokens on the way.

use crate::graph::{self, Batch, Graph};
use crate::kld::divergence;
use crate::matrix::{CONTROL, GATE};
use crate::{Setup, gguf, macs, named, run};
use rocket_tests::generate::{self, Kind, Recipe};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// As `CONTROL` with experts in 8 bits: the CPU's own kernels round all other products like that as
/// well, so they cannot be ten times as far off.
const EXPERTS_CONTROL: f64 = 2.0;

/// How a prompt is cut.
#[derive(Clone, Copy)]
struct Cut {
    tokens: usize,
    micro: usize,
    /// Tokens of the list: its length depends on the number of micro-batches only.
    listed: usize,
}

const WHOLE: Cut = Cut { tokens: 1024, micro: 1024, listed: 300 };
const CUT: Cut = Cut { tokens: 2048, micro: 512, listed: 1200 };

impl Cut {
    /// The operations for `tokens` tokens, of which those from `scored` on have their logits taken.
    fn expected(&self, model: &gguf::Header, tokens: usize, scored: usize) -> Graph {
        Graph::of((0..tokens).step_by(self.micro).map(|first| {
            let cached = (first + self.micro).min(tokens);
            let wanted = cached - scored.clamp(first, cached);
            graph::expected(model, Batch { tokens: cached - first, wanted, cached })
        }))
    }
}

/// One line of ASCII: each byte is a token of the generated models.
pub fn line() -> String {
    include_str!("../../data/text.txt").replace('\n', " ")
}

/// A file of the generated models, which are kept beside the others.
pub fn file_of(recipe: &Recipe) -> PathBuf {
    let folder = named("ROCKET_TEST_MODEL_DIR").join("generated");
    recipe.in_folder(&folder).unwrap_or_else(|e| panic!("{}: {e}", recipe.name))
}

/// A host that sees the recipe's file as its model.
pub fn host_of(recipe: &Recipe) -> Setup {
    Setup { model: file_of(recipe), ..Setup::named() }
}

/// What the host computes for a shorter prompt. Its logger may end before all is written; the head
/// is each micro-batch's last operation.
fn list(s: &Setup, model: &gguf::Header, cut: Cut) -> Graph {
    let prompt = s.scratch.path().join("prompt.txt");
    std::fs::write(&prompt, generate::text_of(&line(), cut.listed)).expect("writes");
    for _ in 0..5 {
        let mut c = s.command("llama-eval-callback");
        c.arg("-m").arg(&s.model).arg("-f").arg(&prompt);
        let out = run(c.args(["-n", "1", "-nr", "-t", "2", "-ub", &cut.micro.to_string()]));
        let log = [out.stdout, out.stderr].concat();
        let log = String::from_utf8_lossy(&log);
        if log.matches(" result_output = ").count() == cut.listed.div_ceil(cut.micro) {
            return graph::listed(&log, model);
        }
    }
    panic!("the host never printed its whole list");
}

fn perplexity(mut c: Command, cut: Cut, [model, text, base]: [&Path; 3]) -> Command {
    let (tokens, micro) = (cut.tokens.to_string(), cut.micro.to_string());
    c.arg("-m").arg(model).arg("-f").arg(text);
    c.args(["-c", &tokens, "-b", &tokens, "-ub", &micro, "--chunks", "1"]);
    c.args(["--no-warmup", "-nr", "-t", "2"]);
    c.arg("--kl-divergence-base").arg(base);
    c
}

/// The control: the file's own kernels on the CPU, which round activations; or, where weights
/// are not quantized, a file that is.
fn check(recipe: &Recipe, cut: Cut, quantized: bool) {
    let s = host_of(recipe);
    let header = gguf::read(&s.model);
    let listed = cut.expected(&header, cut.listed, cut.listed - 1);
    assert_eq!(list(&s, &header, cut), listed, "header and host");
    // The second half is scored.
    let all = cut.expected(&header, cut.tokens, cut.tokens / 2);
    let coarse = match quantized {
        true => s.model.clone(),
        false => {
            let to = s.scratch.path().join("coarse.gguf");
            run(s.command("llama-quantize").arg(&s.model).arg(&to).args(["Q8_0", "2"]));
            to
        }
    };
    let compared = Compared { s: &s, recipe, cut, coarse: &coarse };
    if all.experts.is_empty() {
        let [ours, control] = compared.on_the_board("auto", &all);
        passes(ours, control);
        return;
    }
    // On the CPU in both, where they are the same: what is left is as near as without experts.
    let [ours, control] = compared.on_the_board("0", &all.clone().without_experts());
    passes(ours, control);
    let [ours, control] = compared.on_the_board("auto", &all);
    assert!(ours <= GATE, "experts on the board: {ours} is beyond {GATE}");
    assert!(control >= EXPERTS_CONTROL * ours, "experts on the board: {control} {ours}");
}

fn passes(ours: f64, control: f64) {
    assert!(ours <= GATE, "{ours} is beyond {GATE}");
    assert!(control >= CONTROL * ours, "{control} {ours}");
}

/// What is compared, and with what.
struct Compared<'a> {
    s: &'a Setup,
    recipe: &'a Recipe,
    cut: Cut,
    /// The control's file.
    coarse: &'a Path,
}

impl Compared<'_> {
    /// Mean divergences of the board, and of the control, from exact products. Exact: whatever the
    /// board multiplies with `ROCKET_MOE=moe`, on the CPU with the same weights in F32. The rest is
    /// the same in both.
    fn on_the_board(&self, moe: &str, expected: &Graph) -> [f64; 2] {
        let begun = Instant::now();
        let Compared { s, recipe, cut, coarse } = *self;
        let exact = s.scratch.path().join("exact.gguf");
        let decoded = recipe.decoded(|t| moe != "0" || !t.name.contains("_exps."));
        decoded.write(&exact).expect("writes");
        let (text, base) = (s.scratch.path().join("text.txt"), s.scratch.path().join("exact.kld"));
        std::fs::write(&text, line()).expect("writes");
        let cpu = || s.command("llama-perplexity");
        run(&mut perplexity(cpu(), cut, [&exact, &text, &base]));
        let control = divergence(perplexity(cpu(), cut, [coarse, &text, &base]));
        let at = Instant::now();
        let (mut c, report) = s.on_npu("llama-perplexity");
        c.env("ROCKET_MOE", moe);
        let ours = divergence(perplexity(c, cut, [&s.model, &text, &base]));
        let simulated = at.elapsed();
        let routes = expected.check(&macs::read(&report));
        println!(
            "{}, ROCKET_MOE={moe}: mean KLD from exact {:.6}, same top {:.2} %; control {:.6}, \
             {:.2} %; {routes}; {:.1} s in all, {:.1} s simulated",
            recipe.name,
            ours.mean,
            ours.same_top,
            control.mean,
            control.same_top,
            begun.elapsed().as_secs_f64(),
            simulated.as_secs_f64(),
        );
        [ours.mean, control.mean]
    }
}

#[test]
fn host_model_dense_with_grouped_queries() {
    check(&generate::dense(), WHOLE, false);
}

#[test]
fn host_model_latent_attention_and_experts() {
    check(&generate::mla(true), WHOLE, true);
}

#[test]
fn host_model_latent_attention_unfolded() {
    check(&generate::mla(false), WHOLE, true);
}

#[test]
fn host_model_mxfp4_experts_and_sinks() {
    check(&generate::oss(), WHOLE, true);
}

#[test]
fn host_model_state_space_beside_attention() {
    check(&generate::hybrid(), WHOLE, false);
}

#[test]
fn host_model_in_micro_batches() {
    check(&generate::tiny(Kind::F16), CUT, false);
}
