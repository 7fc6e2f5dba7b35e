//! `verify` and `repair`: their output for people and for programs, and their exit codes.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{Sandbox, files_in};

use crate::kit::{ids, piton, take_works};

pub(crate) fn packs(sandbox: &Sandbox) -> Vec<PathBuf> {
    let names = fs::read_dir(sandbox.store().join("objects/pack")).expect("packs");
    let mut packs: Vec<_> = names.map(|entry| entry.expect("an entry").path()).collect();
    packs.retain(|path| path.extension().is_some_and(|end| end == "pack"));
    packs.sort_by_key(|path| path.metadata().and_then(|found| found.modified()).expect("a time"));
    packs
}

/// Damages an object in the pack that contains it: the last bytes of an entry are its checksum.
pub(crate) fn damage(sandbox: &Sandbox, name: &str) {
    let id = String::from_utf8(sandbox.store_git(&["rev-parse", name])).expect("an id");
    for pack in packs(sandbox) {
        let idx = pack.with_extension("idx");
        let listing = String::from_utf8(sandbox.store_git(&["verify-pack", "-v", idx.to_str().expect("UTF-8")]));
        let listing = listing.expect("text");
        let Some(line) = listing.lines().find(|line| line.starts_with(id.trim())) else { continue };
        let numbers: Vec<usize> = line.split_whitespace().skip(3).map(|word| word.parse().expect("a number")).collect();
        let mut bytes = fs::read(&pack).expect("a pack");
        bytes[numbers[1] + numbers[0] - 2] ^= 1;
        fs::write(&pack, bytes).expect("a pack");
        return;
    }
    panic!("no pack has {name}");
}

#[test]
fn verify_says_that_a_store_is_whole() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n dir/b = 2");
    take_works(&sandbox);
    for args in [&["verify", "--json"][..], &["verify", "--json", "--read-data"]] {
        let report = piton(&sandbox, args).done().json();
        assert_eq!((&report["whole"], &report["findings"]), (&json!(true), &json!([])));
        let checked = &report["checked"];
        assert_eq!(
            (&checked["packs"], &checked["checkpoints"], &checked["objects"]),
            (&json!(1), &json!(1), &json!(5))
        );
        assert_eq!(checked["bytes"].as_u64().expect("a number") > 0, args.len() == 3);
    }
    let said = piton(&sandbox, ["verify"]).done();
    assert_eq!(said.stdout, "Whole (1 checkpoint, 5 objects, 1 pack)\n");
    assert!(said.stderr.contains("--read-data"), "{said:?}");
    piton(&sandbox, ["verify", "--read-data-subset", "5%"]).done();
    piton(&sandbox, ["verify", "--read-data-subset", "2.5"]).done();
    for bad in ["0%", "101%", "x", "-1"] {
        assert_eq!(piton(&sandbox, ["verify", "--read-data-subset", bad]).code(), 2, "{bad}");
    }
}

#[test]
fn without_a_store_there_is_nothing_to_check() {
    let sandbox = Sandbox::new();
    piton(&sandbox, ["verify"]).failed(4);
    piton(&sandbox, ["repair"]).failed(4);
    assert!(!sandbox.base().exists());
    fs::create_dir_all(sandbox.base().join("store/objects")).expect("directories");
    fs::write(sandbox.base().join("store/my thesis"), "not yours").expect("a file");
    piton(&sandbox, ["repair"]).failed(4);
    assert_eq!(fs::read(sandbox.base().join("store/my thesis")).expect("a file"), b"not yours");
}

