//! What must not be used: damaged files, files that others could change, directories that are
//! none.

use super::super::format;
use super::*;
use nix::sys::stat::Mode;
use nix::unistd::{Uid, chown, geteuid, mkfifo};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

/// A file with everything in it: two parts, padding after both, a header with padding.
fn image() -> (Key, Vec<Vec<u8>>, Vec<u8>) {
    let (_dir, store) = store(None);
    let parts = vec![filled(5000, 1), filled(3, 2)];
    assert_eq!(save(&store, &key(7), &parts), Saved::Yes);
    let file = fs::read(path(&store, &key(7))).unwrap();
    (key(7), parts, file)
}

/// Puts `file` where the image of `key` is looked for, as a finished file.
fn plant(store: &Store, key: &Key, file: &[u8]) {
    let path = path(store, key);
    fs::write(&path, file).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
}

/// Refused with a reason that contains `why`, once, and gone; then packed anew.
#[track_caller]
fn refused(store: &Store, why: &str) {
    let (found, said) = warnings(|| loaded(store, &key(7)));
    assert!(found.is_none(), "used, though {why}");
    assert!(said.len() == 1 && said[0].contains(why), "{said:?} instead of {why:?}");
    assert!(path(store, &key(7)).symlink_metadata().is_err(), "{why}: still there");
    assert_eq!(warnings(|| loaded(store, &key(7))), (None, vec![]));
    let parts = vec![vec![5; 50]];
    assert_eq!(save(store, &key(7), &parts), Saved::Yes);
    assert_eq!(loaded(store, &key(7)), Some(parts));
}

/// With a checksum that fits: what only an error in a writer, or a hand, can make.
fn forged(file: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
    let mut file = file.to_vec();
    file[at..at + new.len()].copy_from_slice(new);
    let sum = XxHash3_128::oneshot(&file[..4080]).to_le_bytes();
    file[4080..4096].copy_from_slice(&sum);
    file
}

/// Every single bit of the file: header, table, key, parts, all padding.
#[test]
fn a_flipped_bit_anywhere_is_refused() {
    let (key, _, mut file) = image();
    let key = key.bytes();
    assert!(format::read(&file, &key).is_ok());
    for at in 0..file.len() * 8 {
        file[at / 8] ^= 1 << (at % 8);
        assert!(format::read(&file, &key).is_err(), "bit {at} does not count");
        file[at / 8] ^= 1 << (at % 8);
    }
}

