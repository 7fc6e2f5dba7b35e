//! Scenarios: the actions of a user with an agent, and the checks made in between.

mod beside;
mod continued;
mod drop_in;
mod ends;
mod headless;
mod late;
mod losses;
mod mcp;
mod rewind;
mod rewind_terminal;
mod typed;
mod uninstall;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use testkit::state::{State, difference};

use super::agent::Agent;
use super::install::Cache;
use super::report::{Mode, Report};
use super::scratch::{Row, Scratch, shown};

/// A session with an agent in its own scratch home.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) mode: Mode,
    pub(super) checks: &'static [&'static str],
    pub(super) fits: fn(&dyn Agent) -> bool,
    /// True if it is part of the short run.
    pub(super) is_quick: bool,
    run: fn(&mut Run) -> Result<()>,
}

fn always(_agent: &dyn Agent) -> bool {
    true
}

fn has_rollback(agent: &dyn Agent) -> bool {
    agent.rollback().is_some()
}

/// All scenarios, shortest first.
pub(super) const ALL: &[Scenario] = &[
    Scenario {
        name: "uninstall",
        mode: Mode::Headless,
        checks: &["uninstall"],
        fits: always,
        is_quick: true,
        run: uninstall::at_once,
    },
    Scenario {
        name: "session",
        mode: Mode::Headless,
        checks: &["hooks", "rows", "version", "list", "restore", "undo", "told", "doctor", "uninstall-after"],
        fits: always,
        is_quick: true,
        run: headless::session,
    },
    Scenario {
        name: "four",
        mode: Mode::Headless,
        checks: &["four-prompts", "four-list", "four-show", "four-hint"],
        fits: always,
        is_quick: false,
        run: headless::four_prompts,
    },
    Scenario {
        name: "second-run",
        mode: Mode::Headless,
        checks: &["second-run"],
        fits: always,
        is_quick: false,
        run: headless::second_run,
    },
    Scenario {
        name: "ends",
        mode: Mode::Headless,
        checks: &["end", "step", "end-edit", "end-killed"],
        fits: always,
        is_quick: false,
        run: ends::reported,
    },
    Scenario {
        name: "failed",
        mode: Mode::Headless,
        checks: &["end-error"],
        fits: always,
        is_quick: false,
        run: ends::failed,
    },
    Scenario {
        name: "continued",
        mode: Mode::Headless,
        checks: &["continued"],
        fits: continued::can_go_on,
        is_quick: false,
        run: continued::by_another_hook,
    },
    Scenario {
        name: "manual",
        mode: Mode::Headless,
        checks: &["manual"],
        fits: always,
        is_quick: false,
        run: beside::manual_take,
    },
    Scenario {
        name: "pair",
        mode: Mode::Headless,
        checks: &["one-row", "guarded"],
        fits: beside::is_first_of_pair,
        is_quick: false,
        run: beside::two_agents,
    },
    Scenario {
        name: "late",
        mode: Mode::Headless,
        checks: &["late", "late-next"],
        fits: late::is_the_one,
        is_quick: false,
        run: late::large_project,
    },
    Scenario {
        name: "killed",
        mode: Mode::Headless,
        checks: &["killed"],
        fits: always,
        is_quick: false,
        run: losses::killed_hook,
    },
    Scenario {
        name: "read-only",
        mode: Mode::Headless,
        checks: &["read-only"],
        fits: always,
        is_quick: false,
        run: losses::read_only_store,
    },
    Scenario {
        name: "rewind",
        mode: Mode::Headless,
        checks: &["rewind-4", "rewind-3", "rewind-2", "rewind-1", "rewind-old", "rewind-list", "rewind-clean"],
        fits: always,
        is_quick: false,
        run: rewind::each_prompt,
    },
    Scenario {
        name: "rewind-worktree",
        mode: Mode::Headless,
        checks: &["rewind-worktree", "rewind-fork"],
        fits: always,
        is_quick: false,
        run: rewind::in_worktree,
    },
    Scenario {
        name: "rewind-killed",
        mode: Mode::Headless,
        checks: &["rewind-killed", "rewind-after-kills"],
        fits: always,
        is_quick: false,
        run: rewind::killed,
    },
    Scenario {
        name: "rewind-own-fork",
        mode: Mode::Headless,
        checks: &["rewind-own-fork", "rewind-own-fork-first"],
        fits: rewind::makes_forks,
        is_quick: false,
        run: rewind::of_own_fork,
    },
    Scenario {
        name: "rewind-subagent",
        mode: Mode::Headless,
        checks: &["rewind-subagent", "rewind-subagent-next", "rewind-parallel"],
        fits: always,
        is_quick: false,
        run: rewind::with_subagent,
    },
    Scenario {
        name: "rewind-terminal",
        mode: Mode::Tui,
        checks: &["rewind-open", "rewind-running", "rewind-printed", "rewind-exec", "rewind-typed", "rewind-inside"],
        fits: always,
        is_quick: false,
        run: rewind_terminal::in_terminal,
    },
    Scenario {
        name: "rewind-compacted",
        mode: Mode::Tui,
        checks: &["compacted", "rewind-compacted", "rewind-to-compacted"],
        fits: always,
        is_quick: false,
        run: rewind_terminal::after_compaction,
    },
    Scenario {
        name: "mcp",
        mode: Mode::Headless,
        checks: &["mcp-take", "mcp-list", "mcp-restore"],
        fits: mcp::has_mcp,
        is_quick: false,
        run: mcp::tools,
    },
    Scenario {
        name: "drop-in",
        mode: Mode::Tui,
        checks: &["drop-in", "drop-in-list", "drop-in-restore"],
        fits: drop_in::is_hermes,
        is_quick: false,
        run: drop_in::rollback,
    },
    Scenario {
        name: "mcp-terminal",
        mode: Mode::Tui,
        checks: &["mcp-refused", "mcp-agreed"],
        fits: mcp::asks,
        is_quick: false,
        run: mcp::agreed,
    },
    Scenario {
        name: "typed",
        mode: Mode::Tui,
        checks: &[
            "rows",
            "typed-list",
            "typed-diff",
            "typed-new-file",
            "typed-file",
            "typed-restore",
            "no-calls",
            "told",
        ],
        fits: has_rollback,
        is_quick: false,
        run: typed::rollback,
    },
    Scenario {
        name: "interrupted",
        mode: Mode::Tui,
        checks: &["interrupted"],
        fits: always,
        is_quick: false,
        run: ends::interrupted,
    },
    Scenario {
        name: "outlived",
        mode: Mode::Tui,
        checks: &["outlived"],
        fits: ends::has_background_subagents,
        is_quick: false,
        run: ends::outlived,
    },
    Scenario {
        name: "clear",
        mode: Mode::Tui,
        checks: &["clear", "restart"],
        fits: always,
        is_quick: false,
        run: typed::clear,
    },
];

