//! The picker in a real terminal: the real program in tmux, with keys typed and the screen read.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use piton::{CheckpointKind, Moment, Origin, Progress, Project, Request, Settings, Store};
use testkit::{Sandbox, clean_command, has_program, wait_for_maintenance};

use crate::hook_kit::{hook, prompt};
use crate::kit::{PITON, ids, piton};

/// Interval between reads of the screen: a busy loop would keep the picker from drawing.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Timeout for something to appear on the screen.
const PATIENCE: Duration = Duration::from_secs(120);

/// A terminal that runs the picker. The screen shows `BEFORE` at first; afterwards it shows the exit code, and
/// `same-settings` if the terminal's settings are unchanged.
pub(crate) struct Terminal<'a> {
    sandbox: &'a Sandbox,
    socket: PathBuf,
}

impl<'a> Terminal<'a> {
    /// Opens a terminal. Returns `None` if tmux is not installed.
    pub(crate) fn open(sandbox: &'a Sandbox, size: (u16, u16), command: &str) -> Option<Self> {
        if !has_program("tmux") {
            return None;
        }
        // A server that is shutting down may still hold its socket.
        static SOCKETS: AtomicUsize = AtomicUsize::new(0);
        let socket = sandbox.root().join(format!("tmux-{}", SOCKETS.fetch_add(1, Ordering::Relaxed)));
        let terminal = Self { sandbox, socket };
        let script = format!(
            "echo BEFORE; was=$(stty -g); {command}; code=$?; is=$(stty -g); \
             echo \"exit=$code\"; [ \"$was\" = \"$is\" ] && echo same-settings; exec sleep 1000"
        );
        let (width, height) = (size.0.to_string(), size.1.to_string());
        let settings = ["start-server", ";", "set-option", "-g", "status", "off", ";"];
        let session = ["new-session", "-d", "-x", &width, "-y", &height, &script];
        let said = terminal.tmux().args(settings).args(session).output().expect("tmux runs");
        assert!(said.status.success(), "{said:?}");
        Some(terminal)
    }

    /// Runs `piton rollback` in a terminal of the usual size and waits until its list is on the screen.
    pub(crate) fn picker(sandbox: &'a Sandbox) -> Option<Self> {
        let terminal = Self::open(sandbox, (120, 35), &format!("{PITON} rollback"))?;
        // The screen is drawn once before the list is read: keys would have no effect.
        terminal.until("list", |screen| screen.contains("checkpoints in") && !screen.contains(" 0 checkpoints in"));
        Some(terminal)
    }

    fn tmux(&self) -> Command {
        let mut command = clean_command("tmux");
        command.env("HOME", self.sandbox.home()).env("TZ", "UTC").env("LC_ALL", "C.UTF-8").env("SHELL", "/bin/sh");
        command.env("PITON_MAX_SNAPSHOTS", "1000").current_dir(self.sandbox.project());
        command.args(["-u", "-f", "/dev/null", "-S"]).arg(&self.socket);
        command
    }

    #[track_caller]
    fn ask(&self, args: &[&str]) -> String {
        let output = self.tmux().args(args).output().expect("tmux runs");
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    #[track_caller]
    pub(crate) fn screen(&self) -> String {
        self.ask(&["capture-pane", "-p"])
    }

    /// Sends keys, by name or as characters.
    #[track_caller]
    pub(crate) fn press(&self, keys: &[&str]) -> &Self {
        self.ask(&[&["send-keys"], keys].concat());
        self
    }

    #[track_caller]
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let screen = self.screen();
            if is_so(&screen) {
                return screen;
            }
            assert!(began.elapsed() < PATIENCE, "no {what} on the screen:\n{screen}");
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }

    #[track_caller]
    pub(crate) fn wait_until_gone(&self, text: &str) -> String {
        self.until(&format!("screen without {text}"), |screen| !screen.contains(text))
    }

    /// Asserts that the picker has ended and restored the terminal: the screen, the settings, the cursor, the mouse.
    /// Returns the screen.
    #[track_caller]
    pub(crate) fn is_clean(&self, exit: i32) -> String {
        let screen = self.wait_for("same-settings");
        assert!(screen.starts_with("BEFORE\n") && screen.contains(&format!("\nexit={exit}\n")), "{screen}");
        let modes = "#{alternate_on} #{cursor_flag} #{mouse_any_flag}#{mouse_standard_flag}#{mouse_button_flag}";
        assert_eq!(self.ask(&["display-message", "-p", modes]), "0 1 000\n");
        screen
    }