/// Every length but the true one.
#[test]
fn a_file_cut_short_or_grown_is_refused() {
    let (key, _, mut file) = image();
    let key = key.bytes();
    for len in 0..file.len() {
        assert!(format::read(&file[..len], &key).is_err(), "cut to {len}");
    }
    for more in [1, 100, 4095, 4096, 8192] {
        file.resize(16_384 + more, 0);
        assert!(format::read(&file, &key).is_err(), "grown by {more}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The same through the disk.
    #[test]
    fn damage_on_disk_is_refused(bit in 0usize..16_384 * 8, cut in 0usize..16_384, more in 1usize..9000) {
        let (_dir, store) = store(None);
        let (key, parts, file) = image();
        plant(&store, &key, &file);
        prop_assert_eq!(loaded(&store, &key), Some(parts));
        let mut flipped = file.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let grown = [file.as_slice(), &vec![0; more]].concat();
        for bad in [&flipped[..], &file[..cut], &grown] {
            let _ = fs::remove_file(path(&store, &key));
            plant(&store, &key, bad);
            prop_assert_eq!(loaded(&store, &key), None);
            prop_assert!(names(&store).is_empty());
        }
    }

    /// Whatever the bytes are, there is an answer; nearly valid ones reach deeper.
    #[test]
    fn any_bytes_are_answered(
        junk in vec(any::<u8>(), 0..600), at in 0usize..200, new in vec(any::<u8>(), 1..40),
    ) {
        let (key, _, file) = image();
        prop_assert!(format::read(&junk, &key.bytes()).is_err());
        let forged = forged(&file, at, &new);
        prop_assert_eq!(format::read(&forged, &key.bytes()).is_ok(), forged == file);
    }
}

#[test]
fn each_damage_has_its_reason() {
    let (_dir, store) = store(None);
    let (_, _, file) = image();
    let flip = |at: usize| {
        let mut file = file.clone();
        file[at] ^= 4;
        file
    };
    // Offsets from the table of the format; 2 entries, so the key is at 96.
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("it is empty", vec![]),
        ("does not begin like", flip(3)),
        ("it is of version 2", forged(&file, 8, &2u32.to_le_bytes())),
        ("header of 0 bytes cannot be", forged(&file, 12, &0u32.to_le_bytes())),
        ("header of 4294967295 bytes cannot be", forged(&file, 12, &u32::MAX.to_le_bytes())),
        ("cut short", forged(&file, 12, &(1u32 << 16).to_le_bytes())),
        ("header does not match its checksum", flip(40)),
        ("header does not match its checksum", flip(2000)),
        ("is not one that is written", forged(&file, 16, &20_480u64.to_le_bytes())),
        ("cut short", forged(&file, 24, &u32::MAX.to_le_bytes())),
        ("cut short", forged(&file, 28, &u32::MAX.to_le_bytes())),
        // Both parts from the first one's bytes.
        ("is not one that is written", forged(&file, 64, &4096u64.to_le_bytes())),
        ("is not one that is written", forged(&file, 40, &u64::MAX.to_le_bytes())),
        ("image of another key", forged(&file, 96, &[1])),
        ("image of another key", forged(&file, 130, &[9])),
        ("padding of its header", forged(&file, 162, &[1])),
        ("padding of its header", forged(&file, 4079, &[1])),
        ("part 0 does not match", flip(4096)),
        ("part 1 does not match", flip(12_290)),
        ("padding of part 0", flip(4096 + 5000)),
        ("padding of part 1", flip(16_383)),
        ("20480 bytes long", [&file[..], &[0; 4096]].concat()),
        ("12288 bytes long", file[..12_288].to_vec()),
    ];
    for (why, bad) in cases {
        let _ = fs::remove_file(path(&store, &key(7)));
        plant(&store, &key(7), &bad);
        refused(&store, why);
    }
}

/// A sound file under the name of another key: a copy made by hand, or a clash of the hash.
#[test]
fn a_file_under_the_name_of_another_key_is_refused() {
    let (_dir, store) = store(None);
    let (_, _, file) = image();
    plant(&store, &key(8), &file);
    let (found, said) = warnings(|| loaded(&store, &key(8)));
    assert_eq!(found, None);
    assert!(said.len() == 1 && said[0].contains("another key"), "{said:?}");
    assert!(names(&store).is_empty());
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let (dir, store) = store(None);
    let path = path(&store, &key(7));
    let (_, _, file) = image();
    let elsewhere = dir.path().join("sound");
    fs::write(&elsewhere, &file).unwrap();
    type Make<'a> = &'a dyn Fn();
    let kinds: [(&str, Make); 5] = [
        ("symbolic link", &|| symlink(&elsewhere, &path).unwrap()),
        ("symbolic link", &|| symlink("/nowhere/at/all", &path).unwrap()),
        ("no regular file", &|| mkfifo(&path, Mode::from_bits_truncate(0o600)).unwrap()),
        ("no regular file", &|| drop(UnixListener::bind(&path).unwrap())),
        ("no regular file", &|| fs::create_dir(&path).unwrap()),
    ];
    for (why, make) in kinds {
        let _ = fs::remove_file(&path);
        make();
        refused(&store, why);
    }
    assert!(fs::read(elsewhere).unwrap() == file, "what the link led to was touched");
}

/// Not removed, for it is nothing the store made; and not warned of at every load.
#[test]
fn a_directory_with_something_in_it_is_left_to_the_user() {
    let (_dir, store) = store(None);
    let path = path(&store, &key(7));
    fs::create_dir(&path).unwrap();
    fs::write(path.join("mine"), "x").unwrap();
    let (found, said) = warnings(|| (loaded(&store, &key(7)), loaded(&store, &key(7))));
    assert_eq!(found, (None, None));
    assert!(said.len() == 1 && said[0].contains("by hand"), "{said:?}");
    let Saved::No(why) = save(&store, &key(7), &[vec![1]]) else { panic!("saved") };
    assert!(why.contains("remove") && why.contains(path.to_str().unwrap()), "{why}");
    assert!(path.join("mine").exists());
    assert_eq!(names(&store).len(), 1);
}

#[test]
fn a_file_that_others_may_write_is_refused() {
    let (_dir, store) = store(None);
    let (_, parts, file) = image();
    for (mode, fit) in [(0o400, true), (0o644, true), (0o620, false), (0o602, false)] {
        let _ = fs::remove_file(path(&store, &key(7)));
        plant(&store, &key(7), &file);
        fs::set_permissions(path(&store, &key(7)), fs::Permissions::from_mode(mode)).unwrap();
        if fit {
            assert_eq!(loaded(&store, &key(7)).as_ref(), Some(&parts), "mode {mode:o}");
        } else {
            refused(&store, &format!("others may write it (mode {mode:04o})"));
        }
    }
}

/// Needs root, to give a file away.
#[test]
fn what_belongs_to_another_user_is_refused() {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can give a file to another user");
        return;
    }
    let (dir, store) = store(None);
    let (_, _, file) = image();
    plant(&store, &key(7), &file);
    chown(&path(&store, &key(7)), Some(Uid::from_raw(12_345)), None).unwrap();
    refused(&store, "it belongs to user 12345");

    chown(store.path(), Some(Uid::from_raw(12_345)), None).unwrap();
    let told = Store::open(&dir.path().join("packed"), None).unwrap_err().to_string();
    assert!(told.contains("belongs to user 12345") && told.contains("own"), "{told}");
}

