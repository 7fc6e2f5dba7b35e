//! The `piton install` and `piton uninstall` commands.

use std::borrow::Cow;
use std::path::Path;

use anyhow::Context as _;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use piton::json::{JsonPath, JsonPathOption};
use piton::{Error, ErrorKind, Moment, Store, unified_diff};

use super::diff::shown as shown_patch;
use crate::agents::Agent;
use crate::agents::setup::{Caller, Homes, Setup, Whose};
use crate::context::{Context, default_dir};
use crate::install::record::{Records, Switched};
use crate::install::{AgentPlan, Change, Planner, carry_out, switch};
use crate::options::EXIT_CODES;
use crate::output::{Output, PartlyDone, plain};

/// Hook agents up, so that their work can be undone
#[derive(Debug, Args)]
#[command(after_help = format!("\
Agents: {}.
Anything else can call `piton hook plain`: see its help.

Examples:
  piton install claude codex       for all projects of this user
  piton install claude --project   only in this project
  piton install gemini --dry-run   show what would change

{EXIT_CODES}", names()))]
pub(crate) struct Install {
    /// Names of the agents
    #[arg(value_name = "AGENT", required = true, value_parser = agent(), hide_possible_values = true)]
    agents: Vec<Agent>,
    /// Only for this project, in its own configuration
    #[arg(long)]
    project: bool,
    #[arg(long, help = trust_help())]
    trust: bool,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Remove what `piton install` added
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:\n  piton uninstall claude\n  piton uninstall claude --dry-run\n\n{EXIT_CODES}"))]
pub(crate) struct Uninstall {
    /// Names of the agents
    #[arg(value_name = "AGENT", required = true, value_parser = agent(), hide_possible_values = true)]
    agents: Vec<Agent>,
    /// From the configuration of this project
    #[arg(long)]
    project: bool,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

fn trust_help() -> String {
    let asking = Agent::installable().filter(|agent| agent.install.consent.is_some()).map(|agent| agent.name);
    format!("Also give the consent that {} asks for before it runs a hook", asking.collect::<Vec<_>>().join(", "))
}

/// Returns the names of the agents that can be installed.
pub(super) fn names() -> String {
    Agent::installable().map(|agent| agent.name).collect::<Vec<_>>().join(", ")
}

/// Parses the name of an agent that can be installed.
pub(super) fn agent() -> impl TypedValueParser<Value = Agent> {
    let names = Agent::installable().map(|agent| agent.name);
    PossibleValuesParser::new(names).map(|name| Agent::parse(&name).unwrap_or(Agent::PLAIN))
}

pub(crate) fn run(args: &Install, context: &Context, output: &Output) -> anyhow::Result<()> {
    let job = InstallJob { agents: &args.agents, is_project: args.project, is_dry_run: args.dry_run, is_install: true };
    job.run(args.trust, context, output)
}

pub(crate) fn undo(args: &Uninstall, context: &Context, output: &Output) -> anyhow::Result<()> {
    let job =
        InstallJob { agents: &args.agents, is_project: args.project, is_dry_run: args.dry_run, is_install: false };
    job.run(false, context, output)
}

/// The change of the `enabled` setting in piton's own configuration, and the plan of each agent.
type InstallPlan = (Option<(Change, Switched)>, Vec<AgentPlan>);

/// Arguments of an installation or an uninstallation.
struct InstallJob<'a> {
    agents: &'a [Agent],
    is_project: bool,
    is_dry_run: bool,
    is_install: bool,
}

impl InstallJob<'_> {
    fn run(&self, is_trusting: bool, context: &Context, output: &Output) -> anyhow::Result<()> {
        let existing = context.existing_store()?;
        let whose = self.whose(existing.as_ref(), context)?;
        let setups = self.setups(&whose, is_trusting, context)?;
        let program = if self.is_install { Some(program()?) } else { None };
        // Make the plan first, read only: if it is refused, nothing has been created, not even the store.
        let installs = existing.as_ref().map_or_else(|| context.base.clone(), Store::installs_dir);
        let mut records = Records::read_only(&installs);
        let (mut switch, mut plans) = self.plan(&records, &whose, &setups, context)?;
        if !self.is_dry_run {
            let store = existing.map_or_else(|| context.store(Context::now()), Ok)?;
            records = Records::lock(&store.installs_dir())?;
            (switch, plans) = self.plan(&records, &whose, &setups, context)?;
            // Turned on before the first agent is installed, off after the last one is uninstalled.
            if let Some((change, switched)) = switch.as_mut().filter(|_| self.is_install) {
                switch::carry_out(change, switched, &records, true)?;
            }
            for plan in &mut plans {
                carry_out(plan, &records, &whose, program.as_deref())?;
            }
            if let Some((change, switched)) = switch.as_mut().filter(|_| !self.is_install) {
                switch::carry_out(change, switched, &records, false)?;
            }
            if !self.is_install && records.count() == 0 {
                // Without the record, a later uninstallation does not undo a change that the user makes to the setting.
                records.put_switch(None)?;
            }
        }
        let switch = switch.map(|(change, _)| change);
        self.report(&plans, &setups, switch.as_ref(), &records, context, output);
        for plan in plans.iter().filter(|plan| is_trusting && plan.agent.install.asks_its_user) {
            output.hint(&format!("--trust does nothing for {}: only you can answer it there", plan.agent.name));
        }
        if plans.iter().any(|plan| !plan.left.is_empty()) { Err(PartlyDone.into()) } else { Ok(()) }
    }

