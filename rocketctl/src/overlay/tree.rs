//! The running device tree, as far as an overlay depends on it.

use rocket_runtime::board::fdt::{Node, Tree};
use rocket_runtime::board::{Reading, Root};

/// Where the kernel shows it.
const PLACE: &str = "proc/device-tree";
/// Deepest node that is looked at.
const DEPTH: usize = 16;
/// Most nodes that are looked at, some ten times what boards have.
const NODES: usize = 1 << 14;
/// The properties that are read; a board has thousands of others.
const WANTED: [&str; 12] = [
    "compatible",
    "domain-supply",
    "iommus",
    "npu-supply",
    "phandle",
    "power-domains",
    "reg",
    "regulator-always-on",
    "regulator-name",
    "sram-supply",
    "status",
    "#power-domain-cells",
];

/// Reads it, labels included.
pub fn read(root: &Root) -> Reading<Tree> {
    let names = root.names(PLACE)?;
    let mut left = NODES;
    let mut top = node(root, PLACE, String::new(), 0, &mut left);
    if names.iter().any(|n| n == "__symbols__") {
        top.children.push(symbols(root));
    }
    Ok(Tree { root: top })
}

fn node(root: &Root, place: &str, name: String, depth: usize, left: &mut usize) -> Node {
    let read = |name: &str| Some((name.to_owned(), root.bytes(&format!("{place}/{name}")).ok()?));
    let there = root.names(place).unwrap_or_default();
    let wanted = WANTED.iter().filter(|w| there.iter().any(|t| t == *w));
    let properties = wanted.filter_map(|w| read(w)).collect();
    let mut children = Vec::new();
    for below in root.folders(place).unwrap_or_default() {
        if below == "__symbols__" || depth == DEPTH || *left == 0 {
            continue;
        }
        *left -= 1;
        children.push(node(root, &format!("{place}/{below}"), below, depth + 1, left));
    }
    Node { name, properties, children }
}

/// The labels: a property a label, whose value is a node's path.
fn symbols(root: &Root) -> Node {
    let place = format!("{PLACE}/__symbols__");
    let labels = root.names(&place).unwrap_or_default().into_iter().take(NODES);
    let label = |l: String| root.bytes(&format!("{place}/{l}")).ok().map(|path| (l, path));
    Node {
        name: "__symbols__".into(),
        properties: labels.filter_map(label).collect(),
        children: vec![],
    }
}
