//! What a board's device tree lacks for the NPU, by the tree that runs: pure, from a [`Tree`] to an [`Overlay`].

use rocket_runtime::board::fdt::{Node, Tree};

/// The NPU of a chip in the device tree (kernel-and-uapi C.3, D.1).
#[derive(Debug)]
struct Soc {
    /// The chip's own entry in an overlay.
    compatible: &'static str,
    /// Entries that name a board of it, exactly.
    boards: &'static [&'static str],
    /// Of the cores' nodes.
    core: &'static str,
    /// Where they are.
    place: &'static str,
    /// Cores to be used, each with its IOMMU.
    cores: &'static [(&'static str, &'static str)],
    /// Whether the rail's power domain enables it; where it does not, the rail must be always on.
    domain: bool,
}

const SOCS: [Soc; 2] = [
    Soc {
        compatible: "rockchip,rk3588",
        boards: &["rockchip,rk3588", "rockchip,rk3588s"],
        core: "rockchip,rk3588-rknn-core",
        place: "",
        cores: &[
            ("npu@fdab0000", "iommu@fdab9000"),
            ("npu@fdac0000", "iommu@fdaca000"),
            ("npu@fdad0000", "iommu@fdada000"),
        ],
        domain: true,
    },
    // Two jobs at once give wrong results there: the second core stays off.
    Soc {
        compatible: "rockchip,rk3576",
        boards: &["rockchip,rk3576"],
        core: "rockchip,rk3576-rknn-core",
        place: "/soc",
        cores: &[("npu@27700000", "iommu@27702000")],
        domain: false,
    },
];

/// The name of the NPU's rail on mainline's boards (kernel-and-uapi B.3).
pub const RAIL: &str = "vdd_npu_s0";

/// What an overlay sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Okay,
    Flag,
    /// A reference to the rail.
    Rail,
}

/// What an overlay does to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// The node's absolute path.
    pub path: String,
    pub properties: Vec<(&'static str, Value)>,
}

/// How an overlay refers to the rail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// By its label, which the boot loader looks up.
    Label(String),
    /// By its number in the tree that runs: the tree has no labels.
    Number(u32),
    /// The rail has no number; this fragment gives it one.
    Fragment(usize),
}

/// An overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    pub compatible: &'static str,
    pub fragments: Vec<Fragment>,
    /// Where no fragment names the rail, nothing.
    pub rail: Option<Reference>,
    /// Nodes that this needs and the tree does not show: a boot loader refuses the overlay.
    pub missing: Vec<String>,
    /// Supplies that no node of the tree can be named for.
    pub unsupplied: bool,
    /// What whoever uses it should know.
    pub notes: Vec<String>,
}

/// What a tree comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Needs(Overlay),
    /// All is there.
    Nothing,
    /// An overlay is of no use, and why.
    Useless(String),
}

/// Looks at a tree. `rail` is the regulator's name, [`RAIL`] on most boards.
pub fn look(tree: &Tree, rail: &str) -> Verdict {
    let board = tree.root.strings("compatible");
    let Some(soc) = SOCS.iter().find(|s| s.boards.iter().any(|b| board.iter().any(|e| e == b)))
    else {
        let known = SOCS.map(|s| s.compatible).join(", ");
        let board = if board.is_empty() { "no board's".to_owned() } else { board.join(", ") };
        return Verdict::Useless(format!("the device tree is {board}; overlays are for {known}"));
    };
    let at = |name: &str| format!("{}/{name}", soc.place);
    let Some(core) = tree.node(&at(soc.cores[0].0)) else {
        return Verdict::Useless(format!(
            "the device tree has no node {}: it is older than the driver, and an overlay can only \
             enable what is there. Boot the tree that came with a kernel that has the driver",
            at(soc.cores[0].0)
        ));
    };
    let kinds = core.strings("compatible");
    if !kinds.is_empty() && !kinds.iter().any(|k| k == soc.core) {
        return Verdict::Useless(format!(
            "the NPU's node is {}, of a vendor kernel's tree; the rocket driver needs mainline's",
            kinds.join(", ")
        ));
    }
    let mut work = Work { tree, fragments: Vec::new(), missing: Vec::new() };
    for (core, iommu) in soc.cores {
        work.core(&at(core), &at(iommu));
    }
    let mut notes = Vec::new();
    let (rail, unsupplied) = match find_rail(tree, rail) {
        Ok(path) => work.supply(soc, &path, &mut notes),
        Err(why) => {
            // What is described already needs no rail to be found.
            let lacks = work.lacks_supply(soc);
            notes.extend(lacks.then_some(why));
            (None, lacks)
        }
    };
    let Work { fragments, missing, .. } = work;
    let named = |c: char| c.is_ascii_alphanumeric() || "/@,._+?#-".contains(c);
    if let Some(odd) = fragments.iter().find(|f| !f.path.chars().all(named)) {
        return Verdict::Useless(format!("{:?} is no device tree's path", odd.path));
    }
    match fragments.is_empty() {
        true => Verdict::Nothing,
        false => Verdict::Needs(Overlay {
            compatible: soc.compatible,
            fragments,
            rail,
            missing,
            unsupplied,
            notes,
        }),
    }
}

/// An overlay under way.
struct Work<'a> {
    tree: &'a Tree,
    fragments: Vec<Fragment>,
    missing: Vec<String>,
}

