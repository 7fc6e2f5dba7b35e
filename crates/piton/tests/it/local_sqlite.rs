//! SQLite databases among local files, while a program writes to them at full speed: every copy that is saved opens and
//! is whole, or the database is reported as in use.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use piton::{Report, Settings};
use testkit::{Sandbox, clean_command, has_program};

use crate::kit::{cases, now, project_id, settled, take_at, taken};

/// Writes rows of random bytes until it is killed, in transactions of different sizes.
const WRITER: &str = r#"
import os, random, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode=" + sys.argv[2])
connection.execute("PRAGMA synchronous=OFF")
connection.execute("CREATE TABLE IF NOT EXISTS t (k INTEGER PRIMARY KEY, n INTEGER, v BLOB)")
connection.execute("CREATE INDEX IF NOT EXISTS i ON t (v)")
print("ready", flush=True)
turn = 0
while True:
    turn += 1
    connection.execute("BEGIN IMMEDIATE")
    for _ in range(random.choice([1, 5, 50])):
        connection.execute("REPLACE INTO t VALUES (?, ?, ?)", (random.randrange(500), turn, os.urandom(random.randrange(600))))
    connection.execute("COMMIT")
"#;

/// Prints `ok` if a database is whole.
const CHECK: &str = r#"
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute("PRAGMA integrity_check").fetchone()[0])
connection.execute("SELECT count(*), max(n) FROM t").fetchone()
"#;

struct Writer(Child);

impl Writer {
    fn start(database: &Path, mode: &str) -> Self {
        let mut command = clean_command("python3");
        command.args(["-c", WRITER]).arg(database).arg(mode).stdout(Stdio::piped()).stdin(Stdio::null());
        let mut child = command.spawn().expect("python3 starts");
        let mut ready = [0; 5];
        std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut ready).expect("it is ready");
        Self(child)
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.0.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Stops the process, wherever it is, and blocks until it has stopped.
    fn pause(&self) {
        self.signal("-STOP");
        let stat = format!("/proc/{}/stat", self.0.id());
        while !fs::read_to_string(&stat).expect("a process").contains(") T ") {
            std::thread::yield_now();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes the saved copy of the database to a directory of its own, and has SQLite check it.
#[track_caller]
fn assert_copy_is_whole(sandbox: &Sandbox, report: &Report, mode: &str) {
    let state = format!("refs/local/{}/{}:files/data", project_id(sandbox), taken(report));
    let listing = sandbox.store_git(&["ls-tree", "--name-only", &state]);
    let names = String::from_utf8(listing).expect("names");
    let dir = tempfile::tempdir().expect("a directory");
    assert!(names.lines().any(|name| name == "x.db"), "{mode}: {names}");
    for name in names.lines() {
        fs::write(dir.path().join(name), sandbox.store_git(&["cat-file", "blob", &format!("{state}/{name}")]))
            .expect("a file");
    }
    let output =
        clean_command("python3").args(["-c", CHECK]).arg(dir.path().join("x.db")).output().expect("python3 runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.trim() == "ok",
        "{mode}: {names}: {said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_database_under_full_load_is_saved_whole_or_reported_as_in_use() {
    if !has_program("python3") {
        return;
    }
    let until = Instant::now() + Duration::from_secs(cases("PITON_SQLITE_SECONDS", 0));
    let (mut saved, mut in_use, mut rounds) = (0, 0, 0);
    while rounds < 1 || Instant::now() < until {
        rounds += 1;
        for mode in ["WAL", "DELETE", "TRUNCATE", "PERSIST"] {
            let sandbox = Sandbox::new();
            sandbox.write(".gitignore", "data/\n");
            sandbox.write("data/other", "");
            let writer = Writer::start(&sandbox.project().join("data/x.db"), mode);
            for number in 0..6 {
                sandbox.write("main.rs", format!("{number}"));
                let report = take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), now());
                let local = report.local.clone().expect("local files");
                if local.in_use.contains(&b"data/x.db".to_vec()) {
                    in_use += 1;
                } else {
                    assert_copy_is_whole(&sandbox, &report, mode);
                    saved += 1;
                }
                // Nothing is written for a while: the next copy is whole.
                writer.pause();
                sandbox.write("main.rs", format!("{number}, paused"));
                let report = take_at(&sandbox.base(), &sandbox.project(), &Settings::default(), settled());
                assert_eq!(report.local.clone().expect("local files").in_use, Vec::<Vec<u8>>::new(), "{mode}");
                assert_copy_is_whole(&sandbox, &report, mode);
                writer.signal("-CONT");
            }
        }
    }
    #[expect(clippy::print_stdout, reason = "the result of a long run")]
    if rounds > 1 {
        println!("{rounds} rounds: {saved} copies under load were whole, {in_use} were reported as in use");
    }
    assert!(saved + in_use == rounds * 24);
}
