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

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio, exit};
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use crate::args::workspace_root;
use crate::bench::build_piton;
use agent::Agent;
use install::Cache;
use report::{Mode, Report};
use scenario::Settings;

pub(crate) const HELP: &str = "\
cargo xtask agents [NAME...] [OPTIONS]
Runs agents (claude codex gemini opencode hermes qwen copilot) with piton's hooks against a scripted model.

  --quick         one session of each agent, headless
  --headless      without the terminal interfaces
  --only CHECK    one check, by the name in its line
  --cache DIR     where the agents are installed (default: target/agents)
  --scratch DIR   where scratch homes are made (default: a directory below the system's for temporary files)
  --piton PATH    the program to check (default: a release build of this workspace)
  --keep          keep the scratch homes of checks that passed, too
  --if-online     exit with 0 and say so if the package registries do not answer
";

/// Environment variable that marks the process inside the namespaces.
const INSIDE: &str = "PITON_AGENTS_INSIDE";

struct Options {
    agents: Vec<&'static dyn Agent>,
    is_headless: bool,
    is_quick: bool,
    is_online_only: bool,
    settings: Settings,
}

pub(crate) fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let Some(mut options) = parse(arguments)? else {
        print!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    };
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
    match enter(arguments, &options.settings)? {
        Some(code) => Ok(code),
        None => run_all(&options),
    }
}

fn parse(arguments: &[OsString]) -> Result<Option<Options>> {
    let mut names = Vec::new();
    let (mut cache, mut scratch, mut piton, mut only) = (None, None, PathBuf::new(), None);
    let (mut is_headless, mut is_quick, mut is_online_only, mut keep) = (false, false, false, false);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let name = argument.to_str().unwrap_or_default();
        let mut value = || rest.next().with_context(|| format!("{name} needs a value"));
        match name {
            "--headless" => is_headless = true,
            "--quick" => (is_quick, is_headless) = (true, true),
            "--if-online" => is_online_only = true,
            "--keep" => keep = true,
            "--only" => only = Some(value()?.to_string_lossy().into_owned()),
            "--cache" => cache = Some(std::path::absolute(value()?)?),
            "--scratch" => scratch = Some(std::path::absolute(value()?)?),
            "--piton" => piton = std::path::absolute(value()?)?,
            "--help" | "-h" => return Ok(None),
            _ if name.starts_with('-') => bail!("no such option: {}\n\n{HELP}", argument.display()),
            _ => names.push(name.to_owned()),
        }
    }
    let agents = if names.is_empty() {
        agent::ALL.to_vec()
    } else {
        names.iter().map(|name| find(name)).collect::<Result<_>>()?
    };
    if let Some(only) = &only {
        let is_known = scenario::ALL.iter().any(|scenario| scenario.checks.contains(&only.as_str()));
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
    Ok(Some(Options { agents, is_headless, is_quick, is_online_only, settings }))
}

fn find(name: &str) -> Result<&'static dyn Agent> {
    let found = agent::ALL.into_iter().find(|agent| agent.package().name == name);
    found.with_context(|| format!("no such agent: {name}\n\n{HELP}"))
}

/// Starts this program again in its own network, mount and process namespaces, with no network but loopback. Returns
/// `None` if the system does not permit it.
fn enter(arguments: &[OsString], settings: &Settings) -> Result<Option<ExitCode>> {
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
    again.arg(std::env::current_exe().context("cannot find this program")?).arg("agents").args(arguments);
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
        for scenario in &scenario::ALL {
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
            let named = text.lines().take(5).any(|line| line.contains("run with") && line.contains(package.version));
            assert!(named, "{} does not say that {} was run", guide.display(), package.version);
        }
    }
}