#[test]
fn damage_is_reported_and_repaired_from_the_current_files() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1\n dir/b = 2");
    let id = take_works(&sandbox);
    damage(&sandbox, &format!("{id}:dir/b"));
    let found = piton(&sandbox, ["verify", "--read-data", "--json"]);
    assert_eq!(found.code(), 1, "{found:?}");
    let report = found.json();
    assert_eq!(report["whole"], false);
    let findings = report["findings"].as_array().expect("a list");
    let finding = findings.iter().find(|one| one["kind"] == "object_damaged").unwrap_or_else(|| panic!("{report}"));
    assert_eq!(finding["severity"], "damage");
    assert_eq!(finding["projects"][0]["path"], "dir/b");
    assert_eq!(finding["projects"][0]["checkpoints"][0], json!({"number": 1, "id": id, "short_id": id[..7]}));
    assert_eq!(finding["projects"][0]["workdir"], sandbox.project().to_str().expect("UTF-8"));
    let said = piton(&sandbox, ["verify", "--read-data"]);
    assert_eq!(said.code(), 1);
    assert!(said.stdout.contains("dir/b in checkpoint 1 ("), "{said:?}");
    assert!(said.stdout.contains("DAMAGED: "), "{said:?}");
    assert!(said.stderr.contains("piton repair"), "{said:?}");

    let dry = piton(&sandbox, ["repair", "--dry-run", "--json"]);
    assert_eq!(dry.code(), 1, "it is not whole yet: {dry:?}");
    assert_eq!((&dry.json()["healed"], &dry.json()["lost"]), (&json!(1), &json!([])));
    assert!(!sandbox.store().join("repairs").exists());
    let repaired = piton(&sandbox, ["repair", "--json"]).done().json();
    assert_eq!((&repaired["whole"], &repaired["healed"], &repaired["lost"]), (&json!(true), &json!(1), &json!([])));
    let aside = repaired["moved_aside"].as_array().expect("a list");
    assert!(aside.iter().all(|path| sandbox.base().join(path.as_str().expect("a path")).exists()), "{repaired}");
    piton(&sandbox, ["verify", "--read-data"]).done();
    assert_eq!(piton(&sandbox, ["repair"]).done().stdout, "Whole: there is nothing to do\n");
    assert_eq!(sandbox.held_by(&id), files_in(&sandbox.project()));
    take_works(&sandbox);
}

#[test]
fn a_loss_has_an_exit_code_of_its_own() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    let first = take_works(&sandbox);
    sandbox.tree("a = 2");
    let second = take_works(&sandbox);
    damage(&sandbox, &format!("{first}:a"));
    let repaired = piton(&sandbox, ["repair", "--json"]);
    assert_eq!(repaired.code(), 3, "{repaired:?}");
    let lost = repaired.json()["lost"].clone();
    assert_eq!((&lost[0]["checkpoint"], &lost[0]["path"]), (&json!(first), &json!("a")));
    assert_eq!(ids(&sandbox), [second]);
    piton(&sandbox, ["verify", "--read-data"]).done();
    let list = |report: &Value| report.as_array().map_or(0, Vec::len);
    assert_eq!(list(&lost), 1);
}

#[test]
fn a_take_that_meets_damage_says_what_to_do() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    take_works(&sandbox);
    sandbox.tree("a = 2");
    let id = take_works(&sandbox);
    damage(&sandbox, &id);
    sandbox.tree("a = 3");
    let said = piton(&sandbox, ["take"]).failed(1);
    assert!(said.stderr.contains("`piton repair`"), "{said:?}");
    let repaired = piton(&sandbox, ["repair"]);
    assert_eq!(repaired.code(), 3, "{repaired:?}");
    assert!(repaired.stdout.contains(&format!("the checkpoint, checkpoint {}", &id[..7])), "{repaired:?}");
    take_works(&sandbox);
}

/// A store that has lost even the files that make it a repository.
#[test]
fn a_store_without_its_pieces_is_put_together_again() {
    let sandbox = Sandbox::new();
    sandbox.tree("a = 1");
    let id = take_works(&sandbox);
    fs::remove_file(sandbox.store().join("HEAD")).expect("a file");
    fs::remove_file(sandbox.store().join("config")).expect("a file");
    assert_eq!(piton(&sandbox, ["verify"]).code(), 1);
    piton(&sandbox, ["repair"]).done();
    piton(&sandbox, ["verify"]).done();
    assert_eq!(ids(&sandbox), [id]);
    take_works(&sandbox);
}

#[test]
fn one_object_that_is_missing_is_told_of_as_one() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one");
    piton(&sandbox, ["take"]).done();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text").trim().to_owned();
    let name = text(sandbox.store_git(&["for-each-ref", "--format=%(refname)"]));
    let project = name.rsplit('/').next().expect("a name").to_owned();
    // Stock git writes loose objects.
    sandbox.tree("a.txt = two");
    sandbox.seed_git(&project, &["add", "-A"]);
    let tree = text(sandbox.seed_git(&project, &["write-tree"]).stdout);
    let commit = text(sandbox.store_git(&["commit-tree", "-m", "before patch", "-p", &name, &tree]));
    sandbox.store_git(&["update-ref", &name, &commit]);
    fs::remove_file(sandbox.store().join("objects").join(&tree[..2]).join(&tree[2..])).expect("a file of its own");
    let told = piton(&sandbox, ["status"]).stdout;
    assert!(told.contains("1 object is missing or damaged"), "{told}");
}
