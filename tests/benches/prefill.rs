//! A whole prefill, ours against the reference, by what the simulated board counts.
//!
//! `scripts/compare-prefill` builds and runs this; `--help` says what can be chosen.

use clap::Parser;
use rocket_tests::compare::prefill::{MODELS, Prices, Side, Total, VALUES};
use rocket_tests::compare::wholes::WHOLES;
use std::process::ExitCode;
use std::time::Instant;

/// Prints what the products of a prefill cost ours and the reference: bytes, submits, host
/// work and modelled NPU time, by the simulator's exact counters.
#[derive(Debug, Parser)]
#[command(name = "compare-prefill")]
struct Arguments {
    /// Tokens of the prompt.
    #[arg(long, default_value_t = 2048)]
    tokens: usize,
    /// Micro-batch of ours.
    #[arg(long, default_value_t = 512)]
    ours: usize,
    /// Micro-batch of the reference, which is told to use large ones.
    #[arg(long, default_value_t = 2048)]
    reference: usize,
    /// Only models whose name holds this.
    #[arg(long)]
    model: Option<String>,
    /// The next prompt instead of the first: what stays resident is packed.
    #[arg(long)]
    warm: bool,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn run(a: &Arguments) -> Result<(), String> {
    let start = Instant::now();
    let mut prices = Prices::default();
    println!(
        "A prefill of {} tokens, {}: ours in micro-batches of {}, the reference in ones of {}; \
         encoders have one batch. The head is left out on both sides. Times are modelled. Decoded and packed: weight elements, billions. \
         All: products and attention together. Codes: the bytes of all experts, read once a micro-batch; no plan moves fewer.\n",
        a.tokens,
        if a.warm { "warm" } else { "cold" },
        a.ours,
        a.reference
    );
    print!("| {:<24} | {:<9}", "model", "who");
    VALUES.iter().for_each(|(name, ..)| print!(" | {name:>9}"));
    print!(" |\n|{:-<26}|{:-<11}", "", "");
    VALUES.iter().for_each(|_| print!("|{:->10}:", ""));
    println!("|");
    let chosen = |name: &str| a.model.as_ref().is_none_or(|m| name.contains(m.as_str()));
    for model in MODELS.iter().filter(|m| chosen(m.name)) {
        let reference = prices.prefill(model, Side::Reference, a.tokens, a.reference, a.warm)?;
        let ours = prices.prefill(model, Side::Ours, a.tokens, a.ours, a.warm)?;
        print(model.name, &reference, &ours);
    }
    // Experts are packed once by either side, and attention has nothing to pack.
    for whole in WHOLES.iter().filter(|w| chosen(w.name)) {
        let reference = whole.prefill(false, a.tokens, a.reference)?;
        let ours = whole.prefill(true, a.tokens, a.ours)?;
        print(whole.name, &reference, &ours);
        if let Some(least) = whole.codes_read(a.tokens, a.ours).filter(|_| ours != Total::default())
        {
            print!("| {:<24} | {:<9} | {:>9.2}", "", "codes", least as f64 / 1e9);
            (1..VALUES.len()).for_each(|_| print!(" | {:>9}", ""));
            println!(" |");
        }
        for model in MODELS.iter().filter(|m| whole.of.is_some_and(|of| m.name.starts_with(of))) {
            let mut all = |side, ubatch, part: &Total| {
                let mut all = prices.prefill(model, side, a.tokens, ubatch, a.warm)?;
                all.sum(part, 1);
                Ok::<_, String>(all)
            };
            let reference = all(Side::Reference, a.reference, &reference)?;
            let ours = all(Side::Ours, a.ours, &ours)?;
            print(&format!("{}, all", model.name), &reference, &ours);
        }
    }
    eprintln!("took {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn print(name: &str, reference: &Total, ours: &Total) {
    let line = |who: &str, value: &dyn Fn(usize) -> String| {
        print!("| {name:<24} | {who:<9}");
        (0..VALUES.len()).for_each(|i| print!(" | {:>9}", value(i)));
        println!(" |");
    };
    let absolute = |t: Total| {
        move |i: usize| {
            let (_, unit, decimals, value) = VALUES[i];
            format!("{:.1$}", value(&t) as f64 / unit, decimals)
        }
    };
    line("reference", &absolute(*reference));
    if *ours == Total::default() {
        return line("ours", &|_| "CPU".to_owned());
    }
    line("ours", &absolute(*ours));
    line("ratio", &|i| match VALUES[i].3(reference) {
        0 => "-".to_owned(),
        r => format!("{:.2}", VALUES[i].3(ours) as f64 / r as f64),
    });
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