    /// Returns the id of the process that runs in the terminal, below the shell.
    fn process(&self) -> String {
        let shell = self.ask(&["display-message", "-p", "#{pane_pid}"]);
        let shell = shell.trim();
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).expect("the shell runs");
        children.split_whitespace().next().expect("the picker runs").to_owned()
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        // By its own socket, so that no other server is ended.
        let _ = self.tmux().arg("kill-server").output();
        wait_for_maintenance(&self.sandbox.root());
    }
}

/// Takes a checkpoint, for a session or for none, in this process: a test may need hundreds.
fn take(sandbox: &Sandbox, reason: &str, session: Option<&str>) {
    let now = jiff::Timestamp::now();
    let now = Moment { secs: now.as_second(), nanos: 0, offset_secs: 0 };
    let store = Store::open_or_create(&sandbox.base(), now).expect("a store");
    let project = Project::at(&sandbox.project(), Some(&sandbox.home())).expect("a project");
    let origin = session.map_or_else(Origin::default, |session| Origin::default().agent("claude").session(session));
    let request = Request::default().reason(reason).kind(CheckpointKind::Manual).origin(origin);
    let settings = Settings::default().max_snapshots(1000.into());
    piton::take(&store, &project, &request, &settings, now, &Progress::default()).expect("a checkpoint");
}

fn text(sandbox: &Sandbox, path: &str) -> String {
    fs::read_to_string(sandbox.path(path)).unwrap_or_else(|error| format!("{path}: {error}"))
}

/// Creates three checkpoints, and files that differ from all of them.
fn example() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = a one\\n\n b.txt = b one\\n");
    take(&sandbox, "before write_file", None);
    sandbox.tree("a.txt = a two\\n");
    take(&sandbox, "before patch: 日本語 🎉", None);
    sandbox.tree("b.txt = b two\\n");
    take(&sandbox, "before terminal: rm x", None);
    sandbox.tree("a.txt = a now\\n\n b.txt = b now\\n\n c.txt = c now\\n");
    sandbox
}

#[test]
fn a_file_is_picked_restored_and_the_restore_undone() {
    let sandbox = example();
    let Some(terminal) = Terminal::picker(&sandbox) else { return };
    let screen = terminal.wait_for("-a two");
    let list = ["before terminal:", "before patch: 日", "before write_file"];
    assert!(list.iter().all(|reason| screen.contains(reason)), "{screen}");
    terminal.wait_for("+1/-1");
    terminal.press(&["j", "j"]).wait_for("-a one");
    terminal.press(&["n"]).wait_for(">M b.txt");
    terminal.press(&["o"]);
    let short = &ids(&sandbox)[2][..7];
    terminal.wait_for(&format!("Restore b.txt from {short}: 1 file written, 0 removed. y/n"));
    assert_eq!(text(&sandbox, "b.txt"), "b now\n", "nothing is done before the answer");
    terminal.press(&["y"]).wait_for(&format!("Restored to {short} (before write_file): 1 file written"));
    terminal.wait_for("4 checkpoints in");
    assert_eq!((text(&sandbox, "a.txt"), text(&sandbox, "b.txt")), ("a now\n".to_owned(), "b one\n".to_owned()));
    terminal.wait_for("2 files changed");
    terminal.press(&["u"]).wait_for("Undo: back to");
    terminal.press(&["y"]).wait_for("5 checkpoints in");
    assert_eq!(text(&sandbox, "b.txt"), "b now\n");
    terminal.press(&["q"]);
    let left = terminal.is_clean(0);
    assert!(left.contains(&format!("\nRestored to {short} (before write_file): 1 file written, 0 files removed\n")));
    sandbox.assert_store_is_whole();
}

#[test]
fn everything_is_restored_after_the_plan_was_looked_at() {
    let sandbox = example();
    let Some(terminal) = Terminal::picker(&sandbox) else { return };
    terminal.press(&["G", "p"]).wait_for("remove  c.txt");
    terminal.press(&["Enter"]).wait_for("2 files written, 1 removed. y/n");
    terminal.press(&["n"]).wait_for("Nothing was done");
    assert_eq!(text(&sandbox, "c.txt"), "c now\n");
    terminal.press(&["Enter"]).wait_for("y/n");
    terminal.press(&["y"]).wait_for("Nothing differs");
    assert_eq!((text(&sandbox, "a.txt"), text(&sandbox, "b.txt")), ("a one\n".to_owned(), "b one\n".to_owned()));
    assert!(!sandbox.path("c.txt").exists());
    terminal.press(&["r"]).wait_for("Nothing to do: the files are as they were");
}

