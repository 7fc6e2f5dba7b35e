//! Byte for byte: a checkpoint holds the contents of the files, whatever their names and attributes.

use std::fs;
use std::os::unix::fs::MetadataExt;

use piton::{Settings, UsualModes};
use testkit::{Held, Sandbox, files_in};

use crate::kit::{Dice, left_out, newest, take, take_with, taken};

/// Takes a checkpoint and compares what stock git reads from it with the files.
fn assert_exact(sandbox: &Sandbox) -> String {
    assert_exact_with(sandbox, &Settings::default())
}

fn assert_exact_with(sandbox: &Sandbox, settings: &Settings) -> String {
    let report = take_with(sandbox, &sandbox.project(), settings);
    let id = taken(&report);
    assert_eq!(left_out(&report), [""; 0]);
    let (held, files) = (sandbox.held_by(&id), files_in(&sandbox.project()));
    assert_eq!(held.keys().collect::<Vec<_>>(), files.keys().collect::<Vec<_>>());
    for (path, what) in &files {
        // Comparing the maps as a whole would print megabytes.
        assert!(held[path] == *what, "{:?} differs", String::from_utf8_lossy(path));
    }
    assert_eq!(report.files, files.len() as u64);
    sandbox.assert_store_is_whole();
    id
}

#[test]
fn contents_that_attributes_would_convert_are_kept() {
    let sandbox = Sandbox::new();
    sandbox.write(
        ".gitattributes",
        "* text=auto eol=crlf\n*.c ident\n*.txt working-tree-encoding=UTF-16\n*.bin filter=lfs diff=lfs\n*.no filter=gone\n",
    );
    sandbox.write("crlf", "one\r\ntwo\r\n");
    sandbox.write("mixed", "one\r\ntwo\nthree\rfour\r\r\n");
    sandbox.write("lf", "one\ntwo\n");
    sandbox.write("no-newline", "one");
    sandbox.write("main.c", "/* $Id$ $Id: 0123456789 $ */\n");
    sandbox.write("utf16.txt", b"\xff\xfea\0\r\0\n\0");
    sandbox.write("not-utf16.txt", b"\xd8\x00 plain");
    sandbox.write("lfs.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:0000\nsize 12345\n");
    sandbox.write("filtered.no", "text\r\n");
    sandbox.write("sub/.gitattributes", "* -text\n[attr]broken macro\n\"unterminated");
    sandbox.write("sub/crlf", "one\r\n");
    sandbox.write("binary", (0..=255).cycle().take(10_000).collect::<Vec<u8>>());
    sandbox.write("nul", b"\0");
    sandbox.write("empty", "");
    assert_exact(&sandbox);
}

#[test]
fn names_of_every_legal_kind_are_kept() {
    let sandbox = Sandbox::new();
    let long = [b'x'; 255];
    let names: [&[u8]; 30] = [
        b"new\nline",
        b"-rf",
        b"--",
        b"\xff\xfe\x80",
        &long,
        b" leading",
        b"trailing ",
        b" ",
        b"'single'",
        b"\"double\"",
        b"back\\slash",
        b"\\",
        b"*",
        b"?[a]{b}",
        b"tab\there",
        b"\x01\x1b[31m\x7f",
        "é, e\u{301}, 漢字, 🦀".as_bytes(),
        b"con",
        b"...",
        b"..x",
        b"~",
        b"$HOME",
        b"`x`;|&",
        b"%25",
        b":colon",
        b"@{u}",
        b".gitmodules",
        b".gitkeep",
        b"a.lock",
        b"refs",
    ];
    for name in names {
        sandbox.write(name, name);
        sandbox.write([b"dir/", name, b"/", name].concat(), name);
    }
    // Sorted as git sorts: a directory as if its name ended in a slash.
    sandbox.tree("order/a/x\n order/a.b\n order/a-b\n order/a0\n order/ab/y");
    assert_exact(&sandbox);
}

