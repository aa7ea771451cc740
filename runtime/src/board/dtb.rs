//! The device tree that came with the running kernel, to hold the one in use against.

use super::{Absent, DtNode, Reading, Root, Why, fdt};

/// What a kernel's package has for this board.
#[derive(Debug, Clone)]
pub struct PackagedTree {
    /// The file, from the root on.
    pub path: String,
    /// NPU cores in it.
    pub nodes: Vec<DtNode>,
}

/// Where distributions have a release's trees: Debian, Armbian, others, Ubuntu.
fn places(release: &str) -> [String; 4] {
    [
        format!("usr/lib/linux-image-{release}/rockchip"),
        format!("boot/dtb-{release}/rockchip"),
        format!("boot/dtbs/{release}/rockchip"),
        format!("lib/firmware/{release}/device-tree/rockchip"),
    ]
}

/// The tree for the board with these `compatible` entries. A file's name ends as the first entry does, and its own
/// first entry must be the same.
pub fn read(
    root: &Root,
    release: &Reading<String>,
    compatible: &Reading<Vec<String>>,
) -> Reading<PackagedTree> {
    let board = compatible.as_ref().map_err(Clone::clone)?.first().cloned().unwrap_or_default();
    let release = release.as_ref().map_err(Clone::clone)?;
    let suffix = format!("-{}.dtb", board.split(',').next_back().unwrap_or_default());
    let mut absent = Absent { path: format!("/{}", places(release)[0]), why: Why::Missing };
    for folder in places(release) {
        for name in root.names(&folder).unwrap_or_default().iter().filter(|n| n.ends_with(&suffix))
        {
            let path = format!("{folder}/{name}");
            match nodes(&root.bytes(&path)?, &board) {
                Ok(Some(nodes)) => return Ok(PackagedTree { path: format!("/{path}"), nodes }),
                Ok(None) => {}
                Err(what) => {
                    absent = Absent { path: format!("/{path}"), why: Why::Malformed(what) }
                }
            }
        }
    }
    Err(absent)
}

/// NPU cores of a tree; `None` where it is another board's.
///
/// # Errors
/// In words: it is no device tree.
pub fn nodes(bytes: &[u8], board: &str) -> Result<Option<Vec<DtNode>>, String> {
    let tree = fdt::parse(bytes).map_err(|e| e.to_string())?;
    if tree.root.strings("compatible").first().is_none_or(|first| first != board) {
        return Ok(None);
    }
    let cores = tree.nodes().into_iter().filter(|(_, node)| node.name.starts_with("npu@"));
    let core = |(path, node): (String, &fdt::Node)| DtNode {
        name: node.name.clone(),
        path,
        compatible: node.strings("compatible"),
        enabled: node.enabled(),
    };
    Ok(Some(cores.map(core).collect()))
}
