//! Checkpoints of a working directory, for coding agents: exact, durable, and taken in milliseconds.
//!
//! A checkpoint holds the files of one project at one point in time. All projects share one store, a bare git
//! repository outside of them, which stock git can read. All input comes from the caller: the library reads no
//! environment and no terminal, starts no process, and asks no clock but that of files.
//!
//! ```
//! use piton::{CheckpointKind, History, Moment, Outcome, Progress, Project, Request, Settings, Store, take};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let temp = tempfile::tempdir()?;
//! # let (base, code) = (temp.path().join("base"), temp.path().join("code"));
//! # std::fs::create_dir(&code)?;
//! # std::fs::write(code.join("main.rs"), "fn main() {}\n")?;
//! # let now = Moment { secs: 1_773_635_760, nanos: 0, offset_secs: 0 };
//! let store = Store::open_or_create(&base, now)?; // ~/.hermes/checkpoints, say
//! let project = Project::at(&code, None)?;
//! let request = Request::default().reason("before patch").kind(CheckpointKind::Manual);
//! let report = take(&store, &project, &request, &Settings::default(), now, &Progress::default())?;
//! assert!(matches!(report.outcome, Outcome::Taken(_)));
//! assert_eq!(History::of(&store, &project)?.checkpoints()[0].reason, "before patch");
//! # Ok(())
//! # }
//! ```
//!
//! | task | start at |
//! |---|---|
//! | protect the work of an agent, with one checkpoint per turn | [`Manager`] |
//! | take a checkpoint | [`take()`], [`Request`], [`Settings`] |
//! | list and find checkpoints | [`History`], [`mark()`] |
//! | compare, read, export | [`diff()`], [`CheckpointFile`], [`export()`], [`export_tar`] |
//! | restore files, undo | [`Restore`], [`RestoreTo`], [`RestoreOptions`] |
//! | find lost files and bring them back | [`recover()`] |
//! | take back one turn, keep the rest | [`revert()`], [`restore_keeping_edits`] |
//! | who changed what, and when | [`log()`], [`blame_file`], [`search()`], [`list_turns`] |
//! | the user's git repository | [`git_states`], [`restore_git_state`] |
//! | files that a command is about to destroy | [`triggers`], [`keep_files`] |
//! | limit, check, repair the store | [`prune()`], [`maintain`], [`purge()`], [`verify()`], [`repair()`], [`Status`] |
//! | exchange checkpoints with other machines | [`Outgoing`], [`Incoming`] |
//!
//! Every fallible function returns an [`Error`] with a kind and, if there is one, a [`Hint`] about the next step. Long
//! operations take a [`Progress`], which also cancels them.
//!
//! `worktree` and `store` do not depend on each other: `worktree` touches the user's files and knows no git objects,
//! `store` touches the store and knows no user files. The verbs pass plain data between them.

pub mod blame;
mod diff;
mod ensured;
mod error;
mod exchange;
mod export;
mod fsx;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod git_state;
mod hint;
mod history;
mod id;
mod journal;
#[macro_use]
pub mod json;
mod keep;
mod kept;
mod late;
mod limit;
mod local_files;
mod local_report;
mod lookup;
mod manager;
mod mark;
pub mod merge;
mod notice;
mod progress;
mod project;
mod prune;
mod purge;
mod recover;
mod relpath;
mod repair;
mod restore;
mod revert;
pub mod session;
mod settings;
mod skipped;
mod status;
mod store;
mod survey;
mod sys;
mod take;
mod threads;
mod time;
mod timeline;
mod turns;
mod unprotected;
mod worktree;

