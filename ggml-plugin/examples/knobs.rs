//! Prints the reference of every setting: `docs/knobs.md`.

fn main() {
    print!("{}", ggml_rocket::knobs::reference::markdown());
}
