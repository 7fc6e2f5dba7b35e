//! A configuration file that others break, replace or let grow: protection stays on, and saved checkpoints stay
//! reachable.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::json;
use testkit::{Sandbox, clean_command};

use crate::hook_kit::{hook_command, send};
use crate::kit::{command, ids, in_dir, piton, run};

fn file(sandbox: &Sandbox) -> PathBuf {
    sandbox.home().join(".hermes/config.yaml")
}

fn configure(sandbox: &Sandbox, text: &str) {
    fs::create_dir_all(file(sandbox).parent().expect("a directory")).expect("a directory");
    fs::write(file(sandbox), text).expect("a file");
}

/// Sends the event of an agent that is about to run a command, with nothing in the environment that enables
/// checkpoints.
fn hook(sandbox: &Sandbox, turn: &str) {
    let event = json!({
        "hook_event_name": "PreToolUse", "session_id": "s", "prompt_id": turn, "cwd": sandbox.project(),
        "transcript_path": "/t", "tool_name": "Bash", "tool_input": {"command": "make"},
    });
    let mut command = hook_command(sandbox, &["claude"]);
    send(command.env_remove("PITON_ENABLED"), event.to_string()).done();
}

/// Returns the problems that `status` shows to a user.
fn problems(sandbox: &Sandbox) -> String {
    run(in_dir(sandbox, &sandbox.root()).args(["status", "--json"])).done().json()["problems"].to_string()
}

/// Files with syntax errors in different places; none of them disables checkpoints.
const BROKEN: [&str; 5] = [
    "model: [\ncheckpoints:\n  enabled: true\n",
    "checkpoints:\n  enabled: true\nmcp:\n\t- x: {\n",
    "checkpoints:\n  enabled: true\n  exclude: [a\n",
    "checkpoints:\n  enabled: yess\n",
    "checkpoints: [",
];

#[test]
fn a_mistake_in_the_file_never_switches_the_hooks_off_and_is_shown() {
    for text in BROKEN {
        let sandbox = Sandbox::new();
        sandbox.tree("a.txt");
        configure(&sandbox, text);
        hook(&sandbox, "1");
        assert_eq!(ids(&sandbox).len(), 1, "{text:?}");
        assert!(problems(&sandbox).contains("config.yaml"), "{text:?}: {}", problems(&sandbox));
        let noted = piton::Journal::at(&sandbox.base()).recent(10);
        assert!(noted.iter().any(|event| event.what.starts_with("the configuration ")), "{text:?}: {noted:?}");
        let doctor = run(command(&sandbox).args(["doctor", "--json"]));
        assert!(doctor.stdout.contains("config.yaml"), "{text:?}: {doctor:?}");
    }
    for text in ["checkpoints:\n  enabled: false\n", "other: [\ncheckpoints:\n  enabled: false\n", "other: 1\n"] {
        let sandbox = Sandbox::new();
        sandbox.tree("a.txt");
        configure(&sandbox, text);
        hook(&sandbox, "1");
        assert!(!sandbox.store().exists() || ids(&sandbox).is_empty(), "{text:?}");
    }
}

#[test]
fn looking_and_restoring_work_whatever_the_file_says() {
    for text in BROKEN.iter().copied().chain(["checkpoints:\n  max_files: many\n", "- a\n", "\u{0}"]) {
        let sandbox = Sandbox::new();
        sandbox.tree("a.txt = one");
        piton(&sandbox, ["take"]).done();
        sandbox.tree("a.txt = two");
        configure(&sandbox, text);
        for args in [
            &["rollback"][..],
            &["show", "1"],
            &["diff", "1"],
            &["restore", "1", "-y"],
            &["undo", "-y"],
            &["redo", "-y"],
        ] {
            let ran = piton(&sandbox, args).done();
            assert!(ran.stderr.contains("warning: ") && ran.stderr.contains("config.yaml"), "{args:?}: {ran:?}");
        }
        assert_eq!(fs::read_to_string(sandbox.path("a.txt")).expect("a file"), "one", "{text:?}");
        piton(&sandbox, ["rollback", "1", "-y"]).done();
    }
}

#[test]
fn what_is_no_regular_file_or_too_large_is_refused_without_reading_it() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one");
    piton(&sandbox, ["take"]).done();
    sandbox.tree("a.txt = two");
    configure(&sandbox, "");
    let path = file(&sandbox);
    let replace_by: [(&str, &dyn Fn()); 3] = [
        ("it is not a regular file", &|| symlink("/dev/zero", &path).expect("a link")),
        ("it is not a regular file", &|| {
            assert!(clean_command("mkfifo").arg(&path).status().expect("mkfifo runs").success());
        }),
        ("it is too large", &|| fs::File::create(&path).and_then(|file| file.set_len(1 << 33)).expect("a file")),
    ];
    for (why, make) in replace_by {
        fs::remove_file(&path).expect("what was there goes");
        make();
        let refused = piton(&sandbox, ["take"]).failed(2);
        assert!(refused.stderr.contains(why) && refused.stderr.contains("hint: "), "{refused:?}");
        hook(&sandbox, why);
        let restored = piton(&sandbox, ["restore", "1", "--dry-run", "--json"]).done();
        assert!(restored.stderr.contains(why), "{restored:?}");
        assert!(problems(&sandbox).contains(why), "{}", problems(&sandbox));
    }
    assert_eq!(ids(&sandbox).len(), 2, "the hook took what it saw");
}

#[test]
fn a_session_name_of_a_megabyte_does_not_fill_the_journal() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt\nb.txt");
    let names = ["x".repeat(1 << 20), "x".repeat(1 << 20) + "y"];
    for session in names.iter().chain(&names).chain(&names) {
        let event = json!({
            "hook_event_name": "PreToolUse", "session_id": session, "prompt_id": session, "cwd": sandbox.project(),
            "transcript_path": "/t", "tool_name": "Bash", "tool_input": {"command": "make"},
        });
        send(hook_command(&sandbox, &["claude"]).env("PITON_MAX_FILES", "1"), event.to_string()).done();
    }
    let journal = piton::Journal::at(&sandbox.base());
    let events = journal.recent(100);
    assert_eq!(events.len(), 2, "one for each of two sessions: {events:?}");
    assert!(events.iter().all(|event| event.session.as_ref().is_some_and(|name| name.len() <= 200)));
    assert_ne!(events[0].session, events[1].session);
}

#[test]
fn a_number_that_is_none_is_refused_in_plain_words() {
    let sandbox = Sandbox::new();
    for (args, why) in [
        (&["status", "--limit", "x"][..], "it must be a whole number"),
        (&["status", "--limit=-1"], "it must be a whole number"),
        (&["prune", "--retention-days", "99999999999999999999999"], "the number is too large"),
    ] {
        let ran = piton(&sandbox, args).failed(2);
        assert!(ran.stderr.contains(why) && !ran.stderr.contains("digit found"), "{ran:?}");
    }
}
