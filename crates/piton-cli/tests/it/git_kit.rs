//! Repositories of every shape for the tests of git state, and what stock git says about them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};
use testkit::{Sandbox, clean_command};

use crate::hook_kit::{hook_command, send};
use crate::kit::{Ran, in_dir, run};

/// Shape of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Clone,
    LinkedWorktree,
    Submodule,
    Sha256,
    Reftable,
}

impl Shape {
    pub(crate) const ALL: [Self; 5] =
        [Self::Clone, Self::LinkedWorktree, Self::Submodule, Self::Sha256, Self::Reftable];
}

/// A project in a repository.
pub(crate) struct GitProject {
    pub(crate) sandbox: Sandbox,
    pub(crate) dir: PathBuf,
}

/// Everything that stock git says about a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GitView {
    pub(crate) head: String,
    pub(crate) refs: String,
    pub(crate) stash: String,
    pub(crate) staged: String,
    pub(crate) worktrees: String,
    pub(crate) config: String,
}

impl GitProject {
    /// Makes a repository with branches, tags, notes, two stash entries, something staged and a linked worktree. Returns
    /// `None` if stock git here cannot make that shape.
    pub(crate) fn new(shape: Shape) -> Option<Self> {
        let sandbox = Sandbox::new();
        let root = sandbox.root();
        let dir = match shape {
            Shape::LinkedWorktree => root.join("linked"),
            Shape::Submodule => root.join("super/lib"),
            _ => sandbox.project(),
        };
        let project = Self { sandbox, dir };
        let first = match shape {
            Shape::Clone | Shape::Submodule => root.join("origin"),
            Shape::LinkedWorktree => root.join("main"),
            Shape::Sha256 | Shape::Reftable => project.dir.clone(),
        };
        let options: &[&str] = match shape {
            Shape::Sha256 => &["--object-format=sha256"],
            Shape::Reftable => &["--ref-format=reftable"],
            _ => &[],
        };
        let args = [&["init", "-q", "-b", "main"], options, &[first.to_str().expect("UTF-8")]].concat();
        fs::create_dir_all(&first).expect("a directory");
        if !project.try_git(&root, &args).status.success() {
            return None;
        }
        fs::write(first.join("f"), "1\n").expect("a file");
        project.git_in(&first, &["add", "."]);
        project.git_in(&first, &["commit", "-qm", "one"]);
        fs::write(first.join("f"), "2\n").expect("a file");
        project.git_in(&first, &["commit", "-qam", "two"]);
        let (from, to) = (first.to_str().expect("UTF-8"), project.dir.to_str().expect("UTF-8"));
        match shape {
            Shape::Clone => drop(project.git_in(&root, &["clone", "-q", from, to])),
            Shape::LinkedWorktree => drop(project.git_in(&first, &["worktree", "add", "-q", "-b", "work", to])),
            Shape::Submodule => {
                let outer = root.join("super");
                project.git_in(&root, &["init", "-q", "-b", "main", "super"]);
                project
                    .git_in(&outer, &["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", from, "lib"]);
                project.git_in(&outer, &["commit", "-qm", "outer"]);
            }
            Shape::Sha256 | Shape::Reftable => {}
        }
        project.fill();
        Some(project)
    }

    fn fill(&self) {
        let write = |name: &str, text: &str| fs::write(self.dir.join(name), text).expect("a file");
        self.git(&["branch", "feature"]);
        let branch = self.git(&["symbolic-ref", "--short", "HEAD"]);
        self.git(&["checkout", "-q", "feature"]);
        write("g", "only on feature\n");
        self.git(&["add", "g"]);
        self.git(&["commit", "-qm", "feature"]);
        self.git(&["checkout", "-q", branch.trim()]);
        self.git(&["branch", "other", "HEAD~1"]);
        self.git(&["tag", "v1"]);
        self.git(&["tag", "-a", "-m", "annotated", "v2"]);
        self.git(&["notes", "add", "-m", "a note"]);
        for text in ["stashed first\n", "stashed second\n"] {
            write("f", text);
            self.git(&["stash", "push", "-q"]);
        }
        write("staged", "staged\n");
        self.git(&["add", "staged"]);
        write("f", "not committed\n");
        let beside = self.sandbox.root().join("beside");
        self.git(&["worktree", "add", "-q", "--detach", beside.to_str().expect("UTF-8")]);
    }

