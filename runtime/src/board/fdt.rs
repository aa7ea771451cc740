//! Flattened device trees (`.dtb`, `.dtbo`), read: the Devicetree Specification's structure of version 16 or later,
//! with limits on everything, as such a file comes from a disk and not from a compiler one can trust.

/// Most bytes of a file: the trees of real boards have some hundred thousand.
pub const LIMIT: usize = 4 << 20;
/// Most nodes and properties, some ten times what real boards have.
const COUNT: usize = 1 << 16;
/// Deepest node.
const DEPTH: usize = 32;
/// Longest name; the specification allows 31 and trees have more.
const NAME: usize = 100;

const MAGIC: u32 = 0xd00d_feed;
const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROP: u32 = 3;
const NOP: u32 = 4;
const END: u32 = 9;

/// What is wrong with a file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no device tree: {what} (byte {at})")]
pub struct FdtError {
    /// Offset in the file.
    pub at: usize,
    /// In a few words.
    pub what: &'static str,
}

/// A node with what is below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// With its unit address; empty at the root.
    pub name: String,
    /// In their order.
    pub properties: Vec<(String, Vec<u8>)>,
    /// In their order.
    pub children: Vec<Node>,
}

impl Node {
    /// A property's bytes.
    pub fn property(&self, name: &str) -> Option<&[u8]> {
        self.properties.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_slice())
    }

    /// A property's strings; of one that is not there, none.
    pub fn strings(&self, name: &str) -> Vec<String> {
        let parts = self.property(name).unwrap_or_default().split(|b| *b == 0);
        parts.filter(|p| !p.is_empty()).map(|p| String::from_utf8_lossy(p).into_owned()).collect()
    }

    /// A property's 32-bit cells, where it consists of such.
    pub fn cells(&self, name: &str) -> Option<Vec<u32>> {
        let (cells, rest) = self.property(name)?.as_chunks::<4>();
        rest.is_empty().then(|| cells.iter().map(|c| u32::from_be_bytes(*c)).collect())
    }

    /// The child with this name.
    pub fn child(&self, name: &str) -> Option<&Node> {
        self.children.iter().find(|n| n.name == name)
    }

    /// Whether its status lets a driver have it: no status means it does (kernel-and-uapi D.1).
    pub fn enabled(&self) -> bool {
        match self.property("status") {
            None => true,
            Some(_) => matches!(self.strings("status").concat().as_str(), "okay" | "ok"),
        }
    }
}

/// A whole tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// The root node.
    pub root: Node,
}

impl Tree {
    /// The node at an absolute path, as `/soc/npu@27700000`.
    pub fn node(&self, path: &str) -> Option<&Node> {
        let mut names = path.split('/').filter(|n| !n.is_empty());
        names.try_fold(&self.root, |node, name| node.child(name))
    }

    /// Every node with its path, parents before children.
    pub fn nodes(&self) -> Vec<(String, &Node)> {
        let mut all = Vec::new();
        let mut open = vec![(String::new(), &self.root)];
        while let Some((path, node)) = open.pop() {
            let below = node.children.iter().rev();
            open.extend(below.map(|child| (format!("{path}/{}", child.name), child)));
            all.push((if path.is_empty() { "/".to_owned() } else { path }, node));
        }
        all
    }

    /// The node that a reference names by its number.
    pub fn by_phandle(&self, phandle: u32) -> Option<(String, &Node)> {
        let has = |n: &Node| n.cells("phandle").is_some_and(|c| c == [phandle]);
        self.nodes().into_iter().find(|(_, node)| has(node))
    }
}

/// Reads a file.
///
/// # Errors
/// It is no device tree, or one that breaks the format's rules or these limits.
pub fn parse(bytes: &[u8]) -> Result<Tree, FdtError> {
    let wrong = |at, what| FdtError { at, what };
    let word = |at: usize| cell(bytes, at).ok_or(wrong(at, "the header is cut off"));
    if word(0)? != MAGIC {
        return Err(wrong(0, "the magic number is another"));
    }
    let total = word(4)? as usize;
    if total > LIMIT {
        return Err(wrong(4, "it is longer than 4 MiB"));
    }
    let bytes = bytes.get(..total).ok_or(wrong(4, "the file is shorter than it says"))?;
    let (version, compatible) = (word(20)?, word(24)?);
    if version < 16 || compatible > 17 {
        return Err(wrong(20, "the format's version is another"));
    }
    let (structure, strings) = (word(8)? as usize, word(12)? as usize);
    let strings = bytes.get(strings..).ok_or(wrong(12, "the strings are outside of it"))?;
    let mut reader = Reader { bytes, strings, at: structure, count: 0 };
    let root = reader.tree()?;
    Ok(Tree { root })
}

