//! `find`: its actions, and the commands that it runs.

use super::super::loss::{Found, LossKind, Placeholder};
use super::super::place::Cwd;
use super::super::word::Word;
use super::Walker;

/// Limit of starting points that are combined with the command of `-exec`.
const STARTS_MAX: usize = 8;

/// Analyses `find`: its actions, and the commands that it runs.
pub(super) fn find(
    walker: &mut Walker<'_>,
    args: &[Word],
    cwd: &Cwd,
    mut run: impl FnMut(&mut Walker<'_>, &[Word], &Cwd),
) {
    let marks = walker.found.marks;
    let waiting = walker.found.placeholder.take();
    let is_expression = |word: &Word| word.text.starts_with(['-', '(', '!', ',']);
    let skip = args.iter().take_while(|word| matches!(word.text.as_str(), "-H" | "-L" | "-P")).count();
    let starts: Vec<Word> = args[skip..].iter().take_while(|word| !is_expression(word)).cloned().collect();
    let starts = if starts.is_empty() { vec![Word::exact(".")] } else { starts };
    let found = Found { starts: starts.clone(), names: name_pattern(args), cwd: cwd.clone() };
    let mut at = skip;
    while let Some(word) = args.get(at) {
        at += 1;
        match word.text.as_str() {
            "-exec" | "-execdir" | "-ok" | "-okdir" => {
                let rest = &args[at..];
                let len = rest.iter().position(|word| matches!(word.known(), Some(";" | "+"))).unwrap_or(rest.len());
                let moved = matches!(word.text.as_str(), "-execdir" | "-okdir");
                for start in starts.iter().take(STARTS_MAX) {
                    let cwd = if moved { cwd.moved(start, walker.found.home) } else { cwd.clone() };
                    let command = filled(&rest[..len], start, moved);
                    run(walker, &command, &cwd);
                }
                at += len + 1;
            }
            "-fprint" | "-fprint0" | "-fprintf" | "-fls" => match args.get(at) {
                Some(file) => walker.found.mark_target(file, cwd),
                None => walker.found.mark(cwd),
            },
            "-delete" => {
                walker.found.destroys = true;
                let lost = Placeholder { kind: LossKind::Unlinked, is_deep: false };
                walker.found.lose_found(&found, lost);
                starts.iter().for_each(|start| walker.found.mark_target(&inside(start), cwd));
            }
            // It may expand to an action.
            _ if word.splits || (word.open && word.text == "-") => walker.found.mark(cwd),
            _ => {}
        }
    }
    if let Some(lost) = std::mem::replace(&mut walker.found.placeholder, waiting) {
        walker.found.lose_found(&found, lost);
    } else if walker.found.marks == marks {
        walker.found.printed = Some(found);
    }
    if walker.found.marks > marks {
        starts.iter().for_each(|start| walker.found.mark_target(&inside(start), cwd));
    }
}

/// Returns the pattern that the names of all found files match: that of the only `-name`, if nothing else makes the
/// expression wider.
fn name_pattern(args: &[Word]) -> Option<String> {
    let is_wider = |word: &Word| matches!(word.text.as_str(), "-o" | "-or" | "!" | "-not" | "," | "-iname");
    let mut at = args.iter().enumerate().filter(|(_, word)| word.text == "-name").map(|(at, _)| at);
    let name = args.get(at.next()? + 1)?.known()?;
    (at.next().is_none() && !args.iter().any(is_wider)).then(|| name.to_owned())
}

/// Returns a word for something below a starting point.
fn inside(start: &Word) -> Word {
    if start.open {
        return start.clone();
    }
    let text = format!("{}/", start.text.trim_end_matches('/'));
    Word { open: true, tilde: start.tilde, ..Word::exact(&text) }
}

/// Returns the command with `{}` replaced by something below the starting point.
fn filled(command: &[Word], start: &Word, moved: bool) -> Vec<Word> {
    let below = if moved { Word::starting("./") } else { inside(start) };
    let fill = |word: &Word| match word.text.find("{}") {
        Some(0) => Word { full: word.full.clone(), ..below.clone() },
        Some(at) => Word { text: word.text[..at].into(), open: true, ..word.clone() },
        None => word.clone(),
    };
    command.iter().map(fill).collect()
}
