//! The memory that a command needs does not depend on the size of the files.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::process::Stdio;
use std::time::Duration;

use testkit::{Sandbox, clean_command, has_program};

use crate::kit::{PITON, Ran, command, piton};

const PEAK_KIB_MAX: u64 = 300 * 1024;

/// Memory limit of a command for one file that is much larger.
const PEAK_OF_LARGE_FILE_KIB_MAX: u64 = 96 * 1024;

/// Takes a checkpoint without limits. Returns its peak memory, as reported by the kernel.
fn peak_kib(sandbox: &Sandbox) -> u64 {
    let (peak, ran) = peak_of(sandbox, &["take", "--json"]);
    assert_eq!(ran.json()["outcome"], "taken");
    peak
}

/// Runs any command without limits. Returns its peak memory and its result.
fn peak_of(sandbox: &Sandbox, args: &[&str]) -> (u64, Ran) {
    let mut command = command(sandbox);
    command.args(args).env("PITON_MAX_FILE_SIZE_MB", "0").env("PITON_MAX_FILES", "0");
    command.env("PITON_MAX_TOTAL_SIZE_MB", "0").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().expect("a child").is_none() {
        let status = fs::read_to_string(&status).unwrap_or_default();
        let field = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = field.and_then(|field| field.trim().strip_suffix(" kB")?.parse().ok());
        peak = kib.unwrap_or(0).max(peak);
        std::thread::sleep(Duration::from_millis(5));
    }
    let ran = Ran::from(child.wait_with_output().expect("the process ends")).done();
    assert_ne!(peak, 0, "the kernel tells");
    (peak, ran)
}

/// Every command that reads file contents, with a file larger than the memory limit of any of them.
#[test]
fn a_large_file_is_taken_compared_checked_restored_and_kept_in_bounded_memory() {
    const BYTES: u64 = 384 << 20;
    let sandbox = Sandbox::new();
    let large = |mark: &[u8]| {
        let file = File::create(sandbox.path("large")).expect("a file");
        file.set_len(BYTES).and_then(|()| file.write_all_at(mark, BYTES / 2)).expect("room");
    };
    let run = |args: &[&str]| {
        let (peak, ran) = peak_of(&sandbox, args);
        assert!(peak < PEAK_OF_LARGE_FILE_KIB_MAX, "{args:?}: {peak} KiB");
        ran
    };
    let mark = || {
        let (file, mut mark) = (File::open(sandbox.path("large")).expect("a file"), [0; 5]);
        file.read_exact_at(&mut mark, BYTES / 2).expect("a mark");
        assert_eq!(file.metadata().expect("a file").len(), BYTES);
        mark
    };
    large(b"first");
    sandbox.write("small", "1");
    assert_eq!(run(&["take", "--json"]).json()["outcome"], "taken");
    large(b"other");
    let patch = run(&["diff", "1"]).stdout;
    assert!(patch.contains("Binary files a/large and b/large differ"), "{patch}");
    run(&["restore", "1"]);
    assert_eq!(&mark(), b"first");
    run(&["undo"]);
    assert_eq!(&mark(), b"other");
    run(&["verify", "--read-data"]);
    run(&["rollback", "--json"]);
    run(&["prune"]);
    run(&["verify", "--read-data"]);
    sandbox.assert_store_is_whole();
    run(&["redo"]);
    assert_eq!(&mark(), b"first");
}

/// A loose object, as stock git writes it, is read and packed in chunks, too.
#[test]
fn a_large_file_that_stock_git_wrote_is_restored_and_packed_in_bounded_memory() {
    const BYTES: u64 = 256 << 20;
    let sandbox = Sandbox::new();
    sandbox.write("small", "1");
    piton(&sandbox, ["take"]).done();
    let file = File::create(sandbox.path("large")).expect("a file");
    file.set_len(BYTES).expect("a size");
    sandbox.store_git(&["hash-object", "-w", &sandbox.path("large").display().to_string()]);
    let run = |args: &[&str]| {
        let (peak, _) = peak_of(&sandbox, args);
        assert!(peak < PEAK_OF_LARGE_FILE_KIB_MAX, "{args:?}: {peak} KiB");
    };
    let loose = || {
        let dirs = fs::read_dir(sandbox.store().join("objects")).expect("objects").flatten();
        dirs.filter(|dir| dir.file_name().len() == 2 && fs::read_dir(dir.path()).is_ok_and(|dir| dir.count() > 0))
            .count()
    };
    run(&["take"]);
    assert_eq!(loose(), 1);
    fs::remove_file(sandbox.path("large")).expect("a file");
    run(&["restore", "1"]);
    assert_eq!(fs::metadata(sandbox.path("large")).expect("a file").len(), BYTES);
    run(&["prune"]);
    assert_eq!(loose(), 0, "it is in a pack");
    sandbox.assert_store_is_whole();
    run(&["undo"]);
    assert!(!sandbox.path("large").exists());
}

/// The pack of a large file is written while the file is read, which happens once.
#[test]
fn a_large_file_that_is_new_is_read_once() {
    if !has_program("strace") {
        return;
    }
    let sandbox = Sandbox::new();
    let mut dice = testkit::Dice::new(7);
    let noise: Vec<u8> = (0..12).flat_map(|_| dice.noise(1 << 20)).collect();
    sandbox.write("large", &noise);
    let read_bytes = || {
        let trace = sandbox.root().join("trace");
        let mut strace = clean_command("strace");
        strace.args(["-f", "-qq", "-y", "-e", "trace=read,pread64", "-o"]).arg(&trace).arg(PITON).args(["take"]);
        strace.env("HOME", sandbox.home()).env("PITON_MAX_FILE_SIZE_MB", "0").current_dir(sandbox.project());
        assert!(strace.output().expect("strace runs").status.success());
        let trace = fs::read_to_string(trace).expect("a trace");
        let of_file = trace.lines().filter(|line| line.contains("/large>"));
        of_file.filter_map(|line| line.rsplit("= ").next()?.trim().parse::<usize>().ok()).sum::<usize>()
    };
    assert_eq!(read_bytes(), noise.len());
    // Touched but unchanged: it is read for its id, and nothing is written.
    let file = File::options().write(true).open(sandbox.path("large")).expect("a file");
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("a time");
    assert_eq!(read_bytes(), noise.len());
    sandbox.assert_store_is_whole();
}

#[test]
fn a_file_of_two_gigabytes_is_taken_in_bounded_memory() {
    let sandbox = Sandbox::new();
    let file = File::create(sandbox.path("large")).expect("a file");
    file.set_len(2 << 30).expect("a size");
    let peak = peak_kib(&sandbox);
    assert!(peak < PEAK_KIB_MAX, "{peak} KiB");
}

#[test]
fn fifty_thousand_files_are_taken_in_bounded_memory() {
    let sandbox = Sandbox::new();
    for dir in 0..500 {
        let dir = sandbox.path(format!("dir-{dir}"));
        fs::create_dir(&dir).expect("a directory");
        for n in 0..100 {
            fs::write(dir.join(format!("a-file-with-a-longer-name-{n}.txt")), format!("{} {n}\n", dir.display()))
                .expect("a file");
        }
    }
    let peak = peak_kib(&sandbox);
    assert!(peak < PEAK_KIB_MAX, "{peak} KiB");
}