fn cell(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// A place in the structure block.
struct Reader<'a> {
    bytes: &'a [u8],
    strings: &'a [u8],
    at: usize,
    count: usize,
}

impl Reader<'_> {
    fn wrong<T>(&self, what: &'static str) -> Result<T, FdtError> {
        Err(FdtError { at: self.at, what })
    }

    /// Nodes that are open are kept in a list and not on the stack.
    fn tree(&mut self) -> Result<Node, FdtError> {
        let mut open: Vec<Node> = Vec::new();
        loop {
            match self.token()? {
                NOP => {}
                BEGIN_NODE => {
                    if open.len() >= DEPTH {
                        return self.wrong("nodes are nested too deeply");
                    }
                    open.push(self.begin()?);
                }
                PROP => {
                    let property = self.property()?;
                    match open.last_mut() {
                        Some(node) => node.properties.push(property),
                        None => return self.wrong("a property is outside of all nodes"),
                    }
                }
                END_NODE => match (open.pop(), open.last_mut()) {
                    (Some(node), Some(parent)) => parent.children.push(node),
                    (Some(root), None) => return self.end(root),
                    (None, _) => return self.wrong("a node ends that has not begun"),
                },
                _ => return self.wrong("this token is not one of the format"),
            }
        }
    }

    /// Nothing but the end may follow the root.
    fn end(&mut self, root: Node) -> Result<Node, FdtError> {
        loop {
            match self.token()? {
                NOP => {}
                END => return Ok(root),
                _ => return self.wrong("something follows the root node"),
            }
        }
    }

    fn token(&mut self) -> Result<u32, FdtError> {
        let Some(token) = cell(self.bytes, self.at) else {
            return self.wrong("the structure is cut off");
        };
        self.at += 4;
        Ok(token)
    }

    fn begin(&mut self) -> Result<Node, FdtError> {
        self.counted()?;
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(name) = text(rest) else { return self.wrong("a node's name has no end") };
        if name.contains('/') {
            return self.wrong("a node's name holds a slash");
        }
        self.skip(name.len() + 1);
        Ok(Node { name, ..Node::default() })
    }

    fn property(&mut self) -> Result<(String, Vec<u8>), FdtError> {
        self.counted()?;
        let (length, name) = (self.token()? as usize, self.token()? as usize);
        let name = self.strings.get(name..).and_then(text);
        let Some(name) = name else { return self.wrong("a property's name has no end") };
        let end = self.at.checked_add(length);
        let Some(value) = end.and_then(|end| self.bytes.get(self.at..end)) else {
            return self.wrong("a property is longer than the file");
        };
        let value = value.to_vec();
        self.skip(length);
        Ok((name, value))
    }

    /// Past `length` bytes, to the next multiple of four.
    fn skip(&mut self, length: usize) {
        self.at = (self.at + length).next_multiple_of(4);
    }

    fn counted(&mut self) -> Result<(), FdtError> {
        self.count += 1;
        match self.count > COUNT {
            true => self.wrong("it has too many nodes and properties"),
            false => Ok(()),
        }
    }
}