#[test]
fn links_are_kept_as_links() {
    let sandbox = Sandbox::new();
    sandbox.tree("dir/file\n dangling -> nowhere\n to-dir -> dir\n to-file -> dir/file\n loop -> loop\n up -> ..");
    sandbox.link("outside", "../../etc");
    sandbox.link("absolute", "/etc/passwd");
    sandbox.link("bytes", b"\xff\xfe\n \x01");
    sandbox.link("long", [&b"./".repeat(1999)[..], b"ab"].concat());
    sandbox.link("crlf", "a\r\n");
    for special in [".gitattributes", ".gitmodules", ".mailmap", "sub/.gitignore"] {
        sandbox.link(special, "dir/file");
    }
    let id = assert_exact(&sandbox);
    assert!(matches!(&sandbox.held_by(&id)[&b"long"[..]], Held::Link(target) if target.len() == 4000));
    fs::remove_file(sandbox.path("to-file")).expect("a link");
    sandbox.link("to-file", "dir/elif");
    assert_exact(&sandbox);
}

#[test]
fn permissions_that_git_has_no_room_for_are_in_the_facts() {
    let sandbox = Sandbox::new();
    sandbox.tree(
        "a\n b\n c\n *run\n private\n read-only\n *setuid\n sticky/x\n *odd\n group\n closed/y\n shared/z\n shared/y",
    );
    let modes: [(&str, u32); 8] = [
        ("closed", 0o700),
        ("group", 0o664),
        ("odd", 0o711),
        ("private", 0o600),
        ("read-only", 0o444),
        ("setuid", 0o4755),
        ("shared", 0o2775),
        ("sticky", 0o1777),
    ];
    for usual in ["a", "b", "c"] {
        sandbox.chmod(usual, 0o644);
    }
    for (path, mode) in modes {
        sandbox.chmod(path, mode);
    }
    for inside in ["sticky/x", "closed/y", "shared/z", "shared/y"] {
        sandbox.chmod(inside, 0o644);
    }
    sandbox.tree("d1/x\n d2/x\n d3/x\n d4/x");
    for dir in ["d1", "d2", "d3", "d4"] {
        sandbox.chmod(dir, 0o755);
        sandbox.chmod(format!("{dir}/x"), 0o644);
    }
    sandbox.tree("*run2\n *run3");
    assert_exact(&sandbox);
    let facts = newest(&sandbox).facts;
    assert_eq!(facts.usual, UsualModes { file: 0o644, executable: 0o755, dir: 0o755 });
    let expected = modes.map(|(path, mode)| (path.as_bytes().to_vec(), u16::try_from(mode).expect("a mode")));
    assert_eq!(facts.modes, expected);
}

#[test]
fn the_usual_permissions_are_those_of_most_files() {
    let sandbox = Sandbox::new();
    for path in ["a", "b", "c"] {
        sandbox.write(path, path);
        sandbox.chmod(path, 0o600);
    }
    sandbox.write("d", "d");
    sandbox.chmod("d", 0o644);
    taken(&take(&sandbox));
    let facts = newest(&sandbox).facts;
    assert_eq!((facts.usual.file, facts.modes), (0o600, vec![(b"d".to_vec(), 0o644)]));
}

#[test]
fn empty_directories_are_in_the_facts() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\n empty/\n deep/er/\n full/x\n node_modules/\n only-ignored/x.o");
    fs::create_dir(sandbox.path(b"odd\n\xff name")).expect("a directory");
    taken(&take(&sandbox));
    let expected: [&[u8]; 4] = [b"deep/er", b"empty", b"odd\n\xff name", b"only-ignored"];
    assert_eq!(newest(&sandbox).facts.empty_dirs, expected);
    fs::remove_dir(sandbox.path("empty")).expect("a directory");
    taken(&take(&sandbox));
    assert_eq!(newest(&sandbox).facts.empty_dirs.len(), 3);
}

