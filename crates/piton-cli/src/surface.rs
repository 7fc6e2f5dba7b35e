//! Surfaces: the places where output is read, and the commands that can be typed there.
//!
//! The same list is shown in a terminal and inside agents. A reader can only use a command that works where it is read:
//! `piton restore 2` in a shell, and in an agent `/rollback 2`, `piton rollback 2` as a prompt, or `/piton 2`. Texts
//! contain commands in the syntax of a shell, between backticks; [`Surface::reword`] translates them for
//! the surface.

use std::borrow::Cow;

use clap::ValueEnum;

/// The place where an answer is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Surface {
    #[default]
    Shell,
    /// An agent in which `/rollback` reaches the hook.
    Slash,
    /// An agent that does not pass slash commands to hooks: `piton rollback` is typed as a prompt.
    Prompt,
    /// An agent that has a `/rollback` of its own: our plugin in it adds `/piton`.
    Plugin,
}

impl Surface {
    /// Returns the value of the option that passes the surface to another process.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::Slash => "slash",
            Self::Prompt => "prompt",
            Self::Plugin => "plugin",
        }
    }

    /// Returns the command of this surface for `line`, a shell command such as `piton restore 2`; `None` if it works
    /// only in a shell.
    pub(crate) fn command(self, line: &str) -> Option<String> {
        let start = match self {
            Self::Shell => return Some(line.to_owned()),
            Self::Slash => "/rollback",
            Self::Prompt => "piton rollback",
            Self::Plugin => "/piton",
        };
        let words: Vec<_> = line.strip_prefix("piton ")?.split(' ').collect();
        let rest = match words[..] {
            ["rollback", ref rest @ ..] => rest.to_vec(),
            ["restore", name, ref rest @ ..] if !name.starts_with('-') => [&[name], rest].concat(),
            ["revert", name, ref rest @ ..] if !name.starts_with('-') => [&["revert", name], rest].concat(),
            ["diff"] => vec!["diff"],
            ["diff", name] => vec!["diff", name],
            _ => return None,
        };
        let all: Vec<_> = [start].into_iter().chain(rest).collect();
        Some(all.join(" "))
    }

    /// Translates every `` `piton ...` `` in a text for this surface. A command that works only in a shell gets the
    /// words "in a shell".
    pub(crate) fn reword(self, text: &str) -> Cow<'_, str> {
        if self == Self::Shell || !text.contains("`piton ") {
            return Cow::Borrowed(text);
        }
        let (mut reworded, mut rest) = (String::new(), text);
        while let Some((before, (quoted, after))) =
            rest.split_once('`').and_then(|(before, more)| Some((before, more.split_once('`')?)))
        {
            reworded.push_str(before);
            reworded.push_str(&match self.command(quoted) {
                Some(command) => format!("`{command}`"),
                None if quoted.starts_with("piton ") => format!("`{quoted}` in a shell"),
                None => format!("`{quoted}`"),
            });
            rest = after;
        }
        reworded.push_str(rest);
        Cow::Owned(reworded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_told_the_command_that_works_there() {
        let told = |surface: Surface, line: &str| surface.command(line).unwrap_or_else(|| "-".to_owned());
        let cases = [
            ("piton rollback", ["piton rollback", "/rollback", "piton rollback", "/piton"]),
            ("piton restore N", ["piton restore N", "/rollback N", "piton rollback N", "/piton N"]),
            (
                "piton restore N FILE",
                ["piton restore N FILE", "/rollback N FILE", "piton rollback N FILE", "/piton N FILE"],
            ),
            ("piton diff N", ["piton diff N", "/rollback diff N", "piton rollback diff N", "/piton diff N"]),
            ("piton diff N M", ["piton diff N M", "-", "-", "-"]),
            (
                "piton revert N FILE",
                [
                    "piton revert N FILE",
                    "/rollback revert N FILE",
                    "piton rollback revert N FILE",
                    "/piton revert N FILE",
                ],
            ),
            ("piton restore --continue", ["piton restore --continue", "-", "-", "-"]),
            ("piton undo", ["piton undo", "-", "-", "-"]),
        ];
        for (line, expected) in cases {
            let surfaces = [Surface::Shell, Surface::Slash, Surface::Prompt, Surface::Plugin];
            assert_eq!(surfaces.map(|surface| told(surface, line)), expected, "{line}");
        }
    }

    #[test]
    fn commands_in_a_text_are_reworded_and_nothing_else_is() {
        let text =
            "`piton rollback` lists the checkpoints, `piton undo` goes back; a `piton` is a spike, 'piton take' too";
        assert_eq!(Surface::Shell.reword(text), text);
        assert_eq!(
            Surface::Slash.reword(text),
            "`/rollback` lists the checkpoints, `piton undo` in a shell goes back; a `piton` is a spike, 'piton take' too"
        );
        assert_eq!(Surface::Slash.reword("a ` that is alone: `piton rollback"), "a ` that is alone: `piton rollback");
    }
}
