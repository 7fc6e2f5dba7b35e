//! The survey and the plan of a restore that may change ignore rules. Files that the restored rules bring into scope
//! are surveyed, too, so that the safety checkpoint holds them and one run is enough.

use std::collections::{HashMap, HashSet};

use super::kept::KeptPlanning;
use super::left::{Left, WhyLeft};
use super::local::{LocalPlanned, LocalPlanning};
use super::made::MadeFiles;
use super::plan::RestorePlan;
use super::planner::{Planner, find_left_out};
use super::{RulesChanged, unsafe_to_restore};
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::id::ObjectKind;
use crate::relpath;
use crate::skipped::{SkipReason, Skipped};
use crate::store::{Checkpoint, EntryMode, NewObjects};
use crate::survey::{Extra, Survey, SurveyEnd, SurveyInput, survey_with};
use crate::sys::Dir;
use crate::worktree::{DirNode, RulesAfter, ScopePreview, stat_path};

/// Maximum number of bytes to read of files that restored rules bring into scope.
const RESCOPED_BYTES_MAX: u64 = 512 << 20;

/// Input of a plan.
pub(super) struct Planning<'a> {
    pub(super) input: &'a SurveyInput<'a>,
    pub(super) new_objects: &'a NewObjects,
    pub(super) root: &'a Dir,
    pub(super) target: &'a Checkpoint,
    pub(super) paths: &'a [Vec<u8>],
    pub(super) moves_aside: Option<&'a str>,
    pub(super) safety: Option<&'a Checkpoint>,
    pub(super) made: &'a MadeFiles,
    pub(super) checks_paths: bool,
    /// Local files. `None` if only the survey is wanted.
    pub(super) local: Option<LocalPlanning<'a>>,
    /// Kept files. `None` if only the survey is wanted.
    pub(super) kept: std::cell::Cell<Option<KeptPlanning<'a>>>,
}

/// A plan, and the survey that it was made from.
pub(super) struct Planned {
    pub(super) plan: RestorePlan,
    pub(super) survey: Survey,
    pub(super) rules: RulesChanged,
    pub(super) local: LocalPlanned,
}

