//! `rocket-top`; see the library of the same name.

fn main() -> std::process::ExitCode {
    rocket_top::main()
}
