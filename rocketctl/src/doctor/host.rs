//! The host that was named by `--host`, a program or a folder of ggml's libraries: what its files say, without
//! running any of them (ggml-abi 7.1).

mod closure;
mod generation;
mod loading;

pub use closure::{Closure, Object};
pub use generation::{Static, generation};
pub use loading::{Asks, asks};

use super::plugin::quoted;
use crate::elf::{self, Files, Kind, Search};
use anyhow::{Result, bail};
use rocket_runtime::board::{Absent, Reading, Root};

/// Names of programs that hosts bring; others in their folders are not looked at.
const PROGRAMS: [&str; 6] =
    ["llama-", "whisper-", "parakeet-", "rpc-server", "test-backend-ops", "mtmd-"];
/// Most programs of a folder that are looked at.
const MOST_PROGRAMS: usize = 64;
/// Most modules that are looked at: Debian brings fourteen of the CPU backend.
const MOST_MODULES: usize = 64;

/// A host.
#[derive(Debug)]
pub struct Host {
    /// As it was named, from the root on.
    pub path: String,
    /// The system that it lives in, where that is another one: a container's, an unpacked one.
    pub own_root: Option<Root>,
    /// The program, where one was named, or why it cannot be read.
    pub program: Option<Reading<Object>>,
    /// Programs of a folder that use ggml, and what each is loaded with.
    pub programs: Vec<(Object, Closure)>,
    /// What is loaded along with the program, or with ggml's libraries of the folder.
    pub libraries: Closure,
    /// Backends as files of their own, which the loader looks for.
    pub modules: Vec<Object>,
}

impl Host {
    /// Reads what lies at a path below the root.
    ///
    /// # Errors
    /// There is nothing.
    pub fn read(root: &Root, path: &str, library_path: Option<&str>) -> Result<Host> {
        if root.exists(path) != Ok(true) {
            bail!(
                "--host {path}: there is no such file or folder; name a program or a folder of ggml's libraries"
            );
        }
        let (own_root, inside) = match own_root(root, path) {
            Some((own, inside)) => (Some(own), inside),
            None => (None, path.to_owned()),
        };
        let system = own_root.as_ref().unwrap_or(root);
        let library_path = library_path.filter(|_| own_root.is_none());
        let read = Reader { files: &Files::of(system), library_path };
        let (program, programs, libraries, modules) = match system.names(&inside) {
            Err(_) => {
                let (program, libraries) = read.program(&inside);
                let folder = folder_of(&inside);
                let modules = read.modules(&libraries, &[folder]);
                (Some(program), Vec::new(), libraries, modules)
            }
            Ok(_) => {
                let (libraries, programs) = read.folder(&inside);
                let modules = read.modules(&libraries, &[&inside]);
                (None, programs, libraries, modules)
            }
        };
        Ok(Host { path: path.to_owned(), own_root, program, programs, libraries, modules })
    }

    /// The command that looks at this host again.
    pub fn verify(&self, id: &str) -> String {
        format!("rocketctl doctor --host {} --only {id}", quoted(&self.path))
    }

    /// `libggml-base`: the data plane and the device interface.
    pub fn base(&self) -> Option<&Object> {
        self.libraries.named("libggml-base.so")
    }

    /// `libggml`: the registry and the loader.
    pub fn ggml(&self) -> Option<&Object> {
        self.libraries.named("libggml.so")
    }

    /// Whether backends are loaded from files of their own; none without a shared ggml.
    pub fn loads_modules(&self) -> Option<bool> {
        Some(!self.ggml()?.elf.needs_library("libggml-cpu"))
    }

    /// The CPU backend's files: modules, or the library that ggml is linked with.
    pub fn cpu(&self) -> impl Iterator<Item = &Object> {
        let linked = self.libraries.objects.iter().filter(|o| o.name().starts_with("libggml-cpu"));
        self.modules.iter().filter(|o| o.name().starts_with("libggml-cpu")).chain(linked)
    }

    /// Every program that was named or found, and what it is loaded with.
    pub fn all_programs(&self) -> Vec<(&Object, &Closure)> {
        let named = self.program.as_ref().and_then(|p| p.as_ref().ok());
        let named = named.map(|p| (p, &self.libraries)).into_iter();
        named.chain(self.programs.iter().map(|(p, c)| (p, c))).collect()
    }

    /// The processor that its files are for.
    pub fn machine(&self) -> Option<u16> {
        let program = self.program.as_ref().and_then(|p| p.as_ref().ok());
        program.or(self.base()).or(self.libraries.objects.first()).map(|o| o.elf.machine)
    }
}

