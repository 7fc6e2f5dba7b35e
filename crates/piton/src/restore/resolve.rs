//! Resolves a restore request to a checkpoint and the paths to restore from it.

use super::RestoreTo;
use super::left::{Left, WhyLeft};
use super::plan::RestorePlan;
use super::planner::Planner;
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::id::CheckpointId;
use crate::lookup;
use crate::relpath;
use crate::skipped::{Extent, SkipReason, Skipped};
use crate::store::{Checkpoint, CheckpointKind, Intent, Readable, RestoreVerb};

/// A resolved restore request.
pub(super) struct Resolved {
    pub(super) target: Checkpoint,
    pub(super) verb: Option<RestoreVerb>,
    pub(super) paths: Vec<Vec<u8>>,
    /// Safety checkpoint of the first attempt, if an interrupted restore is continued.
    pub(super) safety: Option<Checkpoint>,
}

/// Resolves a restore request. Fails like `lookup::find` if the checkpoint is not found, with `NotFound` if there is
/// no restore to continue, abort, undo or redo, and with `Invalid` if an interrupted restore has to be continued or
/// aborted first.
pub(super) fn resolve(
    to: RestoreTo<'_>,
    paths: &[Vec<u8>],
    history: &Readable,
    intent: Option<&Intent>,
) -> Result<Resolved> {
    let nothing = |what: &str, why: &str| Error::new(ErrorKind::NotFound, what.to_owned()).because(why.to_owned());
    let by_id = |id: CheckpointId| lookup::find(history, &id.to_string()).cloned();
    match (to, intent) {
        (RestoreTo::Continue, Some(intent)) => {
            let safety = by_id(intent.safety).ok();
            Ok(Resolved { target: by_id(intent.target)?, verb: None, paths: intent.paths.clone(), safety })
        }
        (RestoreTo::Abort, Some(intent)) => {
            Ok(Resolved { target: by_id(intent.safety)?, verb: None, paths: intent.paths.clone(), safety: None })
        }
        (RestoreTo::Continue | RestoreTo::Abort, None) => {
            Err(nothing("continue a restore", "none was cut short in this project").with_hint(Hint::RestoreOrUndo))
        }
        (_, Some(_)) => Err(Error::new(ErrorKind::Invalid, "begin a restore")
            .because("an earlier one was cut short")
            .with_hint(Hint::FinishRestore)),
        (RestoreTo::Named(name), None) => {
            let target = lookup::find(history, name)?.clone();
            Ok(Resolved { target, verb: Some(RestoreVerb::Restore), paths: paths.to_vec(), safety: None })
        }
        (RestoreTo::Undo | RestoreTo::Redo, None) => {
            let last = history.checkpoints.iter().find(|checkpoint| checkpoint.facts.kind == CheckpointKind::Safety);
            let verb = if to == RestoreTo::Undo { "undo" } else { "redo" };
            let last = last
                .ok_or_else(|| nothing(verb, "nothing was restored in this project").with_hint(Hint::RestoreListed))?;
            let restoring = last.facts.restoring.as_ref();
            if to == RestoreTo::Redo && restoring.is_none_or(|restoring| restoring.verb != RestoreVerb::Undo) {
                return Err(nothing("redo", "the last restore was not an undo").with_hint(Hint::Undo));
            }
            let paths = restoring.map(|restoring| restoring.paths.clone()).unwrap_or_default();
            let verb = if to == RestoreTo::Undo { RestoreVerb::Undo } else { RestoreVerb::Redo };
            Ok(Resolved { target: last.clone(), verb: Some(verb), paths, safety: None })
        }
    }
}

/// State of a path that was requested by name.
enum PathState {
    /// The checkpoint holds it.
    Held,
    /// It is not in the checkpoint but in scope: the restore removes it.
    New,
    /// The checkpoint left it out for this reason.
    LeftOut(SkipReason),
    /// None of these; with the reason why it is out of scope, if it exists.
    Unknown(Option<SkipReason>),
}

