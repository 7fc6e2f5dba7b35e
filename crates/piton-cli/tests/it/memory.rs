//! What a take needs of memory does not depend on what there is to take.

use std::fs::{self, File};
use std::process::Stdio;
use std::time::Duration;

use testkit::Sandbox;

use crate::kit::{Ran, command};

const PEAK_KIB_MAX: u64 = 300 * 1024;

/// Takes a checkpoint without limits. The largest amount of memory that was in use, as the kernel remembers it.
fn peak_kib(sandbox: &Sandbox) -> u64 {
    let mut command = command(sandbox);
    command.args(["take", "--json"]).env("PITON_MAX_FILE_SIZE_MB", "0").env("PITON_MAX_FILES", "0");
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
    assert_eq!(ran.json()["outcome"], "taken");
    assert_ne!(peak, 0, "the kernel tells");
    peak
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
