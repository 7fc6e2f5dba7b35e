//! Commands of the project itself, started as `cargo xtask NAME`.
//!
//! `bench` and `scaling` measure piton beside other tools, `pairs` compares two builds of it, `instructions` counts the
//! instructions of the commands that an agent waits for, `model` runs random work on several file systems, `soak` and
//! `space` test maintenance for longer than a test may take, `beside-hermes` shares a store with Hermes, `fuzz` feeds it
//! random input, `powercut` simulates power cuts and checks the result, `agents` runs it inside real agents, `coverage`
//! measures the line coverage of the tests, `picture` draws the picker, `deps` checks the dependencies, `house` measures
//! how hard the sources are to read. `statwalk` is one of the tools to measure with: it is a command here so that it can
//! be timed as a separate process.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for developers: it talks to the terminal")]

mod agents;
mod args;
mod bars;
mod bench;
mod beside_hermes;
mod contestants;
mod coverage;
mod deps;
mod extras;
mod fuzz;
mod hermes;
mod house;
mod instructions;
mod machine;
mod measure;
mod model;
mod pairs;
mod picture;
mod powercut;
mod report;
mod scale;
mod scaling;
mod soak;
mod space;
mod statwalk;
mod text;
mod trees;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let done = if fuzz::is_wrapping() { fuzz::wrap(&arguments) } else { run(&arguments) };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[OsString]) -> Result<ExitCode> {
    let Some((name, rest)) = arguments.split_first() else {
        print!("{}", args::HELP);
        return Ok(ExitCode::SUCCESS);
    };
    match (name.to_str(), rest) {
        (Some("bench"), _) => match args::parse(rest)? {
            Some(options) => bench::run(&options),
            None => help(),
        },
        (Some("agents"), _) => agents::run(rest),
        (Some("soak"), _) => soak::run(rest),
        (Some("beside-hermes"), _) => beside_hermes::run(rest),
        (Some("model"), _) => model::run(rest),
        (Some("space"), _) => space::run(rest),
        (Some("scaling"), _) => scaling::run(rest),
        (Some("pairs"), _) => pairs::run(rest),
        (Some("instructions"), _) => instructions::run(rest),
        (Some("powercut"), _) => powercut::run(rest),
        (Some("statwalk"), [directory]) => {
            println!("{}", statwalk::walk(Path::new(directory))?);
            Ok(ExitCode::SUCCESS)
        }
        (Some("picture"), rest) => {
            let piton = rest.first().map_or_else(bench::build_piton, |piton| Ok(piton.into()))?;
            picture::run(&piton)?;
            Ok(ExitCode::SUCCESS)
        }
        (Some("coverage"), _) => coverage::run(rest),
        (Some("deps"), _) => deps::run(rest),
        (Some("fuzz"), _) => fuzz::run(rest),
        (Some("house"), _) => house::run(rest),
        (Some("help" | "--help" | "-h"), _) => help(),
        _ => bail!("no such command: {}\n\n{}", name.display(), args::HELP),
    }
}

#[allow(clippy::unnecessary_wraps, reason = "stands in an arm beside calls that can fail")]
fn help() -> Result<ExitCode> {
    print!("{}", args::HELP);
    Ok(ExitCode::SUCCESS)
}
