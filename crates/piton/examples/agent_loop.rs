//! A small agent with an undo layer: each prompt begins a turn, each changing tool makes sure of a checkpoint first, and
//! the user can go back. Run it with an empty directory:
//!
//! ```sh
//! cargo run -p piton --example agent_loop -- "$(mktemp -d)"
//! ```
#![allow(clippy::print_stdout, reason = "a program for a terminal")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs};

use piton::{Manager, Moment, RestoreOptions, RestoreTo, Settings, triggers};

/// What a model could ask for.
enum Tool {
    WriteFile(&'static str, &'static str),
    Terminal(&'static str),
    ReadFile(&'static str),
}

struct Agent {
    dir: PathBuf,
    undo: Manager,
}

impl Agent {
    fn prompt(&mut self, text: &str, plan: &[Tool]) -> Result<(), Box<dyn Error>> {
        println!("\n> {text}");
        self.undo.new_turn("session-1", now()?);
        plan.iter().try_for_each(|tool| self.call(tool))
    }

    fn call(&self, tool: &Tool) -> Result<(), Box<dyn Error>> {
        match tool {
            Tool::ReadFile(name) => println!("read {name}: {:?}", fs::read_to_string(self.dir.join(name)).ok()),
            Tool::WriteFile(name, text) => {
                let path = self.dir.join(name);
                self.protect(&[self.undo.working_dir_for_path(&path)], "before write_file")?;
                fs::write(path, text)?;
            }
            Tool::Terminal(line) => {
                let verdict = triggers::analyse(line, &self.dir, None);
                if verdict.may_change {
                    self.protect(&verdict.dirs, &format!("before terminal: {}", verdict.summary))?;
                }
                std::process::Command::new("sh").args(["-c", line]).current_dir(&self.dir).status()?;
            }
        }
        Ok(())
    }

    /// Whatever comes of it, the tool goes on: what was missed is in the journal.
    fn protect(&self, dirs: &[PathBuf], reason: &str) -> Result<(), Box<dyn Error>> {
        for ensured in self.undo.ensure_checkpoints(dirs, reason, now()?) {
            match (ensured.checkpoint(), ensured.missed(self.undo.settings())) {
                (Some(id), _) => println!("{reason}: checkpoint {} of {}", id.short(), ensured.dir.display()),
                (None, Some(why)) => println!("{reason}: unprotected: {why}"),
                (None, None) => println!("{reason}: this turn has its checkpoint"),
            }
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let place = env::args_os().nth(1).ok_or("give an empty directory")?;
    let place = Path::new(&place).canonicalize()?;
    let (base, dir) = (place.join("base"), place.join("project"));
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("notes.txt"), "the first\n")?;

    let settings = Settings::default().enabled(true);
    let mut agent = Agent { undo: Manager::new(&base, None, settings).for_agent("example"), dir };
    agent.prompt(
        "Improve my notes",
        &[
            Tool::ReadFile("notes.txt"),
            Tool::WriteFile("notes.txt", "the second\n"),
            Tool::WriteFile("more.txt", "more\n"),
        ],
    )?;
    agent.prompt("Tidy up", &[Tool::Terminal("ls"), Tool::Terminal("rm -f notes.txt more.txt")])?;

    println!();
    for listed in agent.undo.list(&agent.dir)? {
        println!(
            "{}. {}  {}",
            listed.number.unwrap_or_default(),
            listed.checkpoint.id.short(),
            listed.checkpoint.reason
        );
    }
    let report = agent.undo.restore(&agent.dir, RestoreTo::Named("1"), RestoreOptions::default(), now()?)?;
    println!("restored: {} files written, {} removed", report.written.len(), report.removed.len());
    println!("notes.txt: {:?}", fs::read_to_string(agent.dir.join("notes.txt"))?);
    Ok(())
}

fn now() -> Result<Moment, Box<dyn Error>> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(Moment { secs: i64::try_from(since.as_secs())?, nanos: since.subsec_nanos(), offset_secs: 0 })
}