/// The text up to a zero byte.
fn text(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().take(NAME + 1).position(|b| *b == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Made by dtc from the text beside it.
    const TREE: &[u8] = include_bytes!("testdata/tree.dtb");

    fn refused(bytes: &[u8]) -> &'static str {
        parse(bytes).unwrap_err().what
    }

    /// A file of these structure words.
    fn file(words: &[u32]) -> Vec<u8> {
        let size = 40 + 4 * words.len() as u32;
        let header = [MAGIC, size, 40, size, 40, 17, 16, 0, 0, 4 * words.len() as u32];
        header.iter().chain(words).flat_map(|w| w.to_be_bytes()).collect()
    }

    #[test]
    fn what_dtc_made() {
        let tree = parse(TREE).unwrap();
        let paths: Vec<String> = tree.nodes().into_iter().map(|(path, _)| path).collect();
        let expected = ["/", "/regulator", "/soc", "/soc/npu@fdab0000", "/soc/iommu@fdab9000"];
        assert_eq!(paths, expected);
        assert_eq!(tree.root.strings("compatible"), ["vendor,board", "rockchip,rk3588"]);
        assert_eq!(tree.root.cells("#address-cells"), Some(vec![2]));
        let npu = tree.node("/soc/npu@fdab0000").unwrap();
        assert_eq!((npu.enabled(), npu.property("empty")), (false, Some(&[][..])));
        assert_eq!((npu.property("odd"), npu.cells("odd")), (Some(&[1, 2, 3][..]), None));
        assert!(tree.node("/soc/iommu@fdab9000").unwrap().enabled(), "no status");
        let supply = npu.cells("npu-supply").unwrap()[0];
        let (path, rail) = tree.by_phandle(supply).unwrap();
        assert_eq!(
            (path.as_str(), rail.strings("regulator-name").concat()),
            ("/regulator", "vdd_npu_s0".into())
        );
        assert_eq!(tree.node("/soc/npu"), None, "a name is not begun only");
    }

    #[test]
    fn what_is_no_tree() {
        assert_eq!(refused(b""), "the header is cut off");
        assert_eq!(refused(&[0; 64]), "the magic number is another");
        for length in 40..TREE.len() {
            assert_eq!(refused(&TREE[..length]), "the file is shorter than it says");
        }
        assert_eq!(refused(&file(&[BEGIN_NODE, 0, END_NODE])), "the structure is cut off");
        assert_eq!(refused(&file(&[END_NODE])), "a node ends that has not begun");
        assert_eq!(refused(&file(&[5])), "this token is not one of the format");
        assert_eq!(refused(&file(&[PROP, 0, 0])), "a property's name has no end");
        let second = [BEGIN_NODE, 0, END_NODE, BEGIN_NODE, 0, END_NODE, END];
        assert_eq!(refused(&file(&second)), "something follows the root node");
        assert!(parse(&file(&[NOP, BEGIN_NODE, 0, NOP, END_NODE, NOP, END])).is_ok());
        let mut old = file(&[BEGIN_NODE, 0, END_NODE, END]);
        old[23] = 3;
        assert_eq!(refused(&old), "the format's version is another");
    }

    #[test]
    fn limits() {
        let nested = |n: usize| {
            let begin = [BEGIN_NODE, 0].repeat(n);
            file(&[begin, vec![END_NODE; n], vec![END]].concat())
        };
        assert!(parse(&nested(DEPTH)).is_ok());
        assert_eq!(refused(&nested(DEPTH + 1)), "nodes are nested too deeply");
        let many = [vec![BEGIN_NODE, 0], [BEGIN_NODE, 0, END_NODE].repeat(COUNT)].concat();
        assert_eq!(refused(&file(&many)), "it has too many nodes and properties");
        let long = [vec![BEGIN_NODE], vec![0x6161_6161; 64], vec![0, END_NODE, END]].concat();
        assert_eq!(refused(&file(&long)), "a node's name has no end");
        let mut big = file(&[BEGIN_NODE, 0, END_NODE, END]);
        big.resize(LIMIT + 4, 0);
        big[4..8].copy_from_slice(&(LIMIT as u32 + 4).to_be_bytes());
        assert_eq!(refused(&big), "it is longer than 4 MiB");
    }

    proptest! {
        /// Whatever is in a file, there is a tree or a reason.
        #[test]
        fn any_bytes(at in 0..TREE.len(), bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let mut file = TREE.to_vec();
            let end = (at + bytes.len()).min(file.len());
            file.splice(at..end, bytes);
            if let Ok(tree) = parse(&file) {
                prop_assert!(tree.nodes().iter().all(|(path, _)| tree.node(path).is_some()));
            }
        }
    }
}