/// The nearest folder above with a system of its own: a C library's loader, and `usr`, which tells it from `/usr`.
fn own_root(root: &Root, path: &str) -> Option<(Root, String)> {
    const LOADERS: [&str; 4] = [
        "lib64/ld-linux-x86-64.so.2",
        "lib/ld-linux-aarch64.so.1",
        "lib/ld-musl-x86_64.so.1",
        "lib/ld-musl-aarch64.so.1",
    ];
    let mut above = path.trim_end_matches('/');
    while !above.is_empty() {
        let has = |p: &str| root.exists(&format!("{above}/{p}")) == Ok(true);
        if has("usr") && LOADERS.iter().any(|l| has(l)) {
            let own = root.below(above).ok()?;
            let inside = path.get(above.len()..).filter(|p| !p.is_empty()).unwrap_or("/");
            return Some((own, inside.to_owned()));
        }
        above = above.rsplit_once('/')?.0;
    }
    None
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("/", |(dir, _)| if dir.is_empty() { "/" } else { dir })
}

struct Reader<'a> {
    files: &'a Files<'a>,
    library_path: Option<&'a str>,
}

impl Reader<'_> {
    fn search(&self, machine: u16) -> Search<'_> {
        Search::new(self.files, &elf::machine_name(machine), self.library_path)
    }

    fn object(&self, path: &str) -> Reading<Object> {
        self.files.read(path).map(|elf| Object { path: path.to_owned(), elf })
    }

    fn program(&self, path: &str) -> (Reading<Object>, Closure) {
        let program = self.object(path);
        let libraries = match &program {
            Ok(p) => Closure::of(&self.search(p.elf.machine), p),
            Err(_) => Closure::default(),
        };
        (program, libraries)
    }

    /// Folders in which libraries and programs of an installation or a build lie.
    fn places(&self, folder: &str) -> Vec<String> {
        let folder = folder.trim_end_matches('/');
        let multiarch = ["x86_64", "aarch64"].map(|m| format!("/usr/lib/{m}-linux-gnu"));
        let usual =
            ["", "/lib", "/lib64", "/bin", "/build/bin", "/usr/lib", "/usr/lib64", "/usr/bin"];
        let lib = ["x86_64", "aarch64"].map(|m| format!("/lib/{m}-linux-gnu"));
        let all = usual.iter().map(|s| (*s).to_owned()).chain(lib).chain(multiarch);
        all.map(|s| format!("{folder}{s}")).collect()
    }

    /// ggml's libraries of a folder and the programs beside them.
    fn folder(&self, folder: &str) -> (Closure, Vec<(Object, Closure)>) {
        let places = self.places(folder);
        let starts = |prefix: &'static str| {
            places.iter().find_map(|place| {
                let names = self.files.root.names(place).ok()?;
                let name = names.into_iter().find(|n| n.starts_with(prefix))?;
                self.object(&format!("{place}/{name}")).ok()
            })
        };
        let mut libraries = Closure::default();
        // What a program would bring along: the registry, and what hosts put around it.
        for prefix in
            ["libggml.so", "libggml-base.so", "libllama.so", "libwhisper.so", "libmtmd.so"]
        {
            if let Some(object) = starts(prefix) {
                let search = self.search(object.elf.machine);
                libraries.add(&search, object);
            }
        }
        let mut programs = Vec::new();
        for place in &places {
            let names = self.files.root.names(place).unwrap_or_default();
            let known =
                |n: &String| PROGRAMS.iter().any(|p| n.starts_with(p)) && !n.contains(".so");
            for name in names.into_iter().filter(known) {
                if programs.len() >= MOST_PROGRAMS {
                    break;
                }
                let (program, closure) = self.program(&format!("{place}/{name}"));
                match program {
                    Ok(p) if p.elf.kind == Kind::Program => programs.push((p, closure)),
                    _ => {}
                }
            }
        }
        (libraries, programs)
    }

    /// Files `libggml-*.so` where the loader looks: beside the program, and in a folder of their own below that of
    /// the libraries (ggml-abi 4).
    fn modules(&self, libraries: &Closure, folders: &[&str]) -> Vec<Object> {
        let mut places: Vec<String> = folders.iter().map(|f| (*f).to_owned()).collect();
        let beside = ["libggml.so", "libggml-base.so"].iter().filter_map(|n| libraries.named(n));
        for folder in beside.map(|o| folder_of(&o.path).to_owned()).collect::<Vec<_>>() {
            let own = format!("{folder}/ggml");
            for name in self.files.root.names(&own).unwrap_or_default() {
                places.push(format!("{own}/{name}"));
            }
            places.push(folder);
        }
        places.sort();
        places.dedup();
        let mut modules = Vec::new();
        for place in places {
            for name in self.files.root.names(&place).unwrap_or_default() {
                let module = name.starts_with("libggml-")
                    && name.ends_with(".so")
                    && !name.starts_with("libggml-base");
                let path = format!("{}/{name}", place.trim_end_matches('/'));
                let linked = libraries.objects.iter().any(|o| o.path == path || o.same_name(&name));
                if module && !linked && modules.len() < MOST_MODULES {
                    modules.extend(self.object(&path).ok());
                }
            }
        }
        modules
    }
}

/// Why a named program cannot be looked into.
pub fn unreadable(host: &Host) -> Option<&Absent> {
    host.program.as_ref()?.as_ref().err()
}
