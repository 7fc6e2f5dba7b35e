//! The three trees that are measured. They are created once, below the work directory, and kept.
//!
//! small and medium are generated. large is the Linux source of Debian's package, or a copy of a directory that the
//! user names; without either there is no large tree.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::measure;
use crate::text::{Random, Words};

const LINUX_TARBALL: &str = "/usr/src/linux-source-6.1.tar.xz";

/// Part of the mark beside a finished tree: raise it when the generator changes, and old trees are regenerated.
const VERSION: &str = "3";

/// Files that mark a project root: piton uses the nearest directory upwards that contains one.
const ROOT_MARKERS: [&str; 9] =
    [".git", "pyproject.toml", "package.json", "Cargo.toml", "go.mod", "Makefile", "pom.xml", ".hg", "Gemfile"];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Size {
    Small,
    Medium,
    Large,
}

impl Size {
    pub(crate) const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        }
    }
}

pub(crate) struct Tree {
    pub(crate) size: Size,
    pub(crate) path: PathBuf,
    /// Number of files and symbolic links.
    pub(crate) files: u64,
    /// Number of symbolic links.
    pub(crate) links: u64,
    pub(crate) bytes: u64,
    /// True if created in this run: its files are seconds old.
    pub(crate) made: bool,
}

/// Finds or creates a tree and reads all of it once, so that it is cached for every contestant. Returns `None` if there
/// is not a source for it.
pub(crate) fn prepare(work: &Path, size: Size, large: Option<&Path>) -> Result<Option<Tree>> {
    let source = match (size, large) {
        (Size::Small, _) => Source::Generated { files: 700, bytes: 6_000_000 },
        (Size::Medium, _) => Source::Generated { files: 5_700, bytes: 120_000_000 },
        (Size::Large, Some(given)) => Source::Copy(given.canonicalize().with_context(|| given.display().to_string())?),
        (Size::Large, None) if Path::new(LINUX_TARBALL).exists() => Source::Tarball,
        (Size::Large, None) => return Ok(None),
    };
    let path = work.join("trees").join(size.name());
    let mark_path = path.with_extension("made");
    let mark = format!("{VERSION} {}\n", source.mark());
    let made = fs::read_to_string(&mark_path).ok().as_deref() != Some(mark.as_str());
    if made {
        eprintln!("making the {} tree", size.name());
        remove(&path)?;
        fs::create_dir_all(&path)?;
        source.fill(&path).with_context(|| format!("cannot make the {} tree", size.name()))?;
        fs::write(&mark_path, mark)?;
    }
    let (mut files, mut links, mut bytes) = (0, 0, 0);
    visit(&path, &mut |entry, kind| {
        files += 1;
        links += u64::from(kind.is_symlink());
        if kind.is_file() {
            bytes += fs::read(entry)?.len() as u64;
        }
        Ok(())
    })?;
    Ok(Some(Tree { size, path, files, links, bytes, made }))
}

enum Source {
    Generated { files: usize, bytes: usize },
    Copy(PathBuf),
    Tarball,
}

impl Source {
    fn mark(&self) -> String {
        match self {
            Self::Generated { files, bytes } => format!("generated {files} {bytes}"),
            Self::Copy(from) => format!("copy of {}", from.display()),
            Self::Tarball => LINUX_TARBALL.to_owned(),
        }
    }

    fn fill(&self, path: &Path) -> Result<()> {
        match self {
            Self::Generated { files, bytes } => return generate(path, *files, *bytes),
            Self::Copy(from) => {
                copy(from, path)?;
                remove(&path.join(".git"))?;
            }
            Self::Tarball => {
                let unpack = ["-x", "-f", LINUX_TARBALL, "--strip-components=1", "-C"];
                measure::run(Command::new("tar").args(unpack).arg(path))?;
            }
        }
        open_ignore_rules(&path.join(".gitignore"))?;
        // Without a marker, the project would be the workspace that contains the work directory.
        if !ROOT_MARKERS.iter().any(|name| path.join(name).exists()) {
            fs::write(path.join("Makefile"), "all:\n")?;
        }
        Ok(())
    }
}

/// Removes the last two lines of Debian's ignore rules for the kernel, which exclude everything but its own directory.
fn open_ignore_rules(gitignore: &Path) -> Result<()> {
    let Ok(rules) = fs::read_to_string(gitignore) else {
        return Ok(());
    };
    if let Some(kept) = rules.trim_end().strip_suffix("/*\n!/debian/") {
        fs::write(gitignore, kept)?;
    }
    Ok(())
}

pub(crate) fn generate(root: &Path, files: usize, bytes: usize) -> Result<()> {
    let mut random = Random::new(files as u64);
    let words = Words::new(&mut random, 3_000);
    fs::write(root.join("Makefile"), "all:\n")?;
    fs::write(root.join(".gitignore"), "*.o\n*.tmp\n*.swp\n/generated/\n.config\n")?;
    let sizes = file_sizes(&mut random, files, bytes);
    let mut directories = vec![(root.to_path_buf(), 0)];
    let mut written = 0;
    while written < sizes.len() {
        let number = directories.len();
        let (parent, depth) = loop {
            let (parent, depth) = &directories[random.below(number)];
            if *depth < 6 {
                break (parent.clone(), *depth);
            }
        };
        let directory = parent.join(format!("{}{number}", words.pick(&mut random)));
        fs::create_dir(&directory)?;
        if number.is_multiple_of(25) {
            fs::write(directory.join(".gitignore"), "*.mod\n!keep.mod\n")?;
        }
        let end = (written + random.between(4, 20)).min(sizes.len());
        for (index, &size) in sizes.iter().enumerate().take(end).skip(written) {
            let name = format!("{}{index}.c", words.pick(&mut random));
            fs::write(directory.join(name), words.file(&mut random, size))?;
        }
        written = end;
        directories.push((directory, depth + 1));
    }
    Ok(())
}

