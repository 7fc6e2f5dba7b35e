//! The `piton config` command.

use anyhow::{Context as _, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use piton::json::{AtFile, JsonPath};
use piton::{Error, ErrorKind, Settings};
use serde_json::Value;

use crate::context::{ConfigPolicy, ConfigProblem, Context, variable};
use crate::edit::{Config, Format, at, files};
use crate::hints::Problem;
use crate::options::{EXIT_CODES, Global};
use crate::output::{Output, plain};

/// Show each setting and where it comes from, or change one
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  piton config                        every setting, and where it comes from
  piton config set max_snapshots 50   keeps comments and order of the file
  piton config init                   writes a section, with checkpoints on

{EXIT_CODES}"))]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    verb: Option<ConfigVerb>,
}

#[derive(Debug, Subcommand)]
enum ConfigVerb {
    /// Print the value of one setting
    #[command(after_help = format!("Example:\n  piton config get max_snapshots\n\n{EXIT_CODES}"))]
    Get {
        /// Name of the setting
        #[arg(value_parser = key(), hide_possible_values = true)]
        key: String,
    },
    /// Change one setting in the configuration file
    #[command(after_help = format!("\
Examples:
  piton config set max_snapshots 50
  piton config set exclude 'data/,*.sqlite'

Comments and the order of the file are kept, except for a comment on the line
of a removed pattern, and those inside of a list in brackets.

{EXIT_CODES}"))]
    Set {
        /// Name of the setting
        #[arg(value_parser = key(), hide_possible_values = true)]
        key: String,
        /// New value; separate list items with commas
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Write a commented section into the configuration file: automatic checkpoints on, the rest at its defaults
    #[command(after_help = format!("Example:\n  piton config init\n\n{EXIT_CODES}"))]
    Init,
}

/// The configuration file is private to its owner: it may hold secrets of other programs.
const MODE: u32 = 0o600;
/// Value of a setting for which piton decides itself.
const AUTO: &str = "auto";

/// Runs the command. It accepts a file with errors, because this command is used to fix them.
pub(crate) fn run(args: &ConfigArgs, global: &Global, output: &Output) -> anyhow::Result<()> {
    let context = Context::build(global, ConfigPolicy::Collect(output))?;
    let problems: Vec<_> = context.config_problems.iter().map(ConfigProblem::for_user).collect();
    // A missing file is not a problem if this call creates it.
    let makes_file = matches!(args.verb, Some(ConfigVerb::Set { .. } | ConfigVerb::Init));
    let missing = context.config.as_ref().filter(|path| makes_file && !path.exists());
    let missing = missing.map(|path| path.display().to_string());
    let is_said = |problem: &&Problem| missing.as_ref().is_none_or(|path| !problem.what.contains(path));
    problems.iter().filter(is_said).for_each(|problem| output.warn(&problem.what));
    match &args.verb {
        None => show(&context, global, output),
        Some(ConfigVerb::Get { key }) => get(key, &context, output),
        Some(ConfigVerb::Set { key, value }) => set(key, value, &context, output),
        Some(ConfigVerb::Init) => init(&context, output),
    }
}

fn show(context: &Context, global: &Global, output: &Output) -> anyhow::Result<()> {
    let settings: Vec<_> = Settings::TABLE.iter().map(|row| (row.key, context.settings.get(row.key))).collect();
    let path = path_of(context)?;
    let in_file = files::read(&path).ok().flatten().map(|text| keys_in(&text)).unwrap_or_default();
    let file = path.display().to_string();
    let source = |key: &str| {
        // A value that was refused does not count as a source.
        let is_from = |source: &str, is_there: bool| is_there && !context.is_refused(source, key);
        match variable(key) {
            _ if key == "enabled" && global.checkpoints => "--checkpoints".to_owned(),
            variable if is_from(&variable, Context::is_set(&variable)) => variable,
            _ if is_from(&file, in_file.iter().any(|there| there == key)) => file.clone(),
            _ => "default".to_owned(),
        }
    };
    let setting =
        |(key, value): &(&'static str, Value)| (*key, SettingJson { value: value.clone(), source: source(key) });
    output.json(&ConfigJson { file: JsonPath::of(&path), settings: settings.iter().map(setting).collect() });
    let lines = settings.iter().map(|(key, value)| format!("{key:<20} {:<10}  {}", shown(value), source(key)));
    output.text(&lines.collect::<Vec<_>>().join("\n"));
    Ok(())
}

fn get(key: &str, context: &Context, output: &Output) -> anyhow::Result<()> {
    let value = context.settings.get(key);
    output.json(&ConfigGetJson { key, value: &value });
    output.text(&shown(&value));
    Ok(())
}

fn set(key: &str, text: &str, context: &Context, output: &Output) -> anyhow::Result<()> {
    let mut settings = Settings::default();
    if let Err(problem) = settings.set_text(key, text) {
        return Err(Error::new(ErrorKind::Invalid, format!("set {key}"))
            .because(problem.what)
            .with_hint("`piton config` shows each setting with its value and its meaning; nothing was changed")
            .into());
    }
    let value = settings.get(key);
    let path = path_of(context)?;
    let _alone = files::lock_around(&path, MODE)?;
    let before = files::read(&path)?.unwrap_or_default();
    let failed = |why: String| {
        Error::new(ErrorKind::Invalid, "edit")
            .with_path(&path)
            .because(why)
            .with_hint(format!("write `{key}: {value}` under `checkpoints:` there by hand; nothing was changed"))
    };
    let mut config = Config::parse(&before, Format::Yaml).map_err(failed)?;
    let place = ["checkpoints", key];
    if value != AUTO {
        // The short form `checkpoints: true` has no room for a second setting.
        config.expand("checkpoints", "enabled").map_err(failed)?;
        config.set(&place, &value).map_err(failed)?;
    } else if at(&config.value(), &place).is_some() {
        // Without the key it is `auto`, and other programs that read the file expect a number.
        config.unset(&place).map_err(failed)?;
    }
    let after = config.text();
    check(after, key, &value).map_err(failed)?;
    if after != before {
        files::write(&path, after.as_bytes(), MODE)?;
    }
    output.json(&ConfigSetJson { key, value: &value, file: JsonPath::of(&path), changed: after != before });
    output.text(&format!("{key} is {} in {}", shown(&value), plain(&path.display().to_string())));
    if Context::is_set(&variable(key)) {
        output.warn(&format!("{} is set, and goes before the file", variable(key)));
    }
    Ok(())
}

/// Fails if piton would not read this value from the text.
fn check(text: &str, key: &str, value: &Value) -> Result<(), String> {
    let mut settings = Settings::default();
    let problems = settings.read_yaml(text);
    match problems.iter().find(|problem| problem.is_error && (problem.key == key || problem.key == "checkpoints")) {
        Some(problem) => Err(problem.to_string()),
        None if settings.get(key) == *value => Ok(()),
        None => Err("it would not say what it should".to_owned()),
    }
}

fn init(context: &Context, output: &Output) -> anyhow::Result<()> {
    let path = path_of(context)?;
    let _alone = files::lock_around(&path, MODE)?;
    let before = files::read(&path)?.unwrap_or_default();
    if !keys_in(&before).is_empty()
        || Config::parse(&before, Format::Yaml).is_ok_and(|file| !file.value()["checkpoints"].is_null())
    {
        bail!(
            "cannot write a section into {}: it has one\nhint: `piton config set KEY VALUE` changes it",
            path.display()
        );
    }
    let mut text = before.clone();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str("# Checkpoints of what agents work on; `piton config` shows what is in force.\ncheckpoints:\n");
    let settings = Settings::default().enabled(true);
    for row in Settings::TABLE {
        let value = settings.get(row.key);
        let setting = if value == AUTO { format!("# {}: {AUTO}", row.key) } else { format!("{}: {value}", row.key) };
        text.push_str(&format!("  # {}\n  {setting}\n", row.help));
    }
    check(&text, "enabled", &Value::Bool(true)).map_err(|why| not_extended(&path, why))?;
    files::write(&path, text.as_bytes(), MODE)?;
    output.json(&ConfigInitJson { file: JsonPath::of(&path) });
    output
        .text(&format!("Wrote the defaults to {}, with automatic checkpoints on", plain(&path.display().to_string())));
    Ok(())
}

fn not_extended(path: &std::path::Path, why: String) -> Error {
    Error::new(ErrorKind::Invalid, "extend")
        .with_path(path)
        .because(why)
        .with_hint("correct the file, or add a `checkpoints:` section by hand; nothing was changed")
}

fn path_of(context: &Context) -> anyhow::Result<std::path::PathBuf> {
    context
        .config
        .clone()
        .context("cannot find the configuration file: there is no home directory\nhint: give it with --config")
}

/// Parses the name of a setting, with underscores or dashes.
fn key() -> impl TypedValueParser<Value = String> {
    let names = Settings::TABLE.iter().map(|row| PossibleValue::new(row.key).alias(row.key.replace('_', "-")));
    PossibleValuesParser::new(names).map(|name| name.replace('-', "_"))
}

/// Returns the settings in a file, the short form included.
fn keys_in(text: &str) -> Vec<String> {
    let Ok(config) = Config::parse(text, Format::Yaml) else { return Vec::new() };
    match &config.value()["checkpoints"] {
        Value::Bool(_) => vec!["enabled".to_owned()],
        Value::Object(section) => section.keys().cloned().collect(),
        _ => Vec::new(),
    }
}

fn shown(value: &Value) -> String {
    plain(&value.to_string())
}

/// JSON of all settings.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ConfigJson<'a> {
    #[serde(flatten)]
    file: JsonPath<'a, AtFile>,
    /// settings, by name
    #[serde(serialize_with = "by_name")]
    #[cfg_attr(test, schemars(with = "std::collections::BTreeMap<String, SettingJson>"))]
    settings: Vec<(&'static str, SettingJson)>,
}

/// JSON of a setting.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SettingJson {
    /// value in force
    value: Value,
    /// where it is from: an option, a variable, the file, or `default`
    source: String,
}

/// JSON of `get`.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ConfigGetJson<'a> {
    /// name of the setting
    key: &'a str,
    /// value in force
    value: &'a Value,
}

/// JSON of `set`.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ConfigSetJson<'a> {
    /// name of the setting
    key: &'a str,
    /// new value
    value: &'a Value,
    #[serde(flatten)]
    file: JsonPath<'a, AtFile>,
    /// true if the file was changed
    changed: bool,
}

/// JSON of `init`.
#[derive(serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ConfigInitJson<'a> {
    #[serde(flatten)]
    file: JsonPath<'a, AtFile>,
}

/// Serialises the settings as one object, in the order of the table.
fn by_name<S: serde::Serializer>(settings: &[(&'static str, SettingJson)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(settings.iter().map(|(key, setting)| (key, setting)))
}
