//! Arguments of `powercut`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};

use super::disk::FileSystem;

pub(crate) const HELP: &str = "\
cargo xtask powercut [OPTIONS]    cut the power of piton at random moments and look what is left

Options of powercut:
  --states N      how many cuts on each file system (default: 150)
  --fs A,B        some of ext4,xfs,btrfs (default: all)
  --seed S        where and what to cut; the work differs a little from run to run all the same (default: 1)
  --piton PATH    the piton to test (default: built from here)
  --keep DIR      keep the disks of bad states there
  --require       fail where this machine lacks something, instead of saying so
  --self-test     with a piton that forgets to sync directories: the check must find that out
It needs root, loop devices, /dev/fuse, git, and of Debian: qemu-utils or qemu-system-common, e2fsprogs, xfsprogs,
btrfs-progs.
";

pub(super) struct Options {
    pub(super) states: usize,
    pub(super) file_systems: Vec<FileSystem>,
    pub(super) seed: u64,
    pub(super) piton: Option<PathBuf>,
    pub(super) keep: Option<PathBuf>,
    pub(super) is_required: bool,
    pub(super) is_self_test: bool,
}

/// Parses the arguments. Returns `None` if help was requested.
pub(super) fn parse(arguments: &[OsString]) -> Result<Option<Options>> {
    let mut options = Options {
        states: 150,
        file_systems: FileSystem::ALL.to_vec(),
        seed: 1,
        piton: None,
        keep: None,
        is_required: false,
        is_self_test: false,
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let name = argument.to_str().unwrap_or_default();
        let mut value = || rest.next().with_context(|| format!("{name} needs a value"));
        let number = |value: &OsString| -> Result<u64> {
            let value = value.to_string_lossy();
            value.parse().with_context(|| format!("{name} {value}: not a number"))
        };
        match name {
            "--states" => options.states = usize::try_from(number(value()?)?)?,
            "--seed" => options.seed = number(value()?)?,
            "--fs" => options.file_systems = parse_file_systems(&value()?.to_string_lossy())?,
            "--piton" => options.piton = Some(PathBuf::from(value()?)),
            "--keep" => options.keep = Some(std::path::absolute(value()?)?),
            "--require" => options.is_required = true,
            "--self-test" => options.is_self_test = true,
            "--help" | "-h" => return Ok(None),
            _ => bail!("no such option: {}\n\n{HELP}", argument.display()),
        }
    }
    ensure!(options.states > 0, "--states 0: at least 1");
    Ok(Some(options))
}

fn parse_file_systems(value: &str) -> Result<Vec<FileSystem>> {
    let parse = |word: &str| {
        let found = FileSystem::ALL.into_iter().find(|file_system| file_system.name() == word);
        found.with_context(|| format!("--fs {word}: ext4, xfs or btrfs"))
    };
    value.split(',').map(parse).collect()
}

impl Options {
    /// Returns the options as arguments.
    pub(super) fn as_arguments(&self) -> Vec<OsString> {
        let names: Vec<_> = self.file_systems.iter().map(|file_system| file_system.name()).collect();
        let mut arguments: Vec<OsString> = vec!["--states".into(), self.states.to_string().into()];
        arguments.extend(["--fs".into(), names.join(",").into(), "--seed".into(), self.seed.to_string().into()]);
        for (name, path) in [("--piton", &self.piton), ("--keep", &self.keep)] {
            arguments.extend(path.iter().flat_map(|path| [name.into(), path.into()]));
        }
        let flags = [("--require", self.is_required), ("--self-test", self.is_self_test)];
        arguments.extend(flags.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name.into()));
        arguments
    }
}