/// Returns file sizes that double from class to class, many small and few large, with a total of `bytes`.
fn file_sizes(random: &mut Random, files: usize, bytes: usize) -> Vec<usize> {
    let raw: Vec<usize> = (0..files)
        .map(|_| {
            let class = 512 << random.below(8);
            random.between(class, 2 * class)
        })
        .collect();
    let sum: usize = raw.iter().sum();
    raw.iter().map(|size| size * (bytes / 1000) / (sum / 1000)).collect()
}

/// Copies a tree, with symlinks as symlinks and timestamps preserved.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    measure::run(Command::new("cp").arg("-a").arg("--").arg(from.join(".")).arg(to)).map(drop)
}

pub(crate) fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Calls `each` for every entry below `directory` that is not a directory.
pub(crate) fn visit(directory: &Path, each: &mut dyn FnMut(&Path, fs::FileType) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            visit(&entry.path(), each)?;
        } else {
            each(&entry.path(), kind)?;
        }
    }
    Ok(())
}

pub(crate) fn count_files(directory: &Path) -> Result<u64> {
    let mut files = 0;
    visit(directory, &mut |_, _| {
        files += 1;
        Ok(())
    })?;
    Ok(files)
}

/// Returns `count` files spread evenly over `paths`, which are in scope and relative to `tree`. Prefers source files if
/// there are enough.
pub(crate) fn spread(tree: &Path, paths: &[PathBuf], count: usize) -> Result<Vec<PathBuf>> {
    let is_source = |path: &&PathBuf| path.extension() == Some(OsStr::new("c"));
    let is_regular = |path: &&PathBuf| fs::symlink_metadata(tree.join(path)).is_ok_and(|stat| stat.is_file());
    let mut from: Vec<&PathBuf> = paths.iter().filter(is_source).filter(is_regular).collect();
    if from.len() < count {
        from = paths.iter().filter(is_regular).collect();
    }
    ensure!(from.len() >= count, "{} has fewer than {count} files in scope", tree.display());
    let step = from.len() / count;
    Ok((0..count).map(|index| tree.join(from[index * step + step / 2])).collect())
}

/// A file that lines are appended to. It is truncated to its old length on drop, so that the tree can be reused.
pub(crate) struct Edited {
    path: PathBuf,
    bytes: u64,
    edits: u32,
}

impl Edited {
    pub(crate) fn new(path: PathBuf) -> Result<Self> {
        let bytes = fs::metadata(&path).with_context(|| path.display().to_string())?.len();
        Ok(Self { path, bytes, edits: 0 })
    }

    pub(crate) fn append_line(&mut self) -> Result<()> {
        self.edits += 1;
        let mut file = fs::OpenOptions::new().append(true).open(&self.path)?;
        std::io::Write::write_all(&mut file, format!("/* edit {} */\n", self.edits).as_bytes())?;
        Ok(())
    }

    pub(crate) fn is_as_before(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|stat| stat.len() == self.bytes)
    }
}

impl Drop for Edited {
    fn drop(&mut self) {
        if self.is_as_before() {
            return;
        }
        // Best effort: on failure the lines stay, and the tree is a few comments longer.
        let _ = fs::OpenOptions::new().write(true).open(&self.path).and_then(|file| file.set_len(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_tree_has_its_files_and_the_walk_finds_every_entry() -> Result<()> {
        let root = std::env::temp_dir().join(format!("xtask-generate-{}", std::process::id()));
        fs::create_dir_all(&root)?;
        generate(&root, 300, 2_000_000)?;
        let mut sources = 0;
        let mut bytes = 0;
        visit(&root, &mut |path, _| {
            sources += usize::from(path.extension() == Some(OsStr::new("c")));
            bytes += fs::metadata(path)?.len();
            Ok(())
        })?;
        let walked = crate::statwalk::walk(&root)?;
        let directories = measure::text(Command::new("find").arg(&root).args(["-mindepth", "1", "-type", "d"]))?;
        let entries = count_files(&root)? + directories.lines().count() as u64;
        remove(&root)?;
        assert_eq!(sources, 300);
        assert!((1_950_000..2_050_000).contains(&bytes), "{bytes}");
        assert_eq!(walked, entries);
        Ok(())
    }

    #[test]
    fn only_the_two_last_lines_of_debians_ignore_rules_go() -> Result<()> {
        let file = std::env::temp_dir().join(format!("xtask-ignore-{}", std::process::id()));
        fs::write(&file, "*.o\n# Debian\n/*\n!/debian/\n")?;
        open_ignore_rules(&file)?;
        open_ignore_rules(&file)?;
        let kept = fs::read_to_string(&file)?;
        fs::remove_file(&file)?;
        assert_eq!(kept, "*.o\n# Debian\n");
        Ok(())
    }
}
