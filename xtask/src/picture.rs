//! The picture of the picker in the README: a real run in tmux whose screen is converted to SVG.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::workspace_root;

const COLUMNS: usize = 132;
const ROWS: usize = 30;
const PATIENCE: Duration = Duration::from_secs(60);

/// The reason of each checkpoint and the files written before it. The last entry is the current state.
const STORY: [(&str, &[(&str, &str)]); 5] = [
    ("before write_file src/parse.rs", &[("src/main.rs", MAIN), ("notes.md", "# Notes\n\n- dates are ISO 8601\n")]),
    ("before patch src/parse.rs", &[("src/parse.rs", PARSE_1)]),
    ("before terminal: cargo fix --allow-dirty", &[("src/parse.rs", PARSE_2)]),
    ("before terminal: rm -rf build notes.md", &[("Cargo.toml", "[package]\nname = \"dates\"\nversion = \"0.2.0\"\n")]),
    ("", &[("src/parse.rs", PARSE_3), ("src/cache.rs", "pub struct Cache;\n")]),
];
const MAIN: &str = "mod parse;\n\nfn main() {\n    println!(\"{:?}\", parse::date(\"2026-03-16\"));\n}\n";
const PARSE_1: &str = "pub fn date(text: &str) -> Option<(u16, u8, u8)> {\n    let mut parts = text.split('-');\n    \
    let year = parts.next()?.parse().ok()?;\n    let month = parts.next()?.parse().ok()?;\n    \
    let day = parts.next()?.parse().ok()?;\n    Some((year, month, day))\n}\n";
const PARSE_2: &str = "pub fn date(text: &str) -> Option<(u16, u8, u8)> {\n    let mut parts = text.splitn(3, '-');\n    \
    let year = parts.next()?.parse().ok()?;\n    let month = parts.next()?.parse().ok()?;\n    \
    let day = parts.next()?.parse().ok()?;\n    (month <= 12 && day <= 31).then_some((year, month, day))\n}\n";
const PARSE_3: &str = "pub fn date(text: &str) -> (u16, u8, u8) {\n    let parts: Vec<_> = text.split('-').collect();\n    \
    (parts[0].parse().unwrap(), parts[1].parse().unwrap(), parts[2].parse().unwrap())\n}\n";

/// Draws `docs/picker.svg` with this piton.
pub(crate) fn run(piton: &Path) -> Result<()> {
    // The path is visible in the picture, so it is the same everywhere.
    let work = std::env::temp_dir().join("piton-picture");
    let _ = fs::remove_dir_all(&work);
    let (home, project) = (work.join("home"), work.join("dates"));
    fs::create_dir_all(&home)?;
    fs::create_dir_all(&project)?;
    let stage = Stage { piton: piton.canonicalize()?, socket: work.join("tmux"), home, project };
    for (reason, files) in STORY {
        for (path, text) in files {
            let path = stage.project.join(path);
            fs::create_dir_all(path.parent().context("a file is in a directory")?)?;
            fs::write(path, text)?;
        }
        if reason.is_empty() {
            fs::remove_file(stage.project.join("notes.md"))?;
        } else {
            stage.succeeds(Command::new(&stage.piton).args(["take", "-m", reason]))?;
        }
    }
    let screen = stage.screen();
    let _ = stage.succeeds(stage.tmux().arg("kill-server"));
    let _ = fs::remove_dir_all(&work);
    let out = workspace_root().join("docs").join("picker.svg");
    fs::write(&out, svg(&screen?))?;
    println!("{}", out.display());
    Ok(())
}

/// Environment that the example runs in.
struct Stage {
    piton: PathBuf,
    socket: PathBuf,
    home: PathBuf,
    project: PathBuf,
}

impl Stage {
    fn tmux(&self) -> Command {
        let mut command = Command::new("tmux");
        command.env_remove("TMUX").args(["-u", "-f", "/dev/null", "-S"]).arg(&self.socket);
        command
    }

    fn succeeds(&self, command: &mut Command) -> Result<String> {
        command.env("HOME", &self.home).env_remove("NO_COLOR").env_remove("PITON_BASE").env_remove("HERMES_HOME");
        let output = command.current_dir(&self.project).output().with_context(|| format!("cannot run {command:?}"))?;
        ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Returns the screen of the picker with the second checkpoint and a file selected, colours as escape sequences.
    fn screen(&self) -> Result<String> {
        let (width, height) = (COLUMNS.to_string(), ROWS.to_string());
        let piton = format!("'{}' rollback", self.piton.display());
        let settings = ["start-server", ";", "set-option", "-g", "status", "off", ";"];
        self.succeeds(self.tmux().args(settings).args(["new-session", "-d", "-x", &width, "-y", &height, &piton]))?;
        self.wait_for("+1/-0")?;
        self.succeeds(self.tmux().args(["send-keys", "j"]))?;
        self.wait_for(">A Cargo.toml")?;
        self.succeeds(self.tmux().args(["send-keys", "n", "n", "n"]))?;
        self.wait_for(">M src/parse.rs")?;
        self.succeeds(self.tmux().args(["capture-pane", "-p", "-e"]))
    }

    fn wait_for(&self, text: &str) -> Result<()> {
        let began = Instant::now();
        loop {
            let screen = self.succeeds(self.tmux().args(["capture-pane", "-p"]))?;
            if screen.contains(text) {
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                bail!("no {text:?} on the screen:\n{screen}");
            }
        }
    }
}

/// Colours and attributes of characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Look {
    colour: Option<usize>,
    is_bold: bool,
    is_dim: bool,
    is_reversed: bool,
}

