//! Applying the series to a source: all of what is missing, or nothing.

#[cfg(test)]
mod tests;

use super::catalog::Patch;
use super::diff::{self, FileDiff};
use super::source::Source;
use super::status::{State, state};
use crate::change::{Plan, Step};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A kernel tree, or a folder with the driver's files.
#[derive(Debug)]
pub struct Tree {
    pub dir: PathBuf,
    whole: bool,
}

/// Where a kernel tree has the driver and its header.
const DRIVER: &str = "drivers/accel/rocket/";
const HEADER: &str = "include/";
/// Longest file that is patched.
const LIMIT: u64 = 16 << 20;

impl Tree {
    pub fn open(dir: &Path) -> Result<Tree> {
        let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
        let whole = dir.join(DRIVER).is_dir();
        Ok(Tree { dir, whole })
    }

    /// Where a patch's file is here, from the folder on.
    fn place<'a>(&self, path: &'a str) -> &'a str {
        match self.whole {
            true => path,
            false => {
                path.strip_prefix(DRIVER).or_else(|| path.strip_prefix(HEADER)).unwrap_or(path)
            }
        }
    }

    fn read(&self, place: &str) -> Result<Option<String>> {
        let path = self.dir.join(place);
        match std::fs::symlink_metadata(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Ok(m) if m.is_file() && m.len() <= LIMIT => {}
            Ok(_) => bail!("{} is no plain file of at most {} MiB", path.display(), LIMIT >> 20),
            Err(e) => return Err(e).with_context(|| path.display().to_string()),
        }
        let text = std::fs::read_to_string(&path);
        Ok(Some(text.with_context(|| path.display().to_string())?))
    }
}

/// The patches as files: `series`, what it names, and what goes first on older kernels.
#[derive(Debug)]
pub struct Series {
    /// By id, in order.
    patches: Vec<(String, Vec<FileDiff>)>,
    /// By name.
    variants: Vec<(String, Vec<FileDiff>)>,
}

impl Series {
    /// Reads a folder like `kernel-patches`.
    ///
    /// # Errors
    /// What is not there or no patch, by its name.
    pub fn read(dir: &Path) -> Result<Series> {
        let one = |path: PathBuf| -> Result<Vec<FileDiff>> {
            let shown = || path.display().to_string();
            let bytes = std::fs::read(&path).with_context(shown)?;
            diff::parse(&bytes).map_err(anyhow::Error::msg).with_context(shown)
        };
        let list = dir.join("series/series");
        let names = std::fs::read_to_string(&list).with_context(|| {
            format!("{}: name the folder kernel-patches with --patches", list.display())
        })?;
        let mut patches = Vec::new();
        for name in names.lines().filter(|n| !n.trim().is_empty()) {
            let id = name.split_once('-').and_then(|(_, rest)| rest.strip_suffix(".patch"));
            let id =
                id.with_context(|| format!("{}: '{name}' is no patch's name", list.display()))?;
            if name.contains('/') {
                bail!("{}: '{name}' is no patch's name", list.display());
            }
            patches.push((id.to_owned(), one(dir.join("series").join(name))?));
        }
        let mut variants = Vec::new();
        for entry in std::fs::read_dir(dir.join("variants")).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".patch") {
                variants.push((name, one(entry.path())?));
            }
        }
        variants.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Series { patches, variants })
    }
}

/// What is to be written.
#[derive(Debug)]
pub struct Planned {
    /// What goes first on this kernel.
    pub variant: Option<String>,
    pub applied: Vec<String>,
    /// There already.
    pub skipped: Vec<String>,
    /// New texts by place.
    pub files: BTreeMap<String, String>,
}

