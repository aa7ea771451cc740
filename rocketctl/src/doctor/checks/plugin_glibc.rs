use super::super::finding::Finding;
use super::super::host::Object;
use super::super::remedy::other_plugin;
use super::super::{About, Case, Check};
use crate::elf::Elf;

const ID: &str = "plugin.glibc";

pub const CHECK: Check = Check {
    id: ID,
    explain: "A library that was built on a newer system asks for versions of glibc's symbols that an older one \
              does not have, and is refused as a whole, whether or not it ever calls them. The file lists what it \
              asks for, the C library what it has; nothing is run to compare them.",
    after: &["plugin.elf"],
    about: About::Plugin,
    required: false,
    run,
};

/// What versions of the C library begin with.
const GLIBC: &str = "GLIBC_";

/// A version that is asked for and not there.
struct Lack<'a> {
    version: &'a str,
    /// Of which library.
    library: &'a Object,
    symbols: Vec<&'a str>,
}

fn run(case: &Case) -> Finding {
    let named = &case.named;
    let plugin = named.plugin.as_ref().and_then(|p| Some((p, p.path()?, p.elf()?)));
    let Some((plugin, path, elf)) = plugin else {
        return Finding::unknown(ID, "the versions that it needs", "the file cannot be read");
    };
    let Some(needs) = &elf.needs else {
        let why = "the file has no section that lists them; rocketctl load-test tells";
        return Finding::unknown(ID, "the versions that it needs", why);
    };
    if needs.is_empty() {
        return Finding::ok(ID, "it asks for no version of any library");
    }
    let found = |name: &str| {
        let of_libc = named.libc.iter().filter(|o| o.elf.soname.as_deref() == Some(name));
        of_libc.chain(named.libraries.objects.iter()).find(|o| is(o, name))
    };
    let lacks: Vec<Lack> = needs
        .iter()
        .filter_map(|(version, name)| {
            let library = found(name).filter(|o| !o.elf.versions.contains(version))?;
            Some(Lack { version, library, symbols: asking(elf, version) })
        })
        .collect();
    let unseen: Vec<&str> =
        needs.iter().map(|(_, name)| name.as_str()).filter(|n| found(n).is_none()).collect();
    match (lacks.is_empty(), unseen.first()) {
        (false, _) => other_plugin(lacking(path, &lacks), plugin, named.host.as_ref(), ID),
        (true, Some(name)) => Finding::unknown(
            ID,
            "whether this system has the versions that it needs",
            format!("{name} is not found here"),
        ),
        (true, None) => Finding::ok(
            ID,
            match newest(needs.iter().map(|(v, _)| v.as_str()).filter(|v| v.starts_with(GLIBC))) {
                Some(v) => format!("it needs {v} at most, which is here"),
                None => "all versions that it needs are here".into(),
            },
        ),
    }
}

fn is(object: &Object, name: &str) -> bool {
    object.elf.soname.as_deref() == Some(name) || object.name() == name
}

fn asking<'a>(elf: &'a Elf, version: &str) -> Vec<&'a str> {
    let of_version = |v: &Option<(String, String)>| v.as_ref().is_some_and(|(v, _)| v == version);
    elf.imports.iter().filter(|i| of_version(&i.version)).map(|i| i.name.as_str()).collect()
}

fn lacking(path: &str, lacks: &[Lack]) -> Finding {
    // One is named: glibc's newest, else the first.
    let glibc = newest(lacks.iter().map(|l| l.version).filter(|v| v.starts_with(GLIBC)));
    let main = lacks.iter().find(|l| Some(l.version) == glibc).unwrap_or(&lacks[0]);
    let (most, library) = (main.version, main.library);
    let family = format!("{}_", most.split('_').next().unwrap_or_default());
    let of_family = library.elf.versions.iter().map(String::as_str);
    let here = newest(of_family.filter(|v| v.starts_with(&family)));
    let mut finding = Finding::fail(ID, format!("the plugin needs {most}"))
        .cause(format!(
            "It was built on a newer system. This one's {} goes up to {}, so the loader refuses the file. The \
             portable build is for glibc 2.34 and newer; one that is made on this system fits it in any case.",
            library.name(),
            here.unwrap_or("no version of that kind")
        ))
        .seen(library.path.clone(), here.unwrap_or("no such versions").to_owned());
    for lack in lacks {
        let symbols = match lack.symbols.len() {
            0 => "no symbol by name".to_owned(),
            n if n > 6 => format!("{} and {} more", lack.symbols[..6].join(", "), n - 6),
            _ => lack.symbols.join(", "),
        };
        finding = finding.seen(format!("{path}, {}", lack.version), symbols);
    }
    finding
}

/// The newest of versions such as `GLIBC_2.9` and `GLIBC_2.34`, of those that are numbers.
fn newest<'a>(versions: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let numbers = |v: &str| -> Option<Vec<u32>> {
        v.split_once('_')?.1.split('.').map(|n| n.parse().ok()).collect()
    };
    versions.filter_map(|v| Some((numbers(v)?, v))).max().map(|(_, v)| v)
}

#[cfg(test)]
mod tests {
    use super::newest;

    #[test]
    fn versions_are_numbers() {
        let of = |all: &[&'static str]| newest(all.iter().copied());
        assert_eq!(of(&["GLIBC_2.9", "GLIBC_2.34", "GLIBC_2.4"]), Some("GLIBC_2.34"));
        assert_eq!(of(&["GLIBC_2.2.5", "GLIBC_2.2", "GLIBC_PRIVATE"]), Some("GLIBC_2.2.5"));
        assert_eq!(of(&["GLIBC_PRIVATE", "x"]), None);
    }
}
