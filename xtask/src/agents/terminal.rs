//! An agent's terminal interface, in tmux.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::scratch::Scratch;
use super::tools::Step;

const COLUMNS: &str = "140";
const LINES: &str = "50";
/// Timeout for anything to appear. Agents are slow on a busy machine.
const WAIT: Duration = Duration::from_secs(75);
const POLL: Duration = Duration::from_millis(200);
/// A screen that does not change for this long is at rest.
const REST: Duration = Duration::from_millis(1500);
/// Pause between two keys: agents treat faster ones as pasted text.
const KEY: Duration = Duration::from_millis(15);

pub(super) struct Terminal {
    socket: PathBuf,
    log: PathBuf,
    shots: usize,
}

impl Terminal {
    /// Starts the agent and waits until it accepts a prompt.
    pub(super) fn start(scratch: &Scratch) -> Result<Self> {
        let line: Vec<_> = scratch.agent.interactive().iter().map(|word| quoted(word)).collect();
        Self::start_line(scratch, &line.join(" "), scratch.agent.ready())
    }

    /// Runs a line of the shell that starts the agent, and waits for one of the texts in `ready`.
    pub(super) fn start_line(scratch: &Scratch, line: &str, ready: &[&str]) -> Result<Self> {
        // A socket that was used before may still be in use by a server that is exiting.
        let socket = (1..).map(|n| scratch.root.join(format!("tmux-{n}"))).find(|socket| !socket.exists());
        let socket = socket.context("no name for a socket")?;
        let (script, config) = (scratch.root.join("tui.sh"), scratch.root.join("tmux.conf"));
        fs::write(
            &config,
            "set -g history-limit 5000\nset -g default-terminal screen-256color\nset -sg escape-time 0\n",
        )?;
        let variables = scratch.environment().into_iter().map(|(name, value)| format!("{name}={}", quoted(&value)));
        let text = format!(
            "#!/bin/bash\ncd {}\nenv -i TERM=screen-256color {} bash -c {}\necho \"[ended: $?]\"\nsleep 1000\n",
            quoted(&scratch.project_name()),
            variables.collect::<Vec<_>>().join(" "),
            quoted(line),
        );
        fs::write(&script, text)?;
        fs::set_permissions(&script, Permissions::from_mode(0o755))?;
        let terminal = Self { socket, log: scratch.root.join("log"), shots: 0 };
        let script = script.display().to_string();
        let config = config.display().to_string();
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(&terminal.socket).args(["-f", &config, "new-session", "-d", "-x", COLUMNS, "-y", LINES]);
        let status = tmux.arg(script).env_remove("TMUX").stdin(Stdio::null()).status().context("cannot run tmux")?;
        ensure!(status.success(), "tmux does not start");
        terminal.wait_until_ready(scratch, ready)?;
        Ok(terminal)
    }

    fn wait_until_ready(&self, scratch: &Scratch, ready: &[&str]) -> Result<()> {
        let began = Instant::now();
        let mut answered = Vec::new();
        loop {
            let screen = self.screen()?;
            ensure!(!screen.contains("[ended: "), "the agent ended at its start: {}", self.kept()?);
            let question = scratch.agent.questions().iter().find(|(words, _)| screen.contains(words));
            match question {
                Some((words, keys)) if !answered.contains(words) => {
                    answered.push(words);
                    self.rest()?;
                    keys.iter().try_for_each(|key| self.key(key))?;
                }
                _ if ready.iter().any(|words| screen.contains(words)) => return self.rest(),
                _ => {}
            }
            ensure!(began.elapsed() < WAIT, "the agent takes no prompt: {}", self.kept()?);
            thread::sleep(POLL);
        }
    }