    fn whose(&self, store: Option<&Store>, context: &Context) -> piton::Result<Whose> {
        if !self.is_project {
            return Ok(Whose::User);
        }
        let project = context.project(store)?;
        if project.is_too_broad() {
            let error = Error::new(ErrorKind::Invalid, "use as a project").with_path(project.dir());
            let error = error.because("it is your home directory, or one around it");
            return Err(error.with_hint("leave out --project, or name a project with -C"));
        }
        Ok(Whose::Project(project.dir().to_owned()))
    }

    /// Plans the changes: in piton's own configuration, and for each agent.
    fn plan(
        &self,
        records: &Records,
        whose: &Whose,
        setups: &[(Agent, Setup)],
        context: &Context,
    ) -> piton::Result<InstallPlan> {
        let mut planner = Planner::new(records, whose.clone());
        let config = context.config.as_deref().filter(|_| self.is_install);
        let mut switch = config.map(|path| planner.enable(path)).transpose()?.flatten();
        let plan = |(agent, setup): &(Agent, Setup)| {
            if self.is_install { planner.install(*agent, setup) } else { planner.uninstall(*agent, setup) }
        };
        let plans = setups.iter().map(plan).collect::<piton::Result<_>>()?;
        let agents: Vec<_> = setups.iter().map(|(agent, _)| *agent).collect();
        if !self.is_install && !records.has_others(&agents, whose.project()) {
            switch = planner.disable()?;
        }
        Ok((switch, plans))
    }

    fn setups(&self, whose: &Whose, is_trusting: bool, context: &Context) -> anyhow::Result<Vec<(Agent, Setup)>> {
        let home = context
            .home
            .as_deref()
            .context("cannot find the configuration of agents: there is no home directory\nhint: set HOME")?;
        let homes = Homes::new(home, Context::variable);
        let caller = caller(home, context)?;
        let is_first = |(at, agent): &(usize, &Agent)| !self.agents[..*at].contains(agent);
        let agents = self.agents.iter().enumerate().filter(is_first).map(|(_, agent)| *agent);
        let setup = |agent: Agent| {
            let mut setup = agent.setup(whose, &homes, &caller).ok_or_else(|| {
                let for_all = format!("`piton install {}` does it for all projects", agent.name);
                let instead = agent.install.instead_of_project;
                Error::new(ErrorKind::Invalid, format!("install for {} in a project", agent.name))
                    .because("it has no configuration of its own there")
                    .with_hint(instead.map_or(for_all.clone(), |instead| format!("{for_all}; {instead}")))
            })?;
            if let (Some(consent), Some(home)) = (agent.install.consent, homes.of(agent))
                && (is_trusting || !self.is_install)
            {
                setup.configs.push(consent(home, &caller, &rfc3339()));
                setup.todo = "start a new session: running ones are not affected";
            }
            Ok((agent, setup))
        };
        agents.map(setup).collect()
    }

    fn report(
        &self,
        plans: &[AgentPlan],
        setups: &[(Agent, Setup)],
        switch: Option<&Change>,
        records: &Records,
        context: &Context,
        output: &Output,
    ) {
        let changes = || switch.into_iter().chain(plans.iter().flat_map(|plan| &plan.changes));
        let diff: Vec<u8> = changes().flat_map(diff_of).collect();
        output.json(&InstallJson {
            dry_run: self.is_dry_run,
            enabled: switch.is_some() && self.is_install,
            disabled: switch.is_some() && !self.is_install,
            agents: plans.iter().map(|plan| self.agent_json(plan, setups)).collect(),
            diff: String::from_utf8_lossy(&diff),
        });
        if self.is_dry_run {
            output.page(&shown_patch(&diff, output));
        }
        if let Some(change) = switch.filter(|_| self.is_install) {
            let verb = if self.is_dry_run { "Would turn" } else { "Turned" };
            output.text(&format!("{verb} automatic checkpoints on in {}", shown(&change.path)));
            print_copy(change, output);
        }
        for plan in plans {
            self.print(plan, setups, output);
        }
        if let Some(change) = switch.filter(|_| !self.is_install) {
            let verb = if self.is_dry_run { "Would put" } else { "Put" };
            output.text(&format!("{verb} `enabled` back to what it was in {}", shown(&change.path)));
        } else if !self.is_install && !self.is_dry_run && records.count() == 0 && context.settings.enabled {
            let path = context.config.as_deref().map(shown).unwrap_or_default();
            output.text(&format!("No agent is installed any more; `enabled` stays on in {path}"));
        }
        if self.is_project && self.is_install {
            output.hint("the configuration names piton by its path on this machine: think before you commit it");
        }
    }