/// Works out the new texts of all files, without writing any.
///
/// # Errors
/// The first hunk that does not fit, with its patch and file, on the base that comes nearest; or a result that does
/// not have what the patches give.
pub fn plan(tree: &Tree, series: &Series, catalog: &[Patch]) -> Result<Planned> {
    let source = Source::open(&tree.dir)?;
    let there = |id: &str| {
        let patch = catalog.iter().find(|p| p.id == id);
        patch.is_some_and(|p| state(p, &source) == State::Applied)
    };
    // A variant is mainline's own later change: where it fits it is missing, also if the series goes in without it.
    let bases = series.variants.iter().map(Some).chain(std::iter::once(None));
    let mut farthest: Option<(usize, String)> = None;
    for base in bases {
        match on_base(tree, series, base, &there)? {
            Ok(planned) => {
                verify(tree, &planned, catalog)?;
                return Ok(planned);
            }
            Err((at, why)) if farthest.as_ref().is_none_or(|(best, _)| at > *best) => {
                farthest = Some((at, why));
            }
            Err(_) => {}
        }
    }
    let why = farthest.map_or_else(|| "there are no patches".to_owned(), |(_, why)| why);
    bail!("nothing was changed: {why}")
}

type Attempt = std::result::Result<Planned, (usize, String)>;

/// With one base; how many patches went in before the one that does not.
fn on_base(
    tree: &Tree,
    series: &Series,
    base: Option<&(String, Vec<FileDiff>)>,
    there: &dyn Fn(&str) -> bool,
) -> Result<Attempt> {
    let mut planned = Planned {
        variant: base.map(|(name, _)| name.clone()),
        applied: Vec::new(),
        skipped: Vec::new(),
        files: BTreeMap::new(),
    };
    if let Some((name, files)) = base
        && let Err(why) = put(tree, &mut planned.files, name, files)?
    {
        return Ok(Err((0, why)));
    }
    for (done, (id, files)) in series.patches.iter().enumerate() {
        if there(id) {
            planned.skipped.push(id.clone());
            continue;
        }
        if let Err(why) = put(tree, &mut planned.files, id, files)? {
            return Ok(Err((done + 1, why)));
        }
        planned.applied.push(id.clone());
    }
    // A base that was put on a source with all of the series changed nothing that was asked for.
    if planned.applied.is_empty() {
        planned.files.clear();
        planned.variant = None;
    }
    Ok(Ok(planned))
}

/// Puts one patch on the texts so far.
fn put(
    tree: &Tree,
    texts: &mut BTreeMap<String, String>,
    name: &str,
    files: &[FileDiff],
) -> Result<std::result::Result<(), String>> {
    for file in files {
        let place = tree.place(&file.path);
        let old = match texts.get(place) {
            Some(text) => Some(text.clone()),
            None => tree.read(place)?,
        };
        // A folder of files alone is built by another makefile.
        if old.is_none() && !tree.whole && place == "Makefile" {
            continue;
        }
        match file.apply(old.as_deref()) {
            Ok(new) => _ = texts.insert(place.to_owned(), new),
            Err(hunk) => return Ok(Err(format!("{name} conflicts in {place}: {hunk}"))),
        }
    }
    Ok(Ok(()))
}

/// The result has what every patch of the series gives.
fn verify(tree: &Tree, planned: &Planned, catalog: &[Patch]) -> Result<()> {
    let source = Source::open(&tree.dir)?.with(&tree.dir, &planned.files);
    for id in &planned.applied {
        let patch = catalog.iter().find(|p| p.id == *id);
        let state = patch.map(|p| state(p, &source));
        if state.is_some_and(|s| s != State::Applied) {
            bail!("nothing was changed: with {id} the source would not have what it gives");
        }
    }
    Ok(())
}

/// As changes below the tree.
pub fn changes(tree: &Tree, planned: &Planned) -> Plan {
    let undo = format!("rocketctl patch revert {}", tree.dir.display());
    let title = format!("{} patches for {}", planned.applied.len(), tree.dir.display());
    let mut step =
        Step::new("patch.source", "The driver's source", "It lacks what the patches give.");
    for (place, text) in &planned.files {
        step = step.write(format!("/{place}"), text.as_bytes(), 0o644);
    }
    Plan::new(super::SOURCE_PLAN, title, undo).step(step)
}