/// Options for all scenarios.
pub(super) struct Settings {
    pub(super) cache: Cache,
    pub(super) piton: PathBuf,
    pub(super) scratch: PathBuf,
    pub(super) keep: bool,
    pub(super) only: Option<String>,
}

/// A running scenario.
struct Run<'a> {
    scratch: Scratch,
    scenario: &'a Scenario,
    report: &'a mut Report,
    settings: &'a Settings,
    reported: BTreeSet<&'static str>,
}

impl Run<'_> {
    /// Makes one check and records its result.
    fn check(&mut self, name: &'static str, made: impl FnOnce(&mut Scratch) -> Result<()>) {
        let result = made(&mut self.scratch);
        self.note(name, &result);
    }

    fn note(&mut self, name: &'static str, result: &Result<()>) {
        self.reported.insert(name);
        if self.settings.wants(self.scenario, name) {
            let agent = self.scratch.agent.package().name;
            self.report.add(agent, self.scenario.mode, name, result, &self.scratch.root);
        }
    }

    fn skip(&mut self, name: &'static str, why: &str) {
        self.reported.insert(name);
        if self.settings.wants(self.scenario, name) {
            self.report.skip(self.scratch.agent.package().name, self.scenario.mode, name, why);
        }
    }
}

impl Settings {
    fn wants(&self, scenario: &Scenario, check: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == check || only == scenario.name)
    }
}

