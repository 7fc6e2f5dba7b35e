//! `agents`: runs the real agents against a scripted model, with hooks installed by `piton install`.
//!
//! The agents come from package registries at pinned versions and are kept in a cache directory. Everything else is
//! local: each scenario has a scratch home, and if the system permits it all of them run in separate namespaces, with
//! no network but loopback, so that nothing is sent out and no process is left behind.

mod agent;
mod http;
mod install;
mod model;
mod report;
mod scenario;
mod scratch;
mod terminal;
mod tools;
mod wire;

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio, exit};
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use agent::Agent;
use install::Cache;
use report::{Mode, Report};
use scenario::Settings;

use crate::workspace::{build_piton, workspace_root};

/// Environment variable that marks the process inside the namespaces.
const INSIDE: &str = "PITON_AGENTS_INSIDE";

#[derive(clap::Args)]
#[command(args_override_self = true)]
pub(crate) struct AgentsArgs {
    /// Agents to run: claude, codex, gemini, opencode, hermes, qwen, copilot [default: all]
    #[arg(value_name = "NAME", value_parser = find)]
    agents: Vec<&'static dyn Agent>,
    /// Run one session of each agent, headless
    #[arg(long)]
    quick: bool,
    /// Leave the terminal interfaces out
    #[arg(long)]
    headless: bool,
    /// Run one check by the name in its line, or all of one scenario
    #[arg(long, value_name = "CHECK")]
    only: Option<String>,
    /// Directory where the agents are installed [default: target/agents]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Directory for scratch homes [default: one below the system's for temporary files]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Program to check [default: built from this workspace]
    #[arg(long, value_name = "PATH")]
    piton: Option<PathBuf>,
    /// Keep the scratch homes of checks that passed, too
    #[arg(long)]
    keep: bool,
    /// Exit with 0 and say so if the package registries do not answer
    #[arg(long)]
    if_online: bool,
}

/// Agents and checks selected by the arguments.
struct Options {
    agents: Vec<&'static dyn Agent>,
    is_headless: bool,
    is_quick: bool,
    is_online_only: bool,
    settings: Settings,
}

pub(crate) fn run(args: AgentsArgs) -> Result<ExitCode> {
    let mut options = resolve(args)?;
    if std::env::var_os(INSIDE).is_some() {
        thread::spawn(|| {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            exit(130);
        });
        return run_all(&options);
    }
    let needed: &[&str] = if options.is_headless { &["npm", "git"] } else { &["npm", "git", "tmux"] };
    if let Some(name) = install::missing(needed) {
        bail!("{name} is needed and not in PATH");
    }
    let cache = &options.settings.cache;
    let is_complete = options.agents.iter().all(|agent| cache.has(*agent));
    if options.is_online_only && !is_complete && !install::registries_answer() {
        println!("agents: skipped, the package registries do not answer");
        return Ok(ExitCode::SUCCESS);
    }
    options.agents.iter().try_for_each(|agent| cache.install(*agent))?;
    if options.settings.piton.as_os_str().is_empty() {
        options.settings.piton = build_piton()?;
    }
    match enter(&options.settings)? {
        Some(code) => Ok(code),
        None => run_all(&options),
    }
}

/// Returns the options with all paths made absolute.
fn resolve(args: AgentsArgs) -> Result<Options> {
    let AgentsArgs { agents, quick, headless, only, cache, scratch, piton, keep, if_online } = args;
    let agents = if agents.is_empty() { agent::ALL.to_vec() } else { agents };
    let absolute = |path: Option<PathBuf>| path.map(std::path::absolute).transpose();
    let (cache, scratch, piton) = (absolute(cache)?, absolute(scratch)?, absolute(piton)?.unwrap_or_default());
    if let Some(only) = &only {
        let is_it = |scenario: &scenario::Scenario| scenario.name == only || scenario.checks.contains(&only.as_str());
        let is_known = scenario::ALL.iter().any(is_it);
        ensure!(is_known, "no such check: {only}");
    }
    let id = std::process::id();
    let settings = Settings {
        cache: Cache::new(cache.unwrap_or_else(|| workspace_root().join("target/agents"))),
        scratch: scratch.unwrap_or_else(|| std::env::temp_dir().join(format!("piton-agents-{id}"))),
        piton,
        keep,
        only,
    };
    Ok(Options { agents, is_headless: headless || quick, is_quick: quick, is_online_only: if_online, settings })
}

fn find(name: &str) -> Result<&'static dyn Agent> {
    let found = agent::ALL.into_iter().find(|agent| agent.package().name == name);
    found.with_context(|| format!("no such agent: {name}"))
}

/// Starts this program again in its own network, mount and process namespaces, with no network but loopback. Returns
/// `None` if the system does not permit it.
fn enter(settings: &Settings) -> Result<Option<ExitCode>> {
    const NAMESPACES: [&str; 6] = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let unshare = || {
        let mut unshare = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            unshare.arg("--map-root-user");
        }
        unshare.args(NAMESPACES).args(["sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
        unshare
    };
    let quiet =
        |command: &mut Command| command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !quiet(unshare().arg("true")).is_ok_and(|status| status.success()) {
        println!("agents: without namespaces of their own (unshare is not permitted)");
        return Ok(None);
    }
    let mut again = unshare();
    // The options that are given once more replace the user's.
    again.arg(std::env::current_exe().context("cannot find this program")?).args(std::env::args_os().skip(1));
    again.args([OsStr::new("--piton"), settings.piton.as_os_str()]);
    again.args([OsStr::new("--scratch"), settings.scratch.as_os_str()]);
    // The process inside ends with this one: its stdin is a pipe that closes then.
    let mut child = again.env(INSIDE, "1").stdin(Stdio::piped()).spawn().context("cannot run unshare")?;
    let pipe = child.stdin.take();
    let status = child.wait().context("cannot wait for unshare")?;
    drop(pipe);
    Ok(Some(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

fn run_all(options: &Options) -> Result<ExitCode> {
    let mut report = Report::default();
    for agent in &options.agents {
        for scenario in scenario::ALL {
            let is_left_out =
                options.is_quick && !scenario.is_quick || options.is_headless && scenario.mode == Mode::Tui;
            if !is_left_out {
                scenario::run(scenario, *agent, &options.settings, &mut report)?;
            }
        }
    }
    // Empty unless something failed or is to be kept.
    let _ = std::fs::remove_dir(&options.settings.scratch);
    println!("{}", report.summary());
    Ok(if report.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guides_name_the_versions_that_are_run() {
        for agent in agent::ALL {
            let package = agent.package();
            let guide = workspace_root().join(format!("docs/guide/{}.md", package.name));
            let text = std::fs::read_to_string(&guide).expect("a guide");
            let named = text.lines().take(5).any(|line| line.contains("Tested with") && line.contains(package.version));
            assert!(named, "{} does not say that {} was run", guide.display(), package.version);
        }
    }
}
