//! Hints to the user, and problems with hints. The library gives hints as data; this is where they are put into words,
//! with the names of subcommands, options and variables.

use piton::{Error, Hint, StatusProblem};

use crate::shell::quote;

/// Returns the hint of an error for the user.
pub(crate) fn of(error: &Error) -> Option<String> {
    error.hint().as_ref().map(words)
}

/// Appends the hint to the reason of a missed checkpoint.
pub(crate) fn after(why: &str, hint: Option<&Hint>) -> String {
    hint.map_or_else(|| why.to_owned(), |hint| format!("{why} (hint: {})", words(hint)))
}

/// Returns a hint for the user.
pub(crate) fn words(hint: &Hint) -> String {
    let text = match hint {
        Hint::Text(text) => &**text,
        Hint::NothingTouched(hint) => return format!("nothing was touched; {}", words(hint)),
        Hint::UseOtherBase => "choose another base with --base or PITON_BASE",
        Hint::UseOwnBase => "choose a base of your own with --base or PITON_BASE",
        Hint::UseEmptyBase => "give an empty or new directory with --base or PITON_BASE",
        Hint::ListCheckpoints => "`piton rollback` lists the checkpoints",
        Hint::TakeFirstCheckpoint => "`piton status` lists the projects that have some; `piton take` takes one of this",
        Hint::ListLost => "`piton recover --all` lists what was kept, by name",
        Hint::ShowUnsaved => "`piton status` says what could not be saved, and why",
        Hint::ListFiles => "`piton show N --verbose` lists what a checkpoint holds",
        Hint::GitStateIncomplete => {
            "the files are protected; the next checkpoint saves more of it where that is possible"
        }
        Hint::FinishGitRestore => {
            "there, `piton git restore` again finishes it, `piton git undo` takes it back; both remove its lock files"
        }
        Hint::ListGitStates => "`piton git show` lists the recorded states of the repository",
        Hint::FindLostFile => "`piton log PATH` tells who removed it; `piton recover PATH` brings it back",
        Hint::MoveMark => "`--move` moves it; `piton unmark` removes it",
        Hint::ListTurns => "`piton show N` lists the turns that began from a checkpoint",
        Hint::GiveWholeTurn => "`piton show N` lists them; give all of the name",
        Hint::ListProjects => "`piton status --limit 0` lists the projects, each by its own directory",
        Hint::RestoreDeleted => "`piton restore 1` there brings it back",
        Hint::RestoreListed => "`piton rollback` lists the checkpoints, `piton restore N` goes back to one",
        Hint::RestoreOrUndo => "`piton restore N` begins one, `piton undo` takes the last one back",
        Hint::Undo => "`piton undo` takes it back",
        Hint::FinishRestore => "`piton restore --continue` finishes it, `piton restore --abort` goes back to before it",
        Hint::FinishRestoreThere => {
            "in that directory, `piton restore --continue` finishes it, `piton restore --abort` goes back"
        }
        Hint::FinishRestoreAndRetry => "`piton restore --continue` there finishes a restore; then try again",
        Hint::RestoreAcrossSessions => "`--dry-run` shows what; `--across-sessions` takes it back, too",
        Hint::RevertAcrossSessions => "`--across-sessions` takes it back, too",
        Hint::RevertWithOwnEdits => "`--with-own-edits` takes them back, too",
        Hint::NameAgent => "name one with `--agent`",
        Hint::NameNearestTurn { number } => return format!("the nearest turn began from number {number}"),
        Hint::RaiseSetting { name } => {
            let variable = format!("PITON_{}", name.to_uppercase());
            return format!("raise {name} in the configuration, or {variable} for this command");
        }
        Hint::RaiseLimitOrPrune => "raise max_total_size_mb, or run `piton prune`",
        Hint::RaiseLimitOrForget => "raise max_total_size_mb, or forget a project with `piton prune --forget DIR`",
        Hint::PruneOrTake => "the next take or `piton prune` makes room",
        Hint::PruneLater => "run `piton prune` when they have ended",
        Hint::TakeThere { dir } => {
            let dir = quote(&dir.to_string_lossy());
            return format!("`piton -C {dir} take` records them; agents that work there do so by themselves");
        }
        Hint::ForgetProject { dir } => {
            let dir = dir.display();
            return format!("if that is a mistake, `piton prune --forget {dir}` forgets it; no file in it is touched");
        }
        Hint::Repair => "`piton verify` shows what is damaged, `piton repair` repairs what it can",
        Hint::RepairSaves => "`piton repair` saves what is whole in it",
        Hint::RepairRestores => "`piton repair` brings it back",
        Hint::RepairSetsAside => "`piton repair` sets it aside",
        Hint::RepairIntent => {
            "`piton repair` sets it aside; `piton rollback` shows the safety checkpoint of that restore"
        }
        Hint::RepairCopy => "nothing was taken away; if the disk is failing, repair a copy on another one with --base",
        Hint::FindSafetyCheckpoint => "`piton rollback` shows the safety checkpoint of that restore",
        Hint::RemoveAlternates => {
            "remove that file; if checkpoints are missing then, put it back and run `git repack -a` there"
        }
        Hint::ListCommits { git_dir, name } => {
            return format!("`git --git-dir={} log {name}` lists them", git_dir.display());
        }
        Hint::FixRecord => "fix the file by hand, or let `piton session gc` set it aside",
        Hint::ShowRecordExample => "`piton session write --help` shows a record; nothing was changed",
        Hint::ListRecords => "`piton session list` shows those that are there; `piton session write` makes one",
        // A later version of the library may know more of them.
        _ => "",
    };
    text.to_owned()
}

/// A problem and its fix.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Problem {
    /// what is wrong
    pub(crate) what: String,
    /// what to do
    pub(crate) hint: String,
}

impl Problem {
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: what.into(), hint: hint.into() }
    }
}

impl From<StatusProblem> for Problem {
    fn from(problem: StatusProblem) -> Self {
        Self::new(problem.what, words(&problem.hint))
    }
}

impl From<Problem> for StatusProblem {
    fn from(problem: Problem) -> Self {
        Self::new(problem.what, problem.hint.into())
    }
}

impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        Self::new(error.to_string(), of(error).unwrap_or_default())
    }
}
