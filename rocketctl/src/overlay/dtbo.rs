//! An overlay as the file that a boot loader applies: the same that dtc makes of [`super::dts`].

use super::blob;
use super::board::{Overlay, Reference, Value};
use rocket_runtime::board::fdt::Node;

/// The number of the fragment that gives the rail one; the boot loader moves it out of the way of the tree's.
const LOCAL: u32 = 1;
/// In place of a number that the boot loader looks up.
const LATER: u32 = 0xffff_ffff;

/// The file.
pub fn bytes(overlay: &Overlay) -> Vec<u8> {
    let mut root = named("");
    root.properties.push(text("compatible", overlay.compatible));
    root.children = (0..overlay.fragments.len()).map(|at| fragment(overlay, at)).collect();
    match &overlay.rail {
        Some(Reference::Label(label)) => root.children.push(by_label(overlay, label)),
        Some(Reference::Fragment(_)) => root.children.push(by_number(overlay)),
        Some(Reference::Number(_)) | None => {}
    }
    blob::write(&root)
}

fn fragment(overlay: &Overlay, at: usize) -> Node {
    let number = match &overlay.rail {
        Some(Reference::Number(number)) => *number,
        Some(Reference::Label(_)) => LATER,
        Some(Reference::Fragment(_)) | None => LOCAL,
    };
    let mut inner = named("__overlay__");
    inner.properties.extend(overlay.fragments[at].properties.iter().map(
        |(name, value)| match value {
            Value::Okay => text(name, "okay"),
            Value::Flag => ((*name).to_owned(), Vec::new()),
            Value::Rail => cell(name, number),
        },
    ));
    if overlay.rail == Some(Reference::Fragment(at)) {
        inner.properties.push(cell("phandle", LOCAL));
    }
    let path = text("target-path", &overlay.fragments[at].path);
    Node { name: format!("fragment@{at}"), properties: vec![path], children: vec![inner] }
}

/// Fragments with the names of their properties that refer to the rail.
fn references(overlay: &Overlay) -> Vec<(usize, Vec<&'static str>)> {
    let names = |properties: &[(&'static str, Value)]| {
        let rail = properties.iter().filter(|(_, v)| *v == Value::Rail);
        rail.map(|(name, _)| *name).collect::<Vec<_>>()
    };
    let all = overlay.fragments.iter().enumerate().map(|(at, f)| (at, names(&f.properties)));
    all.filter(|(_, names)| !names.is_empty()).collect()
}

/// `__fixups__`: for a label, the places that want its number.
fn by_label(overlay: &Overlay, label: &str) -> Node {
    let mut places = String::new();
    for (at, names) in references(overlay) {
        for name in names {
            places += &format!("/fragment@{at}/__overlay__:{name}:0\0");
        }
    }
    Node { properties: vec![(label.to_owned(), places.into_bytes())], ..named("__fixups__") }
}

/// `__local_fixups__`: where in the properties numbers of the overlay's own are.
fn by_number(overlay: &Overlay) -> Node {
    let inner = |names: Vec<&str>| Node {
        properties: names.into_iter().map(|name| cell(name, 0)).collect(),
        ..named("__overlay__")
    };
    let fragment =
        |(at, names)| Node { children: vec![inner(names)], ..named(&format!("fragment@{at}")) };
    let children = references(overlay).into_iter().map(fragment).collect();
    Node { children, ..named("__local_fixups__") }
}

fn named(name: &str) -> Node {
    Node { name: name.to_owned(), ..Node::default() }
}

fn text(name: &str, value: &str) -> (String, Vec<u8>) {
    (name.to_owned(), format!("{value}\0").into_bytes())
}

fn cell(name: &str, value: u32) -> (String, Vec<u8>) {
    (name.to_owned(), value.to_be_bytes().to_vec())
}