/// The same as after a restore by the command.
#[test]
fn an_agent_hears_of_what_was_restored() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one");
    hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t1", "first"));
    sandbox.write("a.txt", "two");
    let Some(terminal) = Terminal::picker(&sandbox) else { return };
    terminal.wait_for("-one");
    terminal.press(&["Enter"]).wait_for("1 file written, 0 removed. y/n");
    terminal.press(&["y"]).wait_for("Nothing differs");
    assert_eq!(text(&sandbox, "a.txt"), "one");
    let told = hook(&sandbox, &["claude"], prompt(&sandbox, "s", "t2", "second"));
    assert!(told.contains("a.txt"), "{told}");
}

#[test]
fn an_error_is_shown_in_a_box_with_its_hint_and_ends_nothing() {
    let sandbox = example();
    let Some(terminal) = Terminal::picker(&sandbox) else { return };
    terminal.press(&["u"]).wait_for("cannot undo: nothing was restored in this project");
    terminal.press(&["Escape"]).wait_until_gone("cannot undo");
    terminal.press(&["n", "n", "o"]).wait_for("hint: restoring everything");
    terminal.press(&["q"]).wait_until_gone("hint:");
    terminal.press(&["q"]);
    terminal.is_clean(0);
}

#[test]
fn what_changed_while_the_question_stood_is_not_restored_over() {
    let sandbox = example();
    let Some(terminal) = Terminal::picker(&sandbox) else { return };
    terminal.press(&["r"]).wait_for("y/n");
    sandbox.tree("d.txt = made meanwhile\\n");
    terminal.press(&["y"]).wait_for("files or the checkpoints changed meanwhile");
    assert_eq!(
        (text(&sandbox, "a.txt"), text(&sandbox, "d.txt")),
        ("a now\n".to_owned(), "made meanwhile\n".to_owned())
    );
    terminal.press(&["q"]).press(&["r"]).wait_for("2 files written, 2 removed. y/n");
}

#[test]
fn checkpoints_are_found_by_text_file_and_session() {
    let sandbox = Sandbox::new();
    for (tree, reason, session) in [
        ("a.txt = 1\n b.txt = 1", "first", Some("session-one")),
        ("a.txt = 2", "second", Some("session-two")),
        ("b.txt = 2", "third", Some("session-one")),
    ] {
        sandbox.tree(tree);
        take(&sandbox, reason, session);
    }
    let Some(terminal) = Terminal::picker(&sandbox) else { return };
    terminal.wait_for("[claude session-]");
    terminal.press(&["/", "s", "e", "c"]).wait_for("1 of 3 checkpoints");
    terminal.press(&["Enter"]).press(&["Escape"]).wait_for("┌ 3 checkpoints");
    // In the second checkpoint a.txt changed; the third has the current contents, and the first has not.
    terminal.press(&["f"]).wait_for("File: ");
    terminal.press(&["C-u"]).press(&["-l", "a.txt"]).press(&["Enter"]);
    let screen = terminal.wait_for("2 of 3 checkpoints, file a.txt");
    assert!(screen.contains("first") && screen.contains("second") && !screen.contains("third"), "{screen}");
    terminal.press(&["Escape"]).wait_for("┌ 3 checkpoints");
    terminal.press(&["s"]).wait_for("2 of 3 checkpoints, session session-one");
    terminal.press(&["s"]).wait_for("1 of 3 checkpoints, session session-two");
    terminal.press(&["s"]).wait_for("┌ 3 checkpoints");
}

#[test]
fn the_later_work_of_another_session_is_asked_for_by_itself() {
    let sandbox = Sandbox::new();
    for (contents, session) in [("1", "one"), ("2", "two"), ("3", "one")] {
        sandbox.write("a.txt", contents);
        take(&sandbox, "x", Some(session));
    }
    let Some(terminal) = Terminal::picker(&sandbox) else { return };
    terminal.press(&["G", "r"]).wait_for("1 file written, 0 removed. y/n");
    terminal.press(&["y"]).wait_for("later work of claude, last active ");
    terminal.press(&["n"]).wait_for("Nothing was done");
    assert_eq!(text(&sandbox, "a.txt"), "3");
    terminal.press(&["r"]).wait_for("y/n");
    terminal.press(&["y"]).wait_for("Undo that, too? y/n");
    terminal.press(&["y"]).wait_for("Restored to");
    assert_eq!(text(&sandbox, "a.txt"), "1");
}

