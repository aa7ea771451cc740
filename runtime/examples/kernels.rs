//! Runs one kernel a number of times, for counting its instructions: `kernels NAME CALLS`. Prints the
//! elements of a call. Without arguments: the names.

#[path = "../benches/cases/mod.rs"]
mod cases;

use cases::{NAMES, SMALL, case};

fn main() {
    let mut args = std::env::args().skip(1);
    let (Some(name), Some(calls)) = (args.next(), args.next().and_then(|c| c.parse().ok())) else {
        NAMES.iter().for_each(|name| println!("{name}"));
        return;
    };
    let Some(name) = NAMES.into_iter().find(|n| *n == name) else {
        eprintln!("no kernel called {name}; without arguments the names are printed");
        std::process::exit(1);
    };
    let mut case = case(name, SMALL, 1);
    (0..calls).for_each(|_: usize| (case.run)(0));
    println!("{}", case.elements);
}