/// Runs a scenario with an agent. Checks that are not reached count as failed.
pub(super) fn run(
    scenario: &Scenario,
    agent: &'static dyn Agent,
    settings: &Settings,
    report: &mut Report,
) -> Result<()> {
    let wanted = scenario.checks.iter().any(|check| settings.wants(scenario, check));
    if !wanted || !(scenario.fits)(agent) {
        return Ok(());
    }
    let failed = report.failed();
    let root = settings.scratch.join(format!("{}-{}", agent.package().name, scenario.name));
    let scratch = Scratch::new(root.clone(), agent, &settings.cache, &settings.piton)
        .with_context(|| format!("cannot prepare {}", root.display()))?;
    let mut run = Run { scratch, scenario, report, settings, reported: BTreeSet::new() };
    let done = (scenario.run)(&mut run);
    let missing: Vec<_> = scenario.checks.iter().filter(|check| !run.reported.contains(*check)).collect();
    let error = done.err().map_or_else(|| "the scenario left it out".to_owned(), |error| format!("{error:#}"));
    for check in missing {
        run.note(check, &Err(anyhow!("not reached: {error}")));
    }
    drop(run);
    if report.failed() == failed && !settings.keep {
        remove(&root);
    }
    Ok(())
}

/// Removes a scratch home. Retries, because an agent that is exiting may still write to it for a moment.
fn remove(root: &Path) {
    for _ in 0..20 {
        if fs::remove_dir_all(root).is_ok() {
            return;
        }
        thread::sleep(Duration::from_millis(250));
    }
    println!("cannot remove {}", root.display());
}

/// Fails unless the two are equal; the error names up to ten paths.
fn same(now: &State, want: &State, when: &str) -> Result<()> {
    let found = difference(now, want);
    let lines: Vec<_> = found.lines().take(10).collect();
    ensure!(found.is_empty(), "{when}: {}", lines.join("; "));
    Ok(())
}

/// Restores a checkpoint from a shell, and compares the files.
fn restore_to(scratch: &Scratch, id: &str, want: &State) -> Result<()> {
    scratch.piton(&["restore", id, "-y"])?.ok(&format!("piton restore {id}"))?;
    same(&scratch.state(), want, &format!("after `piton restore {id}`"))
}

/// Returns the sessions of all rows.
fn sessions(scratch: &Scratch) -> Result<BTreeSet<String>> {
    let listed = scratch.piton_json(&["rollback"])?;
    let rows = listed.as_array().into_iter().flatten();
    Ok(rows.filter_map(|row| row["session"].as_str()).map(str::to_owned).collect())
}

/// Fails unless the rows at which prompts began are exactly these, one prompt each, newest first.
fn expect_rows(scratch: &Scratch, prompts: &[&str]) -> Result<()> {
    let rows = scratch.rows()?;
    ensure!(rows.iter().all(|row| row.prompts.is_some()), "`piton rollback --json` has no `prompts`: {}", shown(&rows));
    let of = |row: &Row| row.prompts.clone().unwrap_or_default();
    let began: Vec<_> = rows.iter().filter(|row| !of(row).is_empty()).collect();
    let words: Vec<_> =
        began.iter().map(|row| of(row).iter().map(|prompt| prompt.words.clone()).collect::<Vec<_>>()).collect();
    let want: Vec<_> = prompts.iter().map(|&prompt| vec![prompt.to_owned()]).collect();
    ensure!(words == want, "the rows have {words:?}, should have {want:?}");
    let agent = scratch.agent.package().name;
    for prompt in began.iter().flat_map(|row| of(row)) {
        ensure!(prompt.agent == agent, "the agent is {:?}, should be {agent}", prompt.agent);
        ensure!(!prompt.session.is_empty() && !prompt.turn.is_empty(), "no session or turn: {prompt:?}");
    }
    // Hermes takes its own checkpoints in the same store.
    let more = rows.iter().find(|row| of(row).is_empty() && row.kind == "auto");
    match more.filter(|_| agent != "hermes") {
        Some(row) => Err(anyhow!("a row without a prompt: {}", shown(std::slice::from_ref(row)))),
        None => Ok(()),
    }
}

/// Fails unless a request since `count` has both the prompt and the notice of a rollback with the name of a file.
fn expect_told(scratch: &Scratch, count: usize, prompt: &str, file: &str) -> Result<()> {
    let calls = scratch.model.calls();
    let asked: Vec<_> = calls.iter().skip(count).filter(|call| call.holds(prompt)).collect();
    ensure!(!asked.is_empty(), "no request to the model holds `{prompt}`");
    ensure!(
        asked.iter().any(|call| call.holds("rolled back") && call.holds(file)),
        "the request with `{prompt}` does not say what went back ({file}): {}",
        scratch.root.join("log/requests").display()
    );
    Ok(())
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
