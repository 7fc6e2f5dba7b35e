//! Facts of a surveyed project that git has no field for: permissions and empty directories.

use super::Survey;
use crate::skipped::Skipped;
use crate::store::{Facts, UsualModes};
use crate::worktree::DirNode;

impl Survey {
    /// Returns the facts of a checkpoint that git has no field for, without its origin and reason.
    pub(crate) fn facts(&self, skipped: Vec<Skipped>) -> Facts {
        let mut counts = vec![[0_u32; 3]; 0o10000];
        // Only the few modes that occur in a project are visited, not all possible ones.
        let mut seen = Vec::new();
        let mut count = |class: usize, mode: u16, number: u32| {
            let counts = &mut counts[usize::from(mode)];
            if *counts == [0; 3] && number > 0 {
                seen.push(mode);
            }
            counts[class] += number;
        };
        // Visiting each of a hundred thousand files would take longer than all the rest.
        let at_a_glance = |dir: &DirNode| dir.same_files && !dir.modes.is_mixed;
        for dir in self.manifest.dirs.iter().filter(|dir| at_a_glance(dir)) {
            (0..2).for_each(|class| count(class, dir.modes.modes[class], dir.modes.counts[class]));
        }
        self.for_each_mode(at_a_glance, |class, _, mode| count(class, mode, 1));
        let default = UsualModes::default();
        let usual = |class: usize, default| {
            let counted = seen.iter().map(|mode| (counts[usize::from(*mode)][class], *mode));
            counted.filter(|(count, _)| *count > 0).max().map_or(default, |(_, mode)| mode)
        };
        let usual = [usual(0, default.file), usual(1, default.executable), usual(2, default.dir)];
        let is_unusual = |mode: &u16| {
            counts[usize::from(*mode)].iter().zip(usual).any(|(count, usual)| *count > 0 && *mode != usual)
        };
        let mut modes = Vec::new();
        if seen.iter().any(is_unusual) {
            self.for_each_mode(
                |_| false,
                |class, path, mode| {
                    if mode != usual[class] {
                        modes.push((path(), mode));
                    }
                },
            );
            modes.sort();
        }
        let is_empty =
            |dir: &&DirNode| dir.files.is_empty() && dir.dirs.is_empty() && !dir.exceptional && !dir.path.is_empty();
        let mut empty_dirs: Vec<_> = self.manifest.dirs.iter().filter(is_empty).map(|dir| dir.path.to_vec()).collect();
        empty_dirs.sort();
        Facts {
            files: Some(self.manifest.files()),
            usual: UsualModes { file: usual[0], executable: usual[1], dir: usual[2] },
            modes,
            empty_dirs,
            skipped,
            ..Facts::default()
        }
    }

    /// Calls `each` with the class (file, executable, directory), the path and the permission bits of everything that
    /// has any, except for the files of directories for which `leaves_out` returns true. The project's root directory
    /// is not included: its permissions are the user's, not the checkpoint's.
    fn for_each_mode(
        &self,
        leaves_out: impl Fn(&DirNode) -> bool,
        mut each: impl FnMut(usize, &dyn Fn() -> Vec<u8>, u16),
    ) {
        for dir in &self.manifest.dirs {
            let files = if leaves_out(dir) { &[][..] } else { &dir.files };
            for file in files {
                if let Some(class) = file.stat.mode_class() {
                    each(class, &|| dir.path_of(file), file.stat.mode);
                }
            }
            if !dir.path.is_empty() && !dir.exceptional {
                each(2, &|| dir.path.to_vec(), dir.mode);
            }
        }
    }
}
