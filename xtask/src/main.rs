//! Commands of the project itself, started as `cargo xtask NAME`.
//!
//! `cargo xtask --help` lists them. `statwalk` is one of the tools to measure with: it is a command here so that it can
//! be timed as a separate process.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for developers: it talks to the terminal")]

mod aarch64;
mod agents;
mod bars;
mod bench;
mod beside_hermes;
mod contestants;
mod coverage;
mod deps;
mod dist;
mod extras;
mod fuzz;
mod hermes;
mod house;
mod instructions;
mod kept;
mod machine;
mod measure;
mod model;
mod older;
mod pairs;
mod picture;
mod portable;
mod powercut;
mod reading;
mod remote;
mod report;
mod scale;
mod scaling;
mod serving;
mod soak;
mod space;
mod sqlite;
mod statwalk;
mod text;
mod trees;
mod workspace;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser as _;

/// Commands of the project itself
#[derive(clap::Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", disable_help_subcommand = true)]
enum Task {
    /// Measure piton beside other tools
    Bench(bench::BenchArgs),
    /// Run real agents with piton's hooks against a scripted model
    Agents(agents::AgentsArgs),
    /// Run all commands at once and kill them at random
    Soak(soak::SoakArgs),
    /// Save an SQLite database while a program writes to it at full speed
    Sqlite(sqlite::SqliteArgs),
    /// Run two versions of Hermes from PyPI and piton in one store
    BesideHermes(beside_hermes::BesideHermesArgs),
    /// Do random work against a model, on several file systems
    Model(model::ModelArgs),
    /// Run the tests of a store that version 0.1 works in, too
    Older(older::OlderArgs),
    /// Draw the cost of a checkpoint by the size of the tree and of the change (docs/cost-*.svg)
    Scaling(scaling::ScalingArgs),
    /// Compare the wall time of two builds of piton, run in turn
    Pairs(pairs::PairsArgs),
    /// Count the instructions of a take and a hook call, and compare with instructions.toml
    Instructions(instructions::InstructionsArgs),
    /// Run the suites of remotes for long, against real servers, or beside other programs
    Remote(remote::RemoteArgs),
    /// Keep gigabytes before a deletion, on file systems in sparse images, and bring them back
    Kept(kept::KeptArgs),
    /// Measure the extra room that a prune of a large store needs
    Space(space::SpaceArgs),
    /// Draw docs/picker.svg from a real run
    Picture {
        /// Program to draw [default: built from this workspace]
        piton: Option<PathBuf>,
    },
    /// Stat everything below a directory with two threads, and print the number of files
    Statwalk { dir: PathBuf },
    /// Check licences, versions and sources of all crates in piton by deny.toml
    Deps(deps::DepsArgs),
    /// Build everything that is published: programs, packages, checksums
    Dist(dist::DistArgs),
    /// Install what `dist` made on a new Debian system without Rust, in every way, and use it
    DistCheck(dist::fresh::DistCheckArgs),
    /// Interrupt restores, and kill all commands at random, with the program for aarch64 under qemu
    Aarch64(aarch64::Aarch64Args),
    /// Run the tests on Linux with the system calls that macOS has
    Portable(portable::PortableArgs),
    /// Measure the lines of the library that the tests reach
    Coverage,
    /// Fuzz what reads bytes from outside
    Fuzz(fuzz::FuzzArgs),
    /// Count what makes the sources hard to read, beside an older revision
    House(house::HouseArgs),
    /// Cut the power of piton at random moments and check the result
    Powercut(powercut::PowercutArgs),
}

fn main() -> ExitCode {
    let done = if fuzz::is_wrapping() {
        fuzz::wrap(&std::env::args_os().skip(1).collect::<Vec<OsString>>())
    } else {
        run(Task::parse())
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<ExitCode> {
    match task {
        Task::Bench(args) => bench::run(&args),
        Task::Agents(args) => agents::run(args),
        Task::Soak(args) => soak::run(&args),
        Task::Sqlite(args) => sqlite::run(&args),
        Task::BesideHermes(args) => beside_hermes::run(&args),
        Task::Model(args) => model::run(args),
        Task::Older(args) => older::run(&args),
        Task::Scaling(args) => scaling::run(&args),
        Task::Pairs(args) => pairs::run(&args),
        Task::Instructions(args) => instructions::run(&args),
        Task::Remote(args) => remote::run(&args),
        Task::Kept(args) => kept::run(&args),
        Task::Space(args) => space::run(&args),
        Task::Picture { piton } => {
            picture::run(&workspace::piton(piton.as_deref())?)?;
            Ok(ExitCode::SUCCESS)
        }
        Task::Statwalk { dir } => {
            println!("{}", statwalk::walk(&dir)?);
            Ok(ExitCode::SUCCESS)
        }
        Task::Deps(args) => deps::run(&args),
        Task::Dist(args) => dist::run(&args),
        Task::DistCheck(args) => dist::fresh::run(&args),
        Task::Aarch64(args) => aarch64::run(&args),
        Task::Portable(args) => portable::run(&args),
        Task::Coverage => coverage::run(),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::House(args) => house::run(&args),
        Task::Powercut(args) => powercut::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse(line: &str) -> Result<Task, clap::Error> {
        Task::try_parse_from(std::iter::once("xtask").chain(line.split_whitespace()))
    }

    #[test]
    fn every_command_has_a_line_in_the_help() {
        Task::command().debug_assert();
        let help = Task::command().render_help().to_string();
        let commands =
            Task::command().get_subcommands().map(|command| command.get_name().to_owned()).collect::<Vec<_>>();
        assert!(commands.len() > 10 && commands.iter().all(|name| help.contains(&format!("  {name} "))), "{help}");
    }

    #[test]
    fn options_stand_anywhere_and_are_checked() {
        let Ok(Task::Pairs(args)) = parse("pairs a --pairs 3 b") else { panic!("it is right") };
        assert_eq!((args.old, args.pairs), (PathBuf::from("a"), 3));
        for line in
            ["pairs", "pairs a", "pairs a b c", "pairs a b --pairs", "pairs a b --pairs 0", "pairs a b --pair 3"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
        for line in ["bench --rounds 16", "bench --only huge", "model --fs fat", "powercut --states 0", "agents nobody"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
        for line in
            ["bench --only small,large --quick", "model --fs ext4,here", "powercut --fs xfs --piton a --piton b"]
        {
            assert!(parse(line).is_ok(), "{line}");
        }
    }
}