    fn tmux(&self, arguments: &[&str]) -> Result<String> {
        let mut tmux = Command::new("tmux");
        let output = tmux.arg("-S").arg(&self.socket).args(arguments).output().context("cannot run tmux")?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns the text on the screen, and the lines that scrolled off it.
    pub(super) fn screen(&self) -> Result<String> {
        self.tmux(&["capture-pane", "-p", "-J", "-S", "-2000"])
    }

    pub(super) fn key(&self, key: &str) -> Result<()> {
        self.tmux(&["send-keys", key]).map(drop)
    }

    /// Presses keys, one after the other, and waits after each until the screen is at rest.
    pub(super) fn keys(&self, keys: &[&str]) -> Result<()> {
        keys.iter().try_for_each(|key| self.key(key).and_then(|()| self.rest()))
    }

    /// Types a line and sends it. An agent may drop keys while it is busy: then they are typed again.
    pub(super) fn send(&self, line: &str) -> Result<()> {
        for _ in 0..3 {
            for letter in line.chars() {
                self.tmux(&["send-keys", "-l", &letter.to_string()])?;
                thread::sleep(KEY);
            }
            self.rest()?;
            let screen = self.tmux(&["capture-pane", "-p", "-J"])?;
            if squeezed(&screen).contains(&squeezed(line)) {
                return self.key("Enter");
            }
            self.key("C-u")?;
        }
        bail!("`{line}` cannot be typed: {}", self.kept()?)
    }

    /// Waits until the screen no longer changes. With a spinner or a clock on it, the wait times out.
    pub(super) fn rest(&self) -> Result<()> {
        let began = Instant::now();
        let (mut last, mut since) = (self.screen()?, Instant::now());
        while since.elapsed() < REST && began.elapsed() < 5 * REST {
            thread::sleep(POLL);
            let now = self.screen()?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// Waits until the screen contains the words, wherever its lines are broken. Fails at once if `give_up` fails
    /// before.
    pub(super) fn wait_for(&mut self, words: &str, give_up: impl Fn() -> Result<()>) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < WAIT {
            if squeezed(&self.screen()?).contains(&squeezed(words)) {
                return Ok(());
            }
            if let Err(error) = give_up() {
                self.rest()?;
                return Err(error.context(format!("no `{words}` on the screen: {}", self.shot()?)));
            }
            thread::sleep(POLL);
        }
        bail!("no `{words}` on the screen after {} s: {}", WAIT.as_secs(), self.shot()?)
    }

    /// Gives the agent a prompt and waits for the end of the turn.
    pub(super) fn prompt(&mut self, scratch: &Scratch, prompt: &str, steps: Vec<Step>) -> Result<()> {
        self.shots += 1;
        let ending = ending(scratch.next_turn());
        scratch.model.set_script(prompt, steps, &ending);
        self.send(prompt)?;
        self.wait_for(&ending, || Ok(()))?;
        self.rest()
    }

    /// Gives the agent a prompt, and interrupts the turn once the file `begun` is in the project.
    pub(super) fn interrupt_during(
        &mut self,
        scratch: &Scratch,
        prompt: &str,
        steps: Vec<Step>,
        begun: &str,
    ) -> Result<()> {
        scratch.model.set_script(prompt, steps, "That was not reached.");
        self.send(prompt)?;
        let (began, file) = (Instant::now(), scratch.project.join(begun));
        while !file.exists() {
            ensure!(began.elapsed() < WAIT, "the agent did not run the command: {}", self.shot()?);
            thread::sleep(POLL);
        }
        self.rest()?;
        for key in scratch.agent.interrupt_keys() {
            self.key(key)?;
            thread::sleep(POLL);
        }
        self.rest()
    }

    /// Writes the screen to a file and returns its name.
    pub(super) fn shot(&mut self) -> Result<String> {
        self.shots += 1;
        self.kept()
    }

    fn kept(&self) -> Result<String> {
        let path = self.log.join(format!("screen-{}.txt", self.shots));
        fs::write(&path, self.screen()?)?;
        Ok(path.display().to_string())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.kept();
        let _ = self.tmux(&["kill-server"]);
    }
}

/// Returns the last words of the model in a turn. Turns are counted over all terminals of a scratch home.
pub(super) fn ending(turn: usize) -> String {
    format!("That was turn {turn} of the terminal.")
}

/// Quotes a text for a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns the text without white space and box-drawing characters.
fn squeezed(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && !('\u{2500}'..='\u{259f}').contains(c)).collect()
}
