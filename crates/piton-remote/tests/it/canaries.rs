//! Nothing that identifies a person or a file is readable in the bucket.

use std::fs;

use testkit::Dice;

use crate::kit::{Machine, Place};

/// Random text, different in every place where it is planted.
struct Canaries(Dice, Vec<(String, String)>);

impl Canaries {
    fn plant(&mut self, place: &str) -> String {
        let text: String = self.0.noise(8).iter().map(|byte| format!("{byte:02x}")).collect();
        self.1.push((place.to_owned(), text.clone()));
        text
    }
}

fn planted(place: &Place, is_encrypted: bool) -> (Canaries, Machine) {
    let mut canaries = Canaries(Dice::new(11), Vec::new());
    let machine = Machine::new(&canaries.plant("machine"), place);
    let mut args = vec!["add".to_owned(), place.url()];
    if !is_encrypted {
        args.push("--no-encryption".to_owned());
    }
    machine.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
    machine.clone_of(&format!("https://{}.example/a/b", canaries.plant("repository")));
    machine.write(&canaries.plant("name"), canaries.plant("contents"));
    machine.write(&format!("{}/x", canaries.plant("directory")), "x");
    machine.write(".gitignore", "ignored/\n");
    machine.write(".env", canaries.plant("secret"));
    machine.write("ignored/notes", canaries.plant("ignored"));
    // As a kept file, and as a git state.
    let kept = machine.base().join("local/files/x");
    machine.take(&canaries.plant("reason"));
    fs::create_dir_all(&kept).expect("a directory");
    fs::write(kept.join("data"), canaries.plant("kept")).expect("a file");
    let state = machine.base().join("local/git/x");
    fs::create_dir_all(&state).expect("a directory");
    fs::write(state.join("y"), canaries.plant("git state")).expect("a file");
    machine.run(&["push", "--prompt-text", "none"]);
    (canaries, machine)
}

fn found_in(place: &Place, text: &str) -> bool {
    let has = |bytes: &[u8]| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    place.keys().iter().any(|key| key.contains(text) || has(&place.get(key)))
}

/// B14.
#[test]
fn no_name_path_reason_or_content_is_readable_in_the_bucket() {
    for place in [Place::directory(), Place::server()] {
        let (canaries, machine) = planted(&place, true);
        for (kind, text) in &canaries.1 {
            assert!(!found_in(&place, text), "{kind}");
        }
        let user = machine.sandbox.root().to_str().expect("a path").to_owned();
        assert!(!found_in(&place, &user), "the directory");
        assert!(!place.below("pack/").is_empty());
    }
}

/// Z4: by objects, since packs are compressed.
#[test]
fn ignored_and_kept_files_never_leave_the_machine_not_even_in_the_clear() {
    let place = Place::directory();
    let (canaries, machine) = planted(&place, false);
    let git = machine.sandbox.root().join("git");
    let run = |args: &[&str]| {
        let output = testkit::git().current_dir(machine.sandbox.root()).args(args).output().expect("git");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let dir = git.to_str().expect("a path");
    run(&["init", "--bare", "-q", dir]);
    for key in place.below("pack/") {
        let file = git.join("objects/pack").join(format!("pack-{}.pack", &key[5..]));
        fs::write(&file, place.get(&key)).expect("a pack");
        run(&["--git-dir", dir, "index-pack", file.to_str().expect("a path")]);
    }
    let all = run(&["--git-dir", dir, "cat-file", "--batch-all-objects", "--batch", "--buffer"]);
    let has = |text: &str| all.windows(text.len()).any(|window| window == text.as_bytes());
    for (kind, text) in &canaries.1 {
        match kind.as_str() {
            "secret" | "ignored" | "kept" | "git state" => assert!(!has(text) && !found_in(&place, text), "{kind}"),
            "contents" | "reason" => assert!(has(text), "{kind}: the test sees what is there"),
            _ => {}
        }
    }
}