impl Look {
    /// Applies the codes between `ESC [` and `m`.
    fn change(&mut self, codes: &str) {
        let mut codes = codes.split(';').map(|code| code.parse::<usize>().unwrap_or(0));
        while let Some(code) = codes.next() {
            match code {
                0 => *self = Self::default(),
                1 => self.is_bold = true,
                2 => self.is_dim = true,
                7 => self.is_reversed = true,
                22 => (self.is_bold, self.is_dim) = (false, false),
                27 => self.is_reversed = false,
                30..=37 => self.colour = Some(code - 30),
                38 => self.colour = codes.nth(1),
                39 => self.colour = None,
                90..=97 => self.colour = Some(code - 82),
                _ => {}
            }
        }
    }

    fn fill(self) -> &'static str {
        const COLOURS: [&str; 8] =
            ["#45475a", "#f38ba8", "#a6e3a1", "#f9e2af", "#89b4fa", "#f5c2e7", "#94e2d5", "#bac2de"];
        match self.colour {
            Some(colour) => COLOURS[colour % 8],
            None if self.is_dim => "#7f849c",
            None => TEXT,
        }
    }
}

const TEXT: &str = "#cdd6f4";
const BACKGROUND: &str = "#1e1e2e";
const COLUMN: f64 = 8.4;
const LINE: f64 = 18.0;
const MARGIN: f64 = 14.0;

/// Adjacent characters with the same look, and the column of the first.
struct Run {
    column: usize,
    look: Look,
    text: String,
}

/// Splits a line into runs. Every character is one column wide: the example contains no others.
fn runs(line: &str, look: &mut Look) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut column = 0;
    let mut rest = line.chars();
    while let Some(character) = rest.next() {
        if character == '\u{1b}' {
            let sequence: String = rest.by_ref().skip(1).take_while(|character| *character != 'm').collect();
            look.change(&sequence);
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.look == *look => run.text.push(character),
            _ => runs.push(Run { column, look: *look, text: character.to_string() }),
        }
        column += 1;
    }
    runs
}

#[allow(clippy::cast_precision_loss, reason = "a screen has few columns")]
fn at(place: usize, step: f64) -> f64 {
    place as f64 * step + MARGIN
}

fn svg(screen: &str) -> String {
    let (width, height) = (at(COLUMNS, COLUMN) + MARGIN, at(ROWS, LINE) + MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"14\">\n\
         <title>piton rollback</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n"
    );
    let mut look = Look::default();
    for (row, line) in screen.lines().enumerate() {
        for run in runs(line, &mut look) {
            draw(&mut svg, row, &run);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw(svg: &mut String, row: usize, run: &Run) {
    let (x, y, width) = (at(run.column, COLUMN), at(row, LINE), at(run.text.chars().count(), COLUMN) - MARGIN);
    let look = run.look;
    if look.is_reversed {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{LINE}\" fill=\"{}\"/>",
            look.fill()
        );
    }
    let text = run.text.trim();
    if text.is_empty() {
        return;
    }
    // Some renderers drop leading and trailing spaces.
    let before = run.text.chars().take_while(|character| *character == ' ').count();
    let (x, width) = (at(run.column + before, COLUMN), at(text.chars().count(), COLUMN) - MARGIN);
    let fill = if look.is_reversed { BACKGROUND } else { look.fill() };
    let weight = if look.is_bold { " font-weight=\"bold\"" } else { "" };
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let baseline = y + LINE * 0.75;
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{baseline:.1}\" textLength=\"{width:.1}\" fill=\"{fill}\"{weight} \
         xml:space=\"preserve\">{text}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_become_colours_and_nothing_is_markup() {
        let svg = svg("\u{1b}[38;5;2m+a<b&c\u{1b}[0m  \u{1b}[1;7m>\u{1b}[0m");
        assert!(svg.contains("fill=\"#a6e3a1\" xml:space=\"preserve\">+a&lt;b&amp;c</text>"), "{svg}");
        assert!(svg.contains("font-weight=\"bold\" xml:space=\"preserve\">&gt;</text>"), "{svg}");
        assert_eq!(svg.matches("<text").count(), 2);
        assert_eq!(svg.matches("<rect").count(), 2);
    }

    #[test]
    fn a_look_lasts_until_it_is_taken_back_over_the_end_of_a_line() {
        let mut look = Look::default();
        let columns = |runs: Vec<Run>| runs.iter().map(|run| (run.column, run.look.colour)).collect::<Vec<_>>();
        assert_eq!(columns(runs("a\u{1b}[31mb", &mut look)), [(0, None), (1, Some(1))]);
        assert_eq!(columns(runs("c\u{1b}[39md", &mut look)), [(0, Some(1)), (1, None)]);
    }
}