impl Planning<'_> {
    pub(super) fn run(&self) -> Result<Planned> {
        let extra = Extra { outside: Some(&self.made.as_made), ..Extra::default() };
        let survey = match survey_with(self.input, extra, self.new_objects)? {
            SurveyEnd::Done(survey) => survey,
            SurveyEnd::TooManyFiles => {
                let hint = Hint::RaiseSetting { name: "max_files" };
                return Err(unsafe_to_restore("there are more files in scope than max_files allows", hint));
            }
            SurveyEnd::Stopped(_) => return Err(stopped()),
        };
        let plan = self.plan(&survey, None)?;
        let files = plan.changed_rules();
        let only_rules = !self.paths.is_empty() && self.paths.iter().all(|path| files.contains(path));
        if files.is_empty() || only_rules {
            return self.planned(plan, survey, RulesChanged { files, ..RulesChanged::default() });
        }
        self.run_with_rules(plan, survey, files)
    }

    /// Surveys and plans again, including the files that the restored rules bring into scope.
    fn run_with_rules(&self, plan: RestorePlan, survey: Survey, files: Vec<Vec<u8>>) -> Result<Planned> {
        let kept: HashSet<Vec<u8>> = plan.left.iter().map(|left| left.path.clone()).collect();
        let planner = self.planner(&survey, None);
        let texts = self.texts_after(&planner, &kept)?;
        let (in_scope, scope, root) = (rules_in_scope(&survey), &survey.scope, self.root);
        let is_out_now = |path: &[u8]| !in_scope.contains(path);
        let with_itself = RulesAfter { texts: texts.clone(), stays: &is_out_now };
        // One that is out of scope by its own text, such as `*`, stays like any other file out of scope.
        let hides_itself =
            |path: &[u8]| is_out_now(path) && !ScopePreview::new(scope, root, Some(&with_itself)).covers_file(path);
        let stays = |path: &[u8]| {
            let is_left_out = || find_left_out(self.target, path, || stat_path(root, path).ok()).is_some();
            !is_meant(path, self.paths) || kept.contains(path) || is_left_out() || hides_itself(path)
        };
        let rules_after = RulesAfter { texts, stays: &stays };
        let outside = Some(&self.made.as_made);
        let extra = Extra { outside, rules_after: Some(&rules_after), bytes_max: Some(RESCOPED_BYTES_MAX) };
        let all = match survey_with(self.input, extra, self.new_objects)? {
            SurveyEnd::Done(all) => all,
            SurveyEnd::TooManyFiles => {
                let rules = RulesChanged { files, is_cut_short: true, ..RulesChanged::default() };
                return self.planned(plan, survey, rules);
            }
            SurveyEnd::Stopped(_) => return Err(stopped()),
        };
        let still: HashSet<&[u8]> = all.skipped.iter().map(|skipped| skipped.path.as_slice()).collect();
        let ignored = survey.skipped.iter().filter(|skipped| skipped.why == SkipReason::Ignored);
        let rescoped = ignored.filter(|skipped| !still.contains(skipped.path.as_slice()));
        let rescoped = rescoped.map(|skipped| skipped.path.clone()).filter(|path| is_meant(path, self.paths));
        let mut rescoped: Vec<_> = rescoped.collect();
        rescoped.sort();
        let mut plan = self.plan(&all, Some(&rules_after))?;
        let local = self.finish(&self.planner(&all, Some(&rules_after)), &mut plan)?;
        Ok(Planned { plan, survey: all, rules: RulesChanged { files, rescoped, is_cut_short: false }, local })
    }

    fn planned(&self, mut plan: RestorePlan, survey: Survey, rules: RulesChanged) -> Result<Planned> {
        let local = self.finish(&self.planner(&survey, None), &mut plan)?;
        Ok(Planned { plan, survey, rules, local })
    }

    /// Adds local files to a plan, and what follows from all of it.
    fn finish(&self, planner: &Planner<'_>, plan: &mut RestorePlan) -> Result<LocalPlanned> {
        let local = self.local.as_ref().map(|local| local.plan(planner, plan)).transpose()?;
        let mut local = local.unwrap_or_default();
        if let Some(kept) = self.kept.take() {
            let (found, differing) = kept.plan(planner, plan)?;
            local.kept = found;
            local.differing.extend(differing);
        }
        planner.find_outside(plan);
        self.name_changed(planner.survey, plan);
        self.name_large(planner, plan)?;
        Ok(local)
    }

    fn plan(&self, survey: &Survey, rules_after: Option<&RulesAfter<'_>>) -> Result<RestorePlan> {
        let planner = self.planner(survey, rules_after);
        let mut plan = planner.plan()?;
        if self.checks_paths {
            planner.check_paths(&mut plan)?;
        }
        Ok(plan)
    }

    fn planner<'b>(&'b self, survey: &'b Survey, rules_after: Option<&'b RulesAfter<'b>>) -> Planner<'b> {
        Planner {
            survey,
            target: self.target,
            objects: self.input.objects,
            root: self.root,
            paths: self.paths,
            moves_aside: self.moves_aside,
            safety: self.safety,
            made: Some(self.made),
            local: self.local.as_ref().and_then(|local| Some(local.state.as_ref()?.tree)),
            rules_after,
        }
    }

    /// Returns the `.gitignore` files of the checkpoint that will exist after the restore, by directory.
    fn texts_after(&self, planner: &Planner<'_>, kept: &HashSet<Vec<u8>>) -> Result<HashMap<Vec<u8>, Vec<u8>>> {
        let mut texts = HashMap::new();
        for file in planner.objects.compare_trees(None, Some(self.target.tree))? {
            let (dir, name) = relpath::split(&file.path);
            let is_rules = name == b".gitignore" && is_meant(&file.path, self.paths) && !kept.contains(&file.path);
            if let Some((EntryMode::File | EntryMode::Executable, id)) = file.new.filter(|_| is_rules) {
                texts.insert(dir.to_vec(), planner.objects.read(id, ObjectKind::Blob)?);
            }
        }
        Ok(texts)
    }

    /// Reports the files that the restore after the target wrote and that are above the size limit: no scan reads them, so
    /// they are left as they are.
    fn name_large(&self, planner: &Planner<'_>, plan: &mut RestorePlan) -> Result<()> {
        let is_large = |skipped: &&Skipped| skipped.why == SkipReason::TooLarge && is_meant(&skipped.path, self.paths);
        let large: HashSet<&[u8]> = planner.survey.skipped.iter().filter(is_large).map(|one| &*one.path).collect();
        let restored = self.target.facts.restoring.as_ref().filter(|_| !large.is_empty());
        // If that checkpoint is gone since, it is not known what was written.
        let restored = restored.and_then(|restoring| planner.objects.checkpoint(restoring.target).ok());
        let Some(restored) = restored else { return Ok(()) };
        for file in planner.objects.compare_trees(Some(self.target.tree), Some(restored.tree))? {
            let was_there = || {
                let mut then = self.target.facts.skipped.iter();
                file.old.is_some() || then.any(|then| relpath::is_within(&file.path, &then.path))
            };
            let is_told = || plan.left.iter().any(|left| left.path == file.path);
            if large.contains(&*file.path) && !was_there() && !is_told() {
                plan.left.push(Left { path: file.path, why: WhyLeft::OutOfScope(SkipReason::TooLarge) });
            }
        }
        Ok(())
    }

    /// Reports the files that the restore after the target created out of scope and that changed since. They are left
    /// as they are.
    fn name_changed(&self, survey: &Survey, plan: &mut RestorePlan) {
        for path in &self.made.changed {
            let is_in_scope = survey.manifest.dirs.iter().any(|dir| {
                let mut files = dir.files.iter();
                let is_dir = *dir.path == **path && !dir.exceptional;
                is_dir || *dir.path == *relpath::split(path).0 && files.any(|file| dir.path_of(file) == *path)
            });
            let is_told = plan.left.iter().any(|left| left.path == *path);
            if is_meant(path, self.paths) && !is_in_scope && !is_told {
                plan.left.push(Left { path: path.clone(), why: WhyLeft::Changed });
            }
        }
    }
}

/// Returns the `.gitignore` files that are in scope.
fn rules_in_scope(survey: &Survey) -> HashSet<Vec<u8>> {
    let dirs = survey.manifest.dirs.iter();
    let has_rules =
        |dir: &&DirNode| dir.files.binary_search_by(|file| dir.name_of(file).cmp(b".gitignore".as_slice())).is_ok();
    dirs.filter(has_rules).map(|dir| relpath::join(&dir.path, b".gitignore")).collect()
}

fn is_meant(path: &[u8], paths: &[Vec<u8>]) -> bool {
    paths.is_empty() || paths.iter().any(|wanted| relpath::is_within(path, wanted))
}

fn stopped() -> Error {
    Error::new(ErrorKind::Stopped, "restore").because("stopped; nothing was touched")
}