    /// Runs stock git, which must succeed, and returns its output.
    #[track_caller]
    pub(crate) fn git(&self, args: &[&str]) -> String {
        self.git_in(&self.dir, args)
    }

    #[track_caller]
    fn git_in(&self, dir: &Path, args: &[&str]) -> String {
        let output = self.try_git(dir, args);
        assert!(output.status.success(), "git {args:?} in {}: {output:?}", dir.display());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn try_git(&self, dir: &Path, args: &[&str]) -> Output {
        self.environment(&mut clean_command("git")).args(args).current_dir(dir).output().expect("git runs")
    }

    fn environment<'a>(&self, command: &'a mut std::process::Command) -> &'a mut std::process::Command {
        for name in ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"] {
            command.env(name, "me");
        }
        command
            .env("HOME", self.sandbox.home())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("FILTER_BRANCH_SQUELCH_WARNING", "1")
    }

    /// Runs a command line as an agent would. It may fail.
    pub(crate) fn shell(&self, line: &str) {
        self.shell_succeeds(line);
    }

    /// Runs a command line. Returns true if it succeeds.
    pub(crate) fn shell_succeeds(&self, line: &str) -> bool {
        let mut command = clean_command("bash");
        let ran = self.environment(&mut command).args(["-c", line]).current_dir(&self.dir).output();
        ran.expect("bash runs").status.success()
    }

    /// Runs piton in the project.
    pub(crate) fn piton(&self, args: &[&str]) -> Ran {
        run(in_dir(&self.sandbox, &self.dir).args(args))
    }

    fn hook(&self, turn: &str, name: &str, more: &Value) {
        let mut event = json!({"session_id": "s", "prompt_id": turn, "transcript_path": "/t", "cwd": self.dir, "hook_event_name": name});
        event.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let ran = send(&mut hook_command(&self.sandbox, &["claude"]), event.to_string());
        assert_eq!((ran.code(), ran.stderr.as_str()), (0, ""), "{ran:?}");
    }

    /// Lets an agent run a command in a turn of its own, with its hooks.
    pub(crate) fn turn(&self, turn: &str, line: &str) {
        self.hook(turn, "UserPromptSubmit", &json!({"prompt": "do it"}));
        self.hook(turn, "PreToolUse", &json!({"tool_name": "Bash", "tool_input": {"command": line}}));
        self.shell(line);
        self.hook(turn, "Stop", &json!({}));
    }

    /// Returns what stock git says. Panics if git does not find a repository.
    #[track_caller]
    pub(crate) fn view(&self) -> GitView {
        GitView {
            head: self.git(&["rev-parse", "HEAD", "--symbolic-full-name", "HEAD"]),
            refs: self.git(&["for-each-ref", "--format=%(refname) %(objectname)"]),
            stash: self.git(&["stash", "list", "--format=%H %gs"]),
            staged: self.git(&["diff", "--cached", "--no-ext-diff"]),
            worktrees: self.git(&["worktree", "list", "--porcelain"]),
            config: self.git(&["config", "--local", "--list"]),
        }
    }

    /// Returns true if stock git finds a repository.
    pub(crate) fn is_repository(&self) -> bool {
        self.try_git(&self.dir, &["rev-parse", "HEAD"]).status.success()
    }

    /// Asserts that stock git finds nothing wrong.
    #[track_caller]
    pub(crate) fn assert_whole(&self, context: &str) {
        let output = self.try_git(&self.dir, &["fsck", "--full", "--no-dangling", "--no-reflogs"]);
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && !text.contains("missing"), "{context}: {text}");
    }

    /// Returns the git directory that all worktrees share.
    pub(crate) fn common_dir(&self) -> PathBuf {
        let path = self.git(&["rev-parse", "--path-format=absolute", "--git-common-dir"]);
        PathBuf::from(path.trim_end())
    }
}
