//! Writing a flattened device tree of version 17, as dtc lays it out. (The crate that writes trees for virtual machines
//! refuses the names that overlays consist of.)

use rocket_runtime::board::fdt::Node;

const HEADER: u32 = 40;
/// One entry of zeros: no memory is reserved.
const RESERVED: u32 = 16;

/// The file with this node as its root.
pub fn write(root: &Node) -> Vec<u8> {
    let (mut structure, mut strings) = (Vec::new(), Vec::new());
    node(root, &mut structure, &mut strings);
    word(&mut structure, 9);
    let (at, size) = (HEADER + RESERVED, structure.len() as u32);
    let total = at + size + strings.len() as u32;
    let length = strings.len() as u32;
    let header = [0xd00d_feed, total, at, at + size, HEADER, 17, 16, 0, length, size];
    let mut out: Vec<u8> = header.iter().flat_map(|w: &u32| w.to_be_bytes()).collect();
    out.resize(at as usize, 0);
    [out, structure, strings].concat()
}

fn node(node: &Node, out: &mut Vec<u8>, strings: &mut Vec<u8>) {
    word(out, 1);
    padded(out, &[node.name.as_bytes(), &[0]].concat());
    for (name, value) in &node.properties {
        let name = interned(strings, name);
        for w in [3, value.len() as u32, name] {
            word(out, w);
        }
        padded(out, value);
    }
    for child in &node.children {
        self::node(child, out, strings);
    }
    word(out, 2);
}

/// Where a name is among the strings, at their end from now on if it was not there.
fn interned(strings: &mut Vec<u8>, name: &str) -> u32 {
    let mut at = 0;
    for known in strings.split_inclusive(|b| *b == 0) {
        if known.strip_suffix(&[0]) == Some(name.as_bytes()) {
            return at;
        }
        at += known.len() as u32;
    }
    strings.extend([name.as_bytes(), &[0]].concat());
    at
}

fn word(out: &mut Vec<u8>, word: u32) {
    out.extend(word.to_be_bytes());
}

fn padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
}
