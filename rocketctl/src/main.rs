//! `rocketctl`; see the library of the same name.

fn main() -> std::process::ExitCode {
    rocketctl::main()
}