#[test]
fn the_screen_follows_its_size() {
    let sandbox = example();
    let Some(terminal) = Terminal::picker(&sandbox) else { return };
    terminal.wait_for("since then");
    terminal.ask(&["resize-window", "-x", "40", "-y", "12"]);
    terminal.wait_until_gone("since then");
    let list = terminal.wait_for("3 checkpoints in");
    assert!(list.lines().all(|line| line.chars().count() <= 40), "{list}");
    terminal.press(&["Tab"]).wait_for("since then");
    terminal.press(&["?"]).wait_for("Keys");
    terminal.ask(&["resize-window", "-x", "5", "-y", "3"]);
    terminal.ask(&["resize-window", "-x", "60", "-y", "40"]);
    terminal.press(&["q"]).until("both panes", |screen| screen.contains("3 checkpoints") && screen.contains("since"));
    terminal.press(&["q"]);
    terminal.wait_for("exit=0");
}

#[test]
fn forty_columns_are_enough_to_restore() {
    let sandbox = example();
    let Some(terminal) = Terminal::open(&sandbox, (40, 12), &format!("{PITON} rollback")) else { return };
    terminal.wait_for("3 checkpoints in");
    terminal.press(&["j", "j", "Tab"]).wait_for("-a one");
    terminal.press(&["o"]).wait_for("y/n");
    terminal.press(&["y"]).wait_for("Restored to");
    assert_eq!((text(&sandbox, "a.txt"), text(&sandbox, "b.txt")), ("a one\n".to_owned(), "b now\n".to_owned()));
    terminal.press(&["q"]);
    terminal.is_clean(0);
}

#[test]
fn a_project_without_checkpoints_is_told_so_without_a_picker() {
    let sandbox = Sandbox::new();
    let Some(terminal) = Terminal::open(&sandbox, (120, 35), &format!("{PITON} rollback")) else { return };
    let screen = terminal.is_clean(0);
    assert!(screen.contains("No checkpoints found for") && screen.contains("hint: `piton take` takes one"), "{screen}");
}

#[test]
fn without_a_suitable_terminal_the_list_is_printed() {
    let sandbox = example();
    for command in ["TERM=dumb {} rollback", "{} rollback | cat", "{} rollback < /dev/null", "{} rollback --json"] {
        let command = command.replace("{}", PITON);
        let Some(terminal) = Terminal::open(&sandbox, (240, 60), &command) else { return };
        let screen = terminal.is_clean(0);
        assert!(screen.contains("before write_file"), "{command}: {screen}");
    }
}

/// Creates a thousand checkpoints, numbered in their content and in their reason. Stock git writes all but the first,
/// in one process.
fn thousand() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "1");
    take(&sandbox, "number 1.", None);
    let text = |args: &[&str]| String::from_utf8(sandbox.store_git(args)).expect("UTF-8").trim().to_owned();
    let name = text(&["for-each-ref", "--format=%(refname)"]);
    let (first, when) = (text(&["rev-parse", &name]), text(&["log", "-1", "--format=%ct", &name]));
    let mut stream = String::new();
    for number in 2..=1000 {
        let (contents, reason) = (number.to_string(), format!("number {number}."));
        let from = if number == 2 { format!("from {first}\n") } else { String::new() };
        let _ = write!(
            stream,
            "commit {name}\ncommitter A <a@example.com> {when} +0000\ndata {}\n{reason}\n{from}\
             M 100644 inline a.txt\ndata {}\n{contents}\n",
            reason.len(),
            contents.len(),
        );
    }
    let file = sandbox.root().join("stream");
    fs::write(&file, stream).expect("a file");
    let mut git = testkit::git();
    git.arg("--git-dir").arg(sandbox.store()).args(["fast-import", "--quiet"]);
    assert!(git.stdin(fs::File::open(file).expect("a file")).status().expect("git runs").success());
    sandbox.write("a.txt", "now");
    sandbox
}

#[test]
fn a_thousand_checkpoints_are_gone_through() {
    let sandbox = thousand();
    let Some(terminal) = Terminal::picker(&sandbox) else { return };
    terminal.wait_for("1000 checkpoints in");
    terminal.wait_for("-1000");
    terminal.press(&["G"]).wait_for("number 1.");
    terminal.press(&["k"]).wait_for("-2");
    terminal.wait_for("+1/-1");
    terminal.press(&["-l", "/number 15"]).wait_for("11 of 1000 checkpoints");
    terminal.press(&["Enter"]).press(&["-l", &"j".repeat(9)]).wait_for("-150");
}