/// Needs a user that modes apply to.
#[test]
fn a_directory_without_permission_is_refused_with_the_fix() {
    if geteuid().is_root() {
        eprintln!("skipped: modes do not bind root");
        return;
    }
    let (dir, store) = store(None);
    let mode = |m| fs::set_permissions(store.path(), fs::Permissions::from_mode(m)).unwrap();
    for unfit in [0o500, 0o300, 0o000] {
        mode(unfit);
        let told = Store::open(&dir.path().join("packed"), None).map(drop);
        let loaded = store.load(&key(7)).map(drop);
        mode(0o700);
        let told = told.unwrap_err().to_string();
        assert!(told.contains("chmod u+rwx"), "mode {unfit:o}: {told}");
        // A directory that cannot be searched is for the user to mend.
        assert_eq!(loaded.is_err(), unfit & 0o100 == 0, "mode {unfit:o}");
    }
}

#[test]
fn a_directory_that_is_none_is_refused_with_the_fix() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let told = |name: &str| Store::open(&at(name), None).unwrap_err().to_string();
    fs::write(at("file"), "mine").unwrap();
    symlink("/nowhere/at/all", at("dangling")).unwrap();
    for name in ["file", "file/below", "dangling"] {
        let told = told(name);
        assert!(told.contains(name) && told.contains("another directory"), "{told}");
    }
    assert_eq!(fs::read(at("file")).unwrap(), b"mine");
    for mode in [0o770, 0o707, 0o1777] {
        let name = format!("open-{mode:o}");
        fs::create_dir(at(&name)).unwrap();
        fs::set_permissions(at(&name), fs::Permissions::from_mode(mode)).unwrap();
        let told = told(&name);
        assert!(told.contains("chmod 700") && told.contains(&format!("{mode:04o}")), "{told}");
    }
}

#[test]
fn a_new_directory_and_its_files_are_for_this_user_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o7777;
    let store = Store::open(&dir.path().join("a/b"), None).unwrap().with_reserve(0);
    assert_eq!(mode(store.path()), 0o700);
    assert_eq!(save(&store, &key(1), &[vec![1]]), Saved::Yes);
    assert_eq!(mode(&path(&store, &key(1))), 0o400);
    // One that was there keeps its mode, and may be reached through a link.
    fs::DirBuilder::new().mode(0o755).create(dir.path().join("there")).unwrap();
    symlink("there", dir.path().join("link")).unwrap();
    let store = Store::open(&dir.path().join("link"), None).unwrap().with_reserve(0);
    assert_eq!(store.path(), dir.path().canonicalize().unwrap().join("there"));
    assert_eq!(save(&store, &key(1), &[vec![1]]), Saved::Yes);
    assert_eq!(loaded(&store, &key(1)), Some(vec![vec![1]]));
}

/// The directory goes while the process runs: no image, and words for the next save.
#[test]
fn a_directory_that_goes_away_is_told() {
    let (_dir, store) = store(None);
    fs::remove_dir(store.path()).unwrap();
    assert_eq!(loaded(&store, &key(1)), None);
    let told = store.save(&key(1), &[&[1]]).unwrap_err().to_string();
    assert!(told.contains("start again"), "{told}");
}
