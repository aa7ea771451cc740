//! Prints the routing contract: `docs/routing.md`.

fn main() {
    print!("{}", ggml_rocket::route::reference::markdown());
}
