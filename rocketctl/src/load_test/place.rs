//! Where the program is that loads.

use std::path::{Path, PathBuf};

const NAME: &str = "rocket-load-test";

/// Overrides the search.
const VARIABLE: &str = "ROCKET_LOAD_TEST";

/// Beside this program, where cargo and packages put it, or where the variable says.
pub fn find() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|p| !p.is_empty()) {
        let path = PathBuf::from(path);
        return path
            .canonicalize()
            .map_err(|e| format!("{VARIABLE} names {}: {e}", path.display()));
    }
    let me = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let looked = candidates(&me);
    looked.iter().find(|p| p.is_file()).cloned().ok_or_else(|| {
        let list: Vec<String> = looked.iter().map(|p| p.display().to_string()).collect();
        format!(
            "{NAME} is not installed: build it with `cargo build --release -p rocket-load-test` or name it with \
             {VARIABLE} (looked for {})",
            list.join(", ")
        )
    })
}

fn candidates(me: &Path) -> Vec<PathBuf> {
    let here = me.parent().unwrap_or(Path::new("/"));
    let prefix = here.parent().unwrap_or(Path::new("/"));
    vec![here.join(NAME), prefix.join("lib/rocket").join(NAME), prefix.join("libexec").join(NAME)]
}