pub use diff::{Diff, DiffStatus, FileDiff, diff, unified_diff};
pub use ensured::Ensured;
pub use error::{Error, ErrorKind, Reason, Result};
pub use exchange::{
    FetchRequest, FetchedPath, Incoming, Outgoing, SentCheckpoint, SentProject, TreeItem, checkpoint_tree,
    forget_fetched, names_path, project_identity, repository_identity, tree_items,
};
pub use export::{CheckpointFile, ExportReport, export, export_tar, turn_patch};
pub use git_state::{
    GitCapture, GitCaptureOutcome, GitDifference, GitItem, GitItemKind, GitLeft, GitRestoreOptions, GitRestoreOutcome,
    GitRestoreReport, GitStateReport, RecordedGitState, git_states, restore_git_state, show_git_state,
    undo_git_restore,
};
pub use hint::Hint;
pub use history::{Change, History, Listed};
pub use id::{CheckpointId, ObjectId, ObjectKind, ProjectId, bounded_name};
pub use journal::{Event, Journal, Level, Unprotected};
pub use kept::{
    BackReport, Gap, GapReason, KeepReport, KeepRequest, KeptLoss, KeptStatus, ReleaseReport, keep_files, kept_status,
    release_kept,
};
pub use late::{Attempt, Completion};
pub use local_files::{LocalFiles, LocalSummary, local_files};
pub use local_report::LocalReport;
pub use manager::{Manager, TurnStart};
pub use mark::{MarkOutcome, MarkReport, mark, unmark};
pub use notice::{tell_sessions, tell_sessions_of_revert, tell_sessions_of_rewind};
pub use piton_triggers as triggers;
pub use progress::Progress;
pub use project::{Project, is_system_dir, working_dir_for_path};
pub use prune::{
    Inventory, KnownProject, Maintained, OldRepository, Policy, PruneAction, PrunePlan, PruneReason, PruneReport,
    PruneTarget, PrunedItem, clear, clear_base, clear_legacy, forget, is_due, maintain, plan_forget, plan_prune,
    plan_prune_base, plan_prune_rules, prune, prune_base,
};
pub use purge::{PurgePlan, PurgeReport, find_prompt, plan_purge, purge, purge_outside, purge_prompt};
pub use recover::{
    LostElsewhere, LostFrom, LostItem, LostKind, RecoverOptions, RecoverOutcome, RecoverReport, lost_elsewhere,
    recover, recover_outside, undo_recovery,
};
pub use relpath::{BadPath, parse as parse_path};
pub use repair::{RepairOptions, RepairReport, repair};
pub use restore::{
    IgnoredFiles, Left, OtherWork, Restore, RestoreOptions, RestoreOutcome, RestorePlan, RestoreReport, RestoreTo,
    RulesChanged, WhyLeft,
};
pub use revert::{
    InTheWay, RevertConflict, RevertOptions, RevertOutcome, RevertReport, RevertScope, restore_keeping_edits, revert,
};
pub use settings::{KeepIgnored, MaxSnapshots, PromptText, Setting, Settings, SettingsProblem, StepPolicy};
pub use skipped::{Extent, SkipReason, Skipped, grouped};
pub use status::{LastEvent, ProjectStatus, Status, StatusProblem, git_state_problems, last_heard, mistaken_projects};
pub use store::{
    Affected, Archive, BuiltPack, Checkpoint, CheckpointKind, Facts, FetchedFrom, Finding, FindingKind, GitStateMoment,
    Intent, Loss, Notice, Origin, PackedObject, ReadData, RepairStep, RestoreVerb, Restoring, RewindMark, Severity,
    StepRecord, Store, TurnRecord, UsualModes, VerifyReport, Waiting, check_saved_beside, decode_entry, forks_dir,
    remote_dir, verify, without_secrets,
};
pub use sys::{host_name, sync_file};
pub use take::{Outcome, Report, Request, WhySkipped, take};
pub use time::Moment;
pub use timeline::{
    Author, BlameLine, ContentMatch, FileBlame, LogEntry, LogOptions, MatchLine, Period, ProjectLog, SearchEntry,
    SearchOptions, SearchReport, TextMatch, blame_file, log, search,
};
pub use turns::{ListedStep, ListedTurn, Turn, TurnEnd, list_turns, note_turn_end};
pub use unprotected::note_killed_hooks;
pub use worktree::{ChangedDirs, Presence};