impl Planner<'_> {
    /// Checks the paths that were requested by name, and adds to the plan those that are left as they are. Fails with
    /// `NotFound` for a path that the checkpoint neither holds nor left out and that is not in scope.
    pub(super) fn check_paths(&self, plan: &mut RestorePlan) -> Result<()> {
        for path in self.paths {
            match self.look_up(path)? {
                PathState::Held => {}
                PathState::New => self.name_what_stays(path, plan),
                PathState::LeftOut(why) => {
                    if !plan.left.iter().any(|left| relpath::is_within(&left.path, path)) {
                        plan.left.push(Left { path: path.clone(), why: WhyLeft::left_out_then(why) });
                    }
                }
                PathState::Unknown(why) => return Err(self.not_found(path, why)),
            }
        }
        Ok(())
    }

    fn look_up(&self, path: &[u8]) -> Result<PathState> {
        let target = &self.target.facts;
        let is_known_dir =
            |dir: &[u8]| target.empty_dirs.iter().any(|empty| relpath::is_within(empty, dir)) || dir.is_empty();
        let is_local = self.local.map(|tree| self.objects.entry_at(tree, path)).transpose()?.flatten().is_some();
        let is_kept = self.made.is_some_and(|made| made.kept_back.iter().any(|file| relpath::is_within(file, path)));
        if self.objects.entry_at(self.target.tree, path)?.is_some() || is_known_dir(path) || is_local || is_kept {
            return Ok(PathState::Held);
        }
        let (parent, name) = relpath::split(path);
        let dirs = &self.survey.manifest.dirs;
        let is_file = || {
            let mut around = dirs.iter().filter(|dir| *dir.path == *parent);
            around.any(|dir| dir.files.iter().any(|file| dir.name_of(file) == name))
        };
        if dirs.iter().any(|dir| *dir.path == *path && !dir.exceptional) || is_file() {
            return Ok(PathState::New);
        }
        let is_there = || self.stat(path).is_ok();
        let is_named = |skipped: &&Skipped| match skipped.extent {
            Extent::File => skipped.path == path,
            Extent::Dir(_) => relpath::is_within(path, &skipped.path),
            Extent::Some(_) => relpath::is_within(path, &skipped.path) && is_there(),
        };
        if let Some(then) = target.skipped.iter().find(is_named) {
            return Ok(PathState::LeftOut(then.why));
        }
        let mut now = self.survey.skipped.iter().filter(|now| relpath::is_within(path, &now.path));
        Ok(PathState::Unknown(now.find(|_| is_there()).map(|now| now.why)))
    }

    /// Adds to the plan a path that keeps a directory from being removed. A directory that was created after the
    /// checkpoint stays if it contains something out of scope, and the user who requested it is to learn of that.
    fn name_what_stays(&self, path: &[u8], plan: &mut RestorePlan) {
        let is_told = plan.drop_dirs.iter().any(|dir| dir == path)
            || plan.left.iter().any(|left| relpath::is_within(&left.path, path));
        let mut staying = self.survey.skipped.iter().filter(|skipped| relpath::is_within(&skipped.path, path));
        if let Some(skipped) = staying.next().filter(|_| !is_told) {
            plan.left.push(Left { path: skipped.path.clone(), why: WhyLeft::OutOfScope(skipped.why) });
        }
    }

    fn not_found(&self, path: &[u8], why: Option<SkipReason>) -> Error {
        let shown = String::from_utf8_lossy(path);
        let because = match why {
            None => "it held no such file or directory, and there is none now".to_owned(),
            Some(why) => format!("it held no such file or directory, and the one there now is out of scope ({why})"),
        };
        Error::new(ErrorKind::NotFound, format!("find {shown} in the checkpoint {}", self.target.id.short()))
            .because(because)
            .with_hint(Hint::ListFiles)
    }
}
