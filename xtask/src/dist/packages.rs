//! The packages for Python and npm: each carries the programs for one platform, and a client of `piton serve` in the
//! language.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};

use super::archive::{Entry, programs_in, tgz, zip};
use super::build::{Program, Target};

/// Returns the name of the wheel for a target, and its bytes. The programs are its scripts, so that pip puts them on the
/// search path.
pub(super) fn wheel(
    root: &Path,
    target: Target,
    version: &str,
    programs: &[Program],
    secs: u64,
) -> Result<(String, Vec<u8>)> {
    let info = format!("piton-{version}.dist-info");
    let tags: Vec<String> = target.wheel_tags().iter().map(|tag| format!("Tag: py3-none-{tag}\n")).collect();
    let readme = fs::read_to_string(root.join("packages/python/README.md"))?;
    let metadata = format!(
        "Metadata-Version: 2.1\nName: piton\nVersion: {version}\nSummary: The undo layer for AI coding agents\n\
         License: MIT OR Apache-2.0\nRequires-Python: >=3.9\nDescription-Content-Type: text/markdown\n\n{readme}"
    );
    let kind = format!("Wheel-Version: 1.0\nGenerator: piton\nRoot-Is-Purelib: false\n{}", tags.concat());
    let mut entries = files_in(&root.join("packages/python/piton"), "piton", &["py", "typed"])?;
    entries.extend(programs_in(&format!("piton-{version}.data/scripts"), programs));
    entries.push(Entry::file(format!("{info}/METADATA"), metadata.into_bytes()));
    entries.push(Entry::file(format!("{info}/WHEEL"), kind.into_bytes()));
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        entries.push(Entry::file(format!("{info}/{name}"), fs::read(root.join(name))?));
    }
    entries.sort_by(|a, b| a.path().cmp(b.path()));
    let line = |entry: &Entry| {
        format!("{},sha256={},{}\n", entry.path(), base64_url(&Sha256::digest(entry.bytes())), entry.bytes().len())
    };
    let record: String = entries.iter().map(line).chain([format!("{info}/RECORD,,\n")]).collect();
    entries.push(Entry::file(format!("{info}/RECORD"), record.into_bytes()));
    let name = format!("piton-{version}-py3-none-{}.whl", target.wheel_tags().join("."));
    Ok((name, zip(&entries, secs)?))
}

/// Returns the name of the npm package with the programs for a target, and its bytes.
pub(super) fn npm_program(
    target: Target,
    version: &str,
    repository: Option<&str>,
    programs: &[Program],
    secs: u64,
) -> Result<(String, Vec<u8>)> {
    let manifest = program_manifest(target, version, repository);
    let mut entries = programs_in("package/bin", programs);
    entries.push(Entry::file("package/package.json".to_owned(), format!("{manifest:#}\n").into_bytes()));
    Ok((format!("{}-{version}.tgz", target.npm_package()), tgz(&entries, secs)?))
}

fn program_manifest(target: Target, version: &str, repository: Option<&str>) -> serde_json::Value {
    let (os, cpu) = target.npm();
    let mut manifest = serde_json::json!({
        "name": target.npm_package(),
        "version": version,
        "description": format!("The programs of the package piton for {os} {cpu}"),
        "license": "MIT OR Apache-2.0",
        "os": [os],
        "cpu": [cpu],
        "files": ["bin"],
    });
    name_repository(&mut manifest, repository);
    manifest
}

/// Names the repository in a manifest. npm refuses a package with provenance that does not name the one that built it.
fn name_repository(manifest: &mut serde_json::Value, repository: Option<&str>) {
    if let Some(url) = repository {
        manifest["repository"] = serde_json::json!({"type": "git", "url": format!("git+{url}.git")});
    }
}

/// Returns the manifest of the client. It depends on the programs of these targets only: npm looks for every package that
/// it names.
fn client_manifest(
    root: &Path,
    targets: &[Target],
    version: &str,
    repository: Option<&str>,
) -> Result<serde_json::Value> {
    let mut manifest: serde_json::Value = serde_json::from_slice(&fs::read(root.join("packages/npm/package.json"))?)?;
    ensure!(manifest["version"] == version, "packages/npm/package.json is not of version {version}");
    let programs = manifest["optionalDependencies"].as_object_mut().context("no optionalDependencies")?;
    for target in targets {
        let name = target.npm_package();
        let wanted = programs.get(&name).with_context(|| format!("packages/npm/package.json does not name {name}"))?;
        ensure!(wanted == version, "packages/npm/package.json wants {name} {wanted}, which is not {version}");
    }
    programs.retain(|name, _| targets.iter().any(|target| target.npm_package() == *name));
    name_repository(&mut manifest, repository);
    Ok(manifest)
}

