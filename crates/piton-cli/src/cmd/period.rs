//! A period of the history in words, for `log`, `blame` and `search`.

use piton::{Author, History, Period};

use crate::columns;
use crate::output::{ID, Output, WHO, local, painted, plain};

/// Describes who worked: the prompt of a turn, or `your edits`.
pub(crate) fn headline(period: &Period) -> String {
    match (&period.turn, period.by) {
        (Some(turn), _) => plain(&turn.headline()),
        (None, Author::Earlier) => "earlier".to_owned(),
        (None, _) => match period.restored {
            Some(id) => format!("restored {}", id.short()),
            None => "your edits".to_owned(),
        },
    }
}

/// Returns the agent; with a question mark if the user's edits cannot be told apart from its work.
pub(crate) fn who(period: &Period) -> String {
    let agent = period.turn.as_ref().map(|turn| turn.agent.as_deref().map_or_else(|| "agent".to_owned(), plain));
    match (agent, period.by) {
        (Some(agent), Author::Unknown) => format!("{agent}?"),
        (Some(agent), _) => agent,
        (None, Author::Earlier) => "earlier".to_owned(),
        (None, _) => "you".to_owned(),
    }
}

/// Returns the name of the checkpoint before the period: its number, or else its id.
pub(crate) fn name(period: &Period) -> String {
    let number = period.row.map(|row| row.to_string());
    number.or_else(|| period.from.map(|from| from.short())).unwrap_or_else(|| "-".to_owned())
}

/// Formats `  3. 2026-03-16 04:36  prompt: fix it  (2 files, +3/-1)  agent`, cut to the width of the terminal.
pub(crate) fn as_line(period: &Period, counts: &str, columns: Option<usize>) -> String {
    let number = period.row.map_or_else(|| format!("{:>4}", name(period)), |row| format!("{row:>3}."));
    let when = period.time.map(|time| local(time).date_and_time()).unwrap_or_default();
    let (who, mut words) = (who(period), headline(period));
    if let Some(columns) = columns {
        let rest = columns::columns(&format!("{number} {when}  {counts}  {who}"));
        words = columns::cut(&words, columns.saturating_sub(rest).max(12));
    }
    format!("{} {when}  {words}{}  {}", painted(&number, ID), super::rollback::coloured(counts), painted(&who, WHO))
}

/// Explains who cannot be told apart, and why there are no turns.
pub(crate) fn hints<'a>(periods: impl Iterator<Item = &'a Period>, history: &History, output: &Output) {
    let unknown: Vec<&Period> = periods.filter(|period| period.by == Author::Unknown).collect();
    if let Some(period) = unknown.first() {
        let agent = who(period);
        output.hint(&format!(
            "{agent}: the end of the turn is not known, so edits of yours may be among its changes; `piton doctor` tells \
             whether the agent reports ends"
        ));
    } else if !history.checkpoints().is_empty() && history.turns().is_empty() {
        output.hint("no turns yet: `piton install` lets an agent report its prompts; `piton doctor` checks that");
    }
}