    fn outcome(&self, plan: &AgentPlan) -> &'static str {
        match (plan.changes.is_empty(), self.is_install) {
            (true, true) => "unchanged",
            (true, false) => "absent",
            (false, true) if plan.was_there => "updated",
            (false, true) => "installed",
            (false, false) => "removed",
        }
    }

    fn agent_json<'a>(&self, plan: &'a AgentPlan, setups: &[(Agent, Setup)]) -> AgentJson<'a> {
        let file = |change: &'a Change| FileJson {
            path: JsonPath::of(&change.path),
            change: change.word(),
            copy: JsonPathOption::of(change.copy.as_deref()),
        };
        AgentJson {
            agent: plan.agent.name,
            outcome: self.outcome(plan),
            files: plan.changes.iter().map(file).collect(),
            left: &plan.left,
            todo: self.todo(plan, setups),
        }
    }

    /// Returns the steps left to the user; `None` if nothing was installed.
    fn todo(&self, plan: &AgentPlan, setups: &[(Agent, Setup)]) -> Option<&'static str> {
        let setup = setups.iter().find(|(agent, _)| *agent == plan.agent);
        setup.filter(|_| self.is_install && !plan.changes.is_empty()).map(|(_, setup)| setup.todo)
    }

    fn print(&self, plan: &AgentPlan, setups: &[(Agent, Setup)], output: &Output) {
        let name = plan.agent.name;
        let would = if self.is_dry_run { "would be " } else { "" };
        output.text(&match self.outcome(plan) {
            "unchanged" => format!("{name}: already installed, nothing to change"),
            "absent" => format!("{name}: not installed, nothing to change"),
            word => format!("{name}: {would}{word}"),
        });
        for change in &plan.changes {
            output.text(&format!("  {would}{}: {}", change.word(), shown(&change.path)));
            print_copy(change, output);
        }
        for left in &plan.left {
            output.warn(&format!("{name}: left alone: {}: {}", left.what, left.why));
        }
        if let Some(todo) = self.todo(plan, setups) {
            output.text(&format!("  next: {todo}"));
        }
    }
}

piton::path_keys! {
    AtConfig = "path", "path_bytes", "path of the file";
    AtCopy = "copy", "copy_bytes", "path of the copy of the file as it was, or null";
}

/// JSON of both commands.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct InstallJson<'a> {
    /// true if nothing was changed
    dry_run: bool,
    /// true if automatic checkpoints were turned on
    enabled: bool,
    /// true if `enabled` was put back to what it was
    disabled: bool,
    /// the agents that were named
    agents: Vec<AgentJson<'a>>,
    /// the changes as a patch
    diff: Cow<'a, str>,
}

/// JSON of one agent.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AgentJson<'a> {
    /// name of the agent
    agent: &'a str,
    /// `installed`, `updated`, `unchanged`, `removed` or `absent`
    outcome: &'a str,
    /// files that were changed
    files: Vec<FileJson<'a>>,
    /// what was left as it is
    left: &'a [crate::install::Left],
    /// what is left to do, or null
    todo: Option<&'a str>,
}

/// JSON of one file.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FileJson<'a> {
    #[serde(flatten)]
    path: JsonPath<'a, AtConfig>,
    /// `made`, `changed` or `removed`
    change: &'a str,
    #[serde(flatten)]
    copy: JsonPathOption<'a, AtCopy>,
}

/// Returns a path as a configuration names it. Fails if it is not UTF-8.
fn text_of(path: &Path) -> anyhow::Result<String> {
    path.to_str().map(str::to_owned).with_context(|| {
        format!(
            "cannot write the path {} into a configuration: it is not UTF-8\nhint: put piton and its store at a path \
             that is UTF-8, or name another one with `--base`",
            path.display()
        )
    })
}

/// Returns the path of this program, which hooks call.
fn program() -> anyhow::Result<String> {
    text_of(&Context::program()?)
}

/// Returns the program and options for hooks, so that they use the same store as this call.
fn caller(home: &Path, context: &Context) -> anyhow::Result<Caller> {
    let mut caller = Caller { program: program()?, options: Vec::new() };
    let usual = default_dir(home);
    let places = [("--base", Some(&context.base), "checkpoints"), ("--config", context.config.as_ref(), "config.yaml")];
    for (option, path, name) in places {
        if let Some(path) = path.filter(|path| **path != usual.join(name)) {
            caller.options.extend([option.to_owned(), text_of(path)?]);
        }
    }
    Ok(caller)
}

fn diff_of(change: &Change) -> Vec<u8> {
    let bytes = |text: &Option<String>| text.clone().map(String::into_bytes);
    let (old, new) = (bytes(&change.before), bytes(&change.after));
    unified_diff(change.path.as_os_str().as_encoded_bytes(), old.as_deref(), new.as_deref())
}

fn print_copy(change: &Change, output: &Output) {
    if let Some(copy) = &change.copy {
        output.text(&format!("    as it was: {}", shown(copy)));
    }
}

fn shown(path: &Path) -> String {
    plain(&path.display().to_string())
}

/// Returns the current time in UTC.
fn rfc3339() -> String {
    Moment { offset_secs: 0, ..Context::now() }.to_string().replace("+00:00", "Z")
}