/// Returns the name of the npm package with the client, and its bytes.
pub(super) fn npm_client(
    root: &Path,
    targets: &[Target],
    version: &str,
    repository: Option<&str>,
    secs: u64,
) -> Result<(String, Vec<u8>)> {
    let dir = root.join("packages/npm");
    let manifest = client_manifest(root, targets, version, repository)?;
    let mut entries = vec![Entry::file("package/package.json".to_owned(), format!("{manifest:#}\n").into_bytes())];
    for name in ["index.js", "index.d.ts", "README.md"] {
        entries.push(Entry::file(format!("package/{name}"), fs::read(dir.join(name))?));
    }
    entries.push(Entry::program("package/bin.js".to_owned(), fs::read(dir.join("bin.js"))?));
    Ok((format!("piton-npm-{version}.tgz"), tgz(&entries, secs)?))
}

/// Returns the files of a directory with one of these endings.
fn files_in(dir: &Path, place: &str, endings: &[&str]) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let is_wanted = path.extension().is_some_and(|end| endings.iter().any(|wanted| end == *wanted));
        let name = path.file_name().and_then(|name| name.to_str()).filter(|_| is_wanted);
        if let Some(name) = name {
            entries.push(Entry::file(format!("{place}/{name}"), fs::read(&path)?));
        }
    }
    Ok(entries)
}