/// While another process holds the store, nothing can be compared: keys are still handled, the lock holder is named,
/// and the latest request is answered as soon as possible.
#[test]
fn keys_do_not_wait_for_the_diff_of_what_was_selected_before() {
    let sandbox = thousand();
    let Some(terminal) = Terminal::picker(&sandbox) else { return };
    terminal.wait_for("-1000");
    let held = lock(&sandbox, "store");
    terminal.press(&["j"]).wait_for("waiting for `");
    terminal.press(&["-l", &"j".repeat(40)]).until("the 42nd", |screen| screen.contains("number 959."));
    terminal.press(&["-l", "/number 77"]).wait_for("11 of 1000 checkpoints");
    terminal.press(&["Enter", "G"]);
    assert!(!terminal.wait_for("number 77.").contains("-77"), "it cannot be known yet");
    drop(held);
    let screen = terminal.wait_for("-77");
    assert!(!screen.contains("waiting for"), "{screen}");
}

/// Holds a lock of the store, as another process would.
fn lock(sandbox: &Sandbox, name: &str) -> fs::File {
    wait_for_maintenance(&sandbox.root());
    let lock = fs::File::open(sandbox.store().join("locks").join(name)).expect("a lock");
    lock.lock().expect("no other process has it for long");
    lock
}

#[test]
fn a_diff_of_a_hundred_thousand_lines_scrolls_to_its_end() {
    let sandbox = Sandbox::new();
    sandbox.tree("a.txt = one\\n\n b.txt = two\\n");
    take(&sandbox, "before", None);
    sandbox.write("a.txt", (1..=100_000).map(|line| format!("line {line}.\n")).collect::<String>());
    sandbox.tree("b.txt = end\\n");
    let Some(terminal) = Terminal::picker(&sandbox) else { return };
    terminal.wait_for("+line 1.");
    terminal.press(&["Tab", "PageDown"]).wait_until_gone("+line 1.");
    terminal.press(&["G"]).wait_for("+line 100000.");
    terminal.wait_for("+end");
    terminal.press(&["K"]).wait_for("+line 99980.");
    terminal.press(&["g"]).wait_for("+line 1.");
}

#[test]
fn the_mouse_selects_and_scrolls() {
    let sandbox = example();
    let Some(terminal) = Terminal::picker(&sandbox) else { return };
    terminal.wait_for("-a two");
    terminal.press(&["-l", "\x1b[<0;10;4M\x1b[<0;10;4m"]).wait_for("-a one");
    terminal.press(&["-l", "\x1b[<0;80;5M\x1b[<0;80;5m"]).wait_for(">M b.txt");
}

#[test]
fn signals_leave_a_clean_terminal() {
    for (signal, exit) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let sandbox = example();
        let Some(terminal) = Terminal::picker(&sandbox) else { return };
        terminal.wait_for("-a two");
        let killed = clean_command("/bin/sh").args(["-c", &format!("kill -{signal} {}", terminal.process())]).status();
        assert!(killed.expect("sh runs").success());
        terminal.is_clean(exit);
    }
    let sandbox = example();
    let Some(terminal) = Terminal::picker(&sandbox) else { return };
    terminal.press(&["?"]).press(&["C-c"]);
    terminal.is_clean(0);
}

#[test]
fn there_are_no_colours_where_none_are_wanted() {
    let sandbox = example();
    for (command, has_colours) in
        [("{} rollback", true), ("NO_COLOR=1 {} rollback", false), ("{} rollback --no-color", false)]
    {
        let Some(terminal) = Terminal::open(&sandbox, (120, 35), &command.replace("{}", PITON)) else { return };
        terminal.wait_for("-a two");
        let screen = terminal.ask(&["capture-pane", "-p", "-e"]);
        let is_coloured = ["\x1b[31m", "\x1b[38;5;"].iter().any(|colour| screen.contains(colour));
        assert_eq!(is_coloured, has_colours, "{command}: {screen:?}");
    }
}

/// An idle picker blocks no other process: the locks that garbage collection needs are free, and a take works.
#[test]
fn an_open_question_blocks_no_other_process() {
    let sandbox = example();
    let Some(terminal) = Terminal::picker(&sandbox) else { return };
    terminal.press(&["r"]).wait_for("y/n");
    wait_for_maintenance(&sandbox.root());
    for name in ["store", "gate", "gc"] {
        let lock = fs::File::open(sandbox.store().join("locks").join(name)).expect("a lock");
        // The latest request may still be in progress.
        terminal.until(&format!("free lock {name}"), |_| lock.try_lock().is_ok());
    }
    piton(&sandbox, ["take", "-m", "beside it"]).done();
    terminal.press(&["n", "R"]).wait_for("beside it");
}
