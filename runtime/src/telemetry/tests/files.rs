//! What is no file of counters, or not one to trust.

use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

fn why(path: &Path) -> String {
    read(path).unwrap_err().to_string()
}

fn changed(dir: &Path, change: impl FnOnce(&mut Vec<u8>)) -> PathBuf {
    let w = writer(dir);
    let mut bytes = fs::read(w.path()).unwrap();
    drop(w);
    change(&mut bytes);
    let path = dir.join("rocket-counters-1-0123456789abcdef");
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn other_versions_are_refused_with_what_to_do() {
    let dir = folder();
    for (version, fix) in
        [(2, "tools of the plugin's"), (u32::MAX, "tools"), (0, "update the plugin")]
    {
        let path = changed(dir.path(), |b| {
            l::put_u32(b, header::VERSION, version);
            // Whatever a version means by the rest.
            b[header::SIZE..].fill(0xee);
        });
        let words = why(&path);
        assert!(words.contains(&format!("version {version}")) && words.contains(fix), "{words}");
    }
}

#[test]
fn what_is_no_plain_file_is_not_opened_for_long() {
    let dir = folder();
    let w = writer(dir.path());
    let link = dir.path().join("rocket-counters-2-0123456789abcdef");
    symlink(w.path(), &link).unwrap();
    assert!(why(&link).contains("a symbolic link"));
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(why(&pipe).contains("not a plain file"), "and does not wait for a writer");
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    assert!(why(&dir.path().join("socket")).contains("a socket"));
    assert!(why(dir.path()).contains("a directory"));
    assert!(why(Path::new("/dev/zero")).contains("a device"));
    assert!(why(&dir.path().join("none")).contains("cannot be read"));
    // The link is neither followed nor removed.
    let found = scan(&[dir.path().to_owned()]);
    assert_eq!(found.iter().filter(|f| f.figures.is_ok()).count(), 1);
    assert_eq!(found.iter().filter(|f| f.figures.is_err()).count(), 1);
    assert!(clean(&[dir.path().to_owned()], &Keep::NOTHING).removed.is_empty());
    assert!(link.symlink_metadata().is_ok());
}

#[test]
fn a_file_of_another_owner_than_it_says() {
    let dir = folder();
    let user = nix::unistd::geteuid().as_raw();
    let path = changed(dir.path(), |b| {
        l::put_u32(b, header::UID, user + 1);
        seal(b);
    });
    let words = why(&path);
    assert!(words.contains(&format!("belongs to user {user}")), "{words}");
    assert!(words.contains(&format!("says that user {} wrote", user + 1)), "{words}");
}

#[test]
fn cut_and_grown_files() {
    let dir = folder();
    let good = fs::read(writer(dir.path()).path()).unwrap();
    let path = dir.path().join("f");
    for len in [0, 1, 7, 8, 11, 100, 255, 4096, l::ROWS, l::SIZE - 1, l::SIZE + 1] {
        let mut bytes = good.clone();
        bytes.resize(len, 0);
        fs::write(&path, bytes).unwrap();
        let words = why(&path);
        let expected = if (1..16).contains(&len) { "does not begin" } else { "bytes instead of" };
        assert!(words.contains(expected), "{len}: {words}");
    }
    fs::write(&path, &good).unwrap();
    assert!(read(&path).is_ok());
    // A file larger than memory is not read to its end.
    fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    assert!(why(&path).contains("1099511627776 bytes"));
}

/// A file that is being made is nobody's yet; one that was never finished goes.
#[test]
fn unfinished_files() {
    let dir = folder();
    let dirs = [dir.path().to_owned()];
    let path = dir.path().join(".rocket-counters-1-0123456789abcdef");
    fs::write(&path, b"half").unwrap();
    assert!(scan(&dirs).is_empty());
    assert!(clean(&dirs, &Keep::NOTHING).removed.is_empty());
    let then = SystemTime::now() - Duration::from_secs(61);
    fs::File::options().write(true).open(&path).unwrap().set_modified(then).unwrap();
    assert_eq!(clean(&dirs, &Keep::NOTHING).removed, [path]);
}

/// Nothing but files of that name is looked at, let alone removed.
#[test]
fn other_names_are_left_alone() {
    let dir = folder();
    for name in [
        "sem.x",
        "rocket-counters-",
        "rocket-counters-1",
        "rocket-counters-1-xyz",
        "rocket-counters-x-0123456789abcdef",
        "rocket-counters-1-0123456789abcdef0",
        "rocket-counters-99999999999-0123456789abcdef",
        "rocket-counters--0123456789abcdef",
    ] {
        fs::write(dir.path().join(name), b"").unwrap();
    }
    let dirs = [dir.path().to_owned()];
    assert!(scan(&dirs).is_empty() && clean(&dirs, &Keep::NOTHING).removed.is_empty());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 8);
}

#[test]
fn where_writers_and_readers_look() {
    let all = |v: &[&str]| v.iter().map(PathBuf::from).collect::<Vec<_>>();
    let paths = |get: &dyn Fn(&str) -> Option<std::ffi::OsString>| {
        writer_directories(get).into_iter().map(|d| d.path).collect::<Vec<_>>()
    };
    assert_eq!(paths(&|_| None), all(&["/run/rocket", "/dev/shm"]));
    let runtime = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| "/run/user/7".into());
    assert_eq!(paths(&runtime), all(&["/run/rocket", "/run/user/7/rocket", "/dev/shm"]));
    // A relative one means nothing (the base directory specification).
    assert_eq!(paths(&|_| Some("x".into())), all(&["/run/rocket", "/dev/shm"]));

    let root = folder();
    for dir in ["run/rocket", "run/user/1000/rocket", "run/user/1001", "dev/shm", "own/rocket"] {
        fs::create_dir_all(root.path().join(dir)).unwrap();
    }
    let found = directories(root.path(), Some(&root.path().join("own")));
    let expected = ["dev/shm", "own/rocket", "run/rocket", "run/user/1000/rocket"];
    assert_eq!(found, expected.map(|d| root.path().join(d)));
    assert!(directories(&root.path().join("nowhere"), None).is_empty());
}

/// A user's own directory is made, for that user alone.
#[test]
fn a_users_directory_is_made() {
    let dir = folder();
    let path = dir.path().join("rocket");
    let make = Directory { path: path.clone(), make: true };
    let first = Writer::create(std::slice::from_ref(&make), &[]).unwrap();
    let second = Writer::create(&[make], &[]).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700);
    assert_eq!(scan(&[path]).len(), 2);
    assert_ne!(first.path(), second.path());
}