impl Work<'_> {
    /// Enables a core and its IOMMU, which the core's own reference names where it has one.
    fn core(&mut self, core: &str, iommu: &str) {
        let named = self.tree.node(core).and_then(|n| n.cells("iommus"));
        let named = named.and_then(|c| self.tree.by_phandle(*c.first()?)).map(|(path, _)| path);
        self.enable(core);
        self.enable(&named.unwrap_or(iommu.to_owned()));
    }

    fn enable(&mut self, path: &str) {
        match self.tree.node(path) {
            Some(node) if node.enabled() => return,
            Some(_) => {}
            None => self.missing.push(path.to_owned()),
        }
        self.set(path, "status", Value::Okay);
    }

    fn set(&mut self, path: &str, name: &'static str, value: Value) {
        match self.fragments.iter_mut().find(|f| f.path == path) {
            Some(fragment) => fragment.properties.push((name, value)),
            None => self
                .fragments
                .push(Fragment { path: path.to_owned(), properties: vec![(name, value)] }),
        }
    }

    /// Supplies by the binding that a node has none of.
    fn wanted(&self, soc: &Soc) -> Vec<(String, &'static str)> {
        let mut wanted = Vec::new();
        for (name, _) in soc.cores {
            let path = format!("{}/{name}", soc.place);
            let core = self.tree.node(&path);
            let lacks = |p: &&str| core.is_some_and(|n| n.property(p).is_none());
            let names = ["npu-supply", "sram-supply"].into_iter().filter(lacks);
            wanted.extend(names.map(|p| (path.clone(), p)));
        }
        if soc.domain
            && let Some(path) = self.domain(soc)
            && self.tree.node(&path).is_some_and(|n| n.property("domain-supply").is_none())
        {
            wanted.push((path, "domain-supply"));
        }
        wanted
    }

    fn lacks_supply(&self, soc: &Soc) -> bool {
        !self.wanted(soc).is_empty()
    }

    /// Names the rail wherever it is missing; whether something could not be named, as well.
    fn supply(
        &mut self,
        soc: &Soc,
        rail: &str,
        notes: &mut Vec<String>,
    ) -> (Option<Reference>, bool) {
        let wanted = self.wanted(soc);
        let unsupplied = soc.domain && self.domain(soc).is_none();
        if unsupplied {
            notes.push(
                "the NPU's power domain is not in this tree, so its supply cannot be named".into(),
            );
        }
        let node = self.tree.node(rail);
        if !soc.domain && node.is_some_and(|n| n.property("regulator-always-on").is_none()) {
            self.set(rail, "regulator-always-on", Value::Flag);
        }
        if wanted.is_empty() {
            return (None, unsupplied);
        }
        for (path, name) in wanted {
            self.set(&path, name, Value::Rail);
        }
        let label = self.label(rail);
        let number = node.and_then(|n| n.cells("phandle")).and_then(|c| c.first().copied());
        let reference = match (label, number) {
            (Some(label), _) => Reference::Label(label),
            (None, Some(number)) => {
                notes.push(format!(
                    "the tree has no labels, so the rail is named by its number {number} in the tree that \
                     runs: remove this overlay before the kernel's device tree changes, and install it anew"
                ));
                Reference::Number(number)
            }
            (None, None) => {
                let at = self.fragments.iter().position(|f| f.path == rail);
                Reference::Fragment(at.unwrap_or_else(|| {
                    self.fragments.push(Fragment { path: rail.to_owned(), properties: Vec::new() });
                    self.fragments.len() - 1
                }))
            }
        };
        (Some(reference), unsupplied)
    }

    /// A label of the node at a path.
    fn label(&self, path: &str) -> Option<String> {
        let symbols = self.tree.root.child("__symbols__")?;
        let names =
            |(_, value): &&(String, Vec<u8>)| value.strip_suffix(b"\0") == Some(path.as_bytes());
        symbols.properties.iter().find(names).map(|(label, _)| label.clone())
    }

    /// The NPU's outermost power domain: by what the first core refers to, else by its label.
    fn domain(&self, soc: &Soc) -> Option<String> {
        let core = self.tree.node(&format!("{}/{}", soc.place, soc.cores[0].0))?;
        let by_core = || {
            let [controller, index] = core.cells("power-domains")?[..] else { return None };
            let (path, controller) = self.tree.by_phandle(controller)?;
            let outer = controller.children.iter().find(|domain| holds(domain, index))?;
            Some(format!("{path}/{}", outer.name))
        };
        let by_label = || {
            let path = self.tree.root.child("__symbols__")?.strings("pd_npu").concat();
            self.tree.node(&path).is_some().then_some(path).filter(|p| !p.is_empty())
        };
        by_core().or_else(by_label)
    }
}

/// Whether a power domain is the one with this index, or has it inside.
fn holds(domain: &Node, index: u32) -> bool {
    domain.cells("reg").is_some_and(|c| c == [index])
        || domain.children.iter().any(|d| holds(d, index))
}

/// The regulator with this name.
fn find_rail(tree: &Tree, name: &str) -> Result<String, String> {
    let nodes = tree.nodes();
    let called = |n: &Node| n.strings("regulator-name").concat();
    let found: Vec<&String> =
        nodes.iter().filter(|(_, n)| called(n) == name).map(|(p, _)| p).collect();
    if let [path] = found[..] {
        return Ok(path.clone());
    }
    let all = nodes.iter().map(|(_, n)| called(n)).filter(|n| n.contains("npu") && n != name);
    let near = all.collect::<Vec<_>>().join(", ");
    let near =
        if near.is_empty() { String::new() } else { format!("; --rail may name one of: {near}") };
    let count = if found.is_empty() { "no" } else { "more than one" };
    Err(format!("{count} regulator of this tree is called {name}, so no supply is named{near}"))
}