/// Encodes bytes as the record of a wheel has them: base64 for URLs, without padding.
fn base64_url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().enumerate().fold(0_u32, |bits, (at, byte)| bits | (u32::from(*byte) << (16 - 8 * at)));
        let digits = (0..=group.len()).map(|at| DIGITS[((bits >> (18 - 6 * at)) & 63) as usize]);
        text.extend(digits.map(char::from));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::build;
    use super::*;
    use crate::workspace::workspace_root;

    const VERSION: &str = env!("CARGO_PKG_VERSION");

    #[test]
    fn base64_is_that_of_the_standard() {
        assert_eq!(
            ["", "f", "fo", "foo", "foob"].map(|text| base64_url(text.as_bytes())),
            ["", "Zg", "Zm8", "Zm9v", "Zm9vYg"]
        );
        assert_eq!(base64_url(&[0xfb, 0xff]), "-_8");
    }

    #[test]
    fn npm_packages_name_the_repository_that_publishes_them() {
        let manifests = |repository| {
            let client = client_manifest(&workspace_root(), &Target::ALL, VERSION, repository).expect("a manifest");
            [program_manifest(Target::LinuxArm, VERSION, repository), client]
                .map(|one| one["repository"]["url"].clone())
        };
        assert_eq!(manifests(None), [serde_json::Value::Null, serde_json::Value::Null]);
        let url = serde_json::Value::from("git+https://github.com/someone/piton.git");
        assert_eq!(manifests(Some("https://github.com/someone/piton")), [url.clone(), url]);
    }

    /// Returns the programs that `cargo test --workspace` has built, beside the tests. If they are missing, says so, or
    /// fails if `PITON_TEST_ALL` is set.
    fn programs() -> Option<Vec<Program>> {
        let tests = std::env::current_exe().expect("the tests run");
        let built = build::programs_in(tests.ancestors().nth(2).expect("target/debug/deps/xtask-…"));
        if let Err(error) = &built {
            assert!(std::env::var_os("PITON_TEST_ALL").is_none(), "{error}, and PITON_TEST_ALL is set");
            testkit::note_skipped(&error.to_string());
        }
        built.ok()
    }

    fn run(command: &mut Command) {
        let output = command.output().expect("it starts");
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&said));
    }

    /// Installs the built wheel into a new environment, and runs the package's tests and the example there.
    #[test]
    fn the_wheel_installs_and_passes_its_tests() {
        let Some(programs) = programs().filter(|_| testkit::has_program("python3")) else { return };
        let (root, temp) = (workspace_root(), testkit::Sandbox::new());
        let (name, bytes) = wheel(&root, Target::host().expect("a target"), VERSION, &programs, 0).expect("a wheel");
        let (file, venv) = (temp.root().join(name), temp.root().join("venv"));
        fs::write(&file, bytes).expect("a file");
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv));
        run(Command::new(venv.join("bin/pip")).args(["install", "--no-index", "--quiet"]).arg(&file));
        for program in &programs {
            run(Command::new(venv.join("bin").join(program.name)).arg("--version"));
        }
        let python = || {
            let mut command = Command::new(venv.join("bin/python"));
            command.env_remove("PITON").env("HOME", temp.home()).current_dir(temp.project());
            command
        };
        run(python().arg(root.join("packages/python/tests/test_piton.py")));
        example(python().arg(root.join("packages/examples/agent.py")), &temp);
    }

    /// Installs the built packages into a new project, and runs the client's tests, the example and `npx piton` there.
    #[test]
    fn the_npm_packages_install_and_pass_their_tests() {
        let Some(programs) = programs().filter(|_| testkit::has_program("npm")) else { return };
        let (root, temp) = (workspace_root(), testkit::Sandbox::new());
        let target = Target::host().expect("a target");
        let own = npm_program(target, VERSION, None, &programs, 0).expect("a package");
        let client = npm_client(&root, &[target], VERSION, None, 0).expect("a package");
        let dir = temp.root().join("app");
        fs::create_dir(&dir).expect("a directory");
        fs::write(dir.join("package.json"), r#"{"name": "app", "type": "module"}"#).expect("a file");
        let files = [own, client].map(|(name, bytes)| {
            fs::write(temp.root().join(&name), bytes).expect("a file");
            temp.root().join(name)
        });
        let in_app = |program: &str| {
            let mut command = Command::new(program);
            command.env_remove("PITON").env("HOME", temp.home()).current_dir(&dir);
            command
        };
        run(in_app("npm").args(["install", "--offline", "--no-audit", "--no-fund", "--omit=optional"]).args(&files));
        fs::copy(root.join("packages/npm/test/client.test.js"), dir.join("client.test.js")).expect("a file");
        run(in_app("node").args(["--test", "client.test.js"]));
        run(in_app("npx").args(["--offline", "piton", "--version"]));
        for program in &programs {
            let path = dir.join("node_modules").join(target.npm_package()).join("bin").join(program.name);
            run(Command::new(path).arg("--version"));
        }
        // Node before 22.18 does not run TypeScript: without its types, the example is JavaScript.
        let example_text = fs::read_to_string(root.join("packages/examples/agent.ts")).expect("the example");
        let plain = example_text.replace(": string[]", "").replace(": string", "").replace("): void", ")");
        fs::write(dir.join("agent.js"), plain).expect("a file");
        example(in_app("node").arg("agent.js"), &temp);
    }

    /// Plays two turns through an example, and takes one back. Then one in an empty directory, which cannot be.
    fn example(command: &mut Command, temp: &testkit::Sandbox) {
        let (dir, empty) = (temp.other_project("example"), temp.other_project("empty"));
        fs::write(dir.join("a.txt"), "one\n").expect("a file");
        let (program, args) = (command.get_program().to_owned(), command.get_args().map(ToOwned::to_owned));
        let args: Vec<_> = args.collect();
        let said = play(command.arg(&dir), b"echo two >> a.txt\nrm a.txt\nundo\nquit\n");
        assert!(said.contains("restored: 1 written, 0 removed"), "{said}");
        assert_eq!(fs::read_to_string(dir.join("a.txt")).expect("it is back"), "one\ntwo\n", "{said}");
        let mut again = Command::new(program);
        again.args(args).env_remove("PITON").env("HOME", temp.home());
        again.current_dir(command.get_current_dir().expect("it is set")).arg(empty);
        let said = play(&mut again, b"echo one > a.txt\nundo\nundo\nquit\n");
        for words in ["no checkpoint: empty", "was empty at its prompt", "nothing to undo"] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }

    /// Runs an example with this input, and returns its output.
    fn play(command: &mut Command, lines: &[u8]) -> String {
        use std::io::Write as _;
        let mut child = command
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("it starts");
        child.stdin.take().expect("a pipe").write_all(lines).expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}");
        said
    }
}