#[test]
fn large_and_sparse_files_are_kept() {
    let sandbox = Sandbox::new();
    let mut dice = Dice::new(7);
    let noise: Vec<u8> = (0..9 << 20).map(|_| u8::try_from(dice.roll(256)).expect("a byte")).collect();
    sandbox.write("incompressible", &noise);
    sandbox.write("identical", &noise);
    sandbox.write("sub/identical", &noise);
    sandbox.write("compressible", vec![b'z'; 12 << 20]);
    sandbox.write("at-the-limit", &noise[..8 << 20]);
    sandbox.write("above-it", &noise[..(8 << 20) + 1]);
    fs::File::create(sandbox.path("sparse")).and_then(|file| file.set_len(12 << 20)).expect("a sparse file");
    assert!(sandbox.path("sparse").metadata().expect("a file").blocks() < 100);
    let settings = Settings::default().max_file_size_mb(64);
    assert_exact_with(&sandbox, &settings);
    // Five contents, two trees and the commit: identical files are stored once.
    let counts = String::from_utf8_lossy(&sandbox.store_git(&["count-objects", "-v"])).into_owned();
    assert!(counts.contains("in-pack: 8\n"), "{counts}");
    // A large file that the store already has takes no space under another name.
    fs::rename(sandbox.path("sparse"), sandbox.path("renamed")).expect("a rename");
    assert_exact_with(&sandbox, &settings);
    assert_eq!(sandbox.count_objects("blob"), 5);
}

#[test]
fn some_thousand_files_are_kept() {
    let sandbox = Sandbox::new();
    for number in 0..3000 {
        sandbox.write(format!("{}/{}/{number}.txt", number % 7, number % 101), format!("number {}", number % 1500));
    }
    assert_exact(&sandbox);
    for number in (0..3000).step_by(300) {
        sandbox.write(format!("{}/{}/{number}.txt", number % 7, number % 101), "changed");
    }
    assert_exact(&sandbox);
}

/// Creates a directory too deep for any path that a system call accepts, from the inside out.
fn dig(sandbox: &Sandbox, levels: usize) {
    sandbox.tree("shallow.txt\n leaf/deep.txt");
    for _ in 0..levels {
        fs::create_dir(sandbox.path("around")).expect("a directory");
        let inside = [&b"around/"[..], &[b'd'; 200]].concat();
        fs::rename(sandbox.path("leaf"), sandbox.path(inside)).expect("a rename");
        fs::rename(sandbox.path("around"), sandbox.path("leaf")).expect("a rename");
    }
}

#[test]
fn a_path_too_long_for_one_system_call_is_kept() {
    let sandbox = Sandbox::new();
    dig(&sandbox, 25);
    let report = take(&sandbox);
    let id = taken(&report);
    let paths = crate::kit::paths_in(&sandbox, &id);
    assert_eq!(left_out(&report), [""; 0]);
    assert_eq!(paths.len(), 2);
    assert!(paths[0].len() > 5000 && paths[0].ends_with("/deep.txt"), "{paths:?}");
    sandbox.assert_store_is_whole();
    // The next take finds it by its path, and notices that it is gone.
    assert!(matches!(take(&sandbox).outcome, piton::Outcome::Unchanged(_)));
    fs::remove_dir_all(sandbox.path("leaf")).expect("a directory");
    assert_exact(&sandbox);
}

/// T2.
#[test]
fn the_project_is_read_and_never_written() {
    let sandbox = Sandbox::new();
    sandbox.project_git(&["init", "-q"]);
    sandbox.tree("a.txt\n sub/b.txt\n *run\n link -> a.txt\n .env");
    sandbox.project_git(&["add", "a.txt"]);
    let state = || {
        let mut all = Vec::new();
        testkit::walk(&sandbox.root(), &mut |path| {
            let stat = path.symlink_metadata().expect("what was just listed");
            if path.starts_with(sandbox.project()) {
                // A hard link to an object of the repository moves its ctime, and nothing else.
                let is_object = path.starts_with(sandbox.path(".git/objects")) && stat.is_file();
                let changed = if is_object { (0, 0) } else { (stat.ctime(), stat.ctime_nsec()) };
                let modified = (stat.mtime(), stat.mtime_nsec(), stat.mode());
                all.push((path.to_owned(), stat.ino(), changed, modified, stat.len()));
            }
        });
        all.sort();
        all
    };
    let before = state();
    for _ in 0..3 {
        take(&sandbox);
    }
    assert_eq!(state(), before);
}
