//! Arguments of `bench`: parsed here, plain data everywhere else.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use crate::trees::Size;

pub(crate) const HELP: &str = "\
cargo xtask bench [OPTIONS]    measure piton beside other tools
cargo xtask agents [NAME...]   run real agents with piton's hooks against a scripted model (--help)
cargo xtask soak [--minutes N] all commands at once, killing them at random (default: 10 minutes; --piton as below)
cargo xtask beside-hermes [--minutes N] two versions of Hermes from PyPI and piton in one store (default: 30 minutes; --piton as below)
cargo xtask model [OPTIONS]    random work against a model, on ext4, xfs, btrfs, tmpfs and overlay (--help)
cargo xtask scaling            draw what a checkpoint costs by the size of the tree and of the change (docs/cost-*.svg)
cargo xtask pairs OLD NEW      compare the wall time of two builds of piton, run in turn (--help)
cargo xtask instructions       count the instructions of a take and a hook call, compare with instructions.toml (--write)
cargo xtask space [--mb N]     how much extra room a prune of a store of that size needs (default: 1024)
cargo xtask picture [PITON]    draw docs/picker.svg from a real run of PITON (default: built from this workspace)
cargo xtask statwalk DIR       stat everything below DIR with two threads, print how many
cargo xtask deps               check licences, versions and sources of all crates in piton by deny.toml
cargo xtask deps --write       the same, and write crates/piton-cli/THIRD-PARTY.md
cargo xtask deps --texts FILE  the same, and collect the texts of the licences in FILE
cargo xtask coverage           which lines of the library the tests reach
cargo xtask fuzz [TARGET]      fuzz what reads bytes from outside: --seconds N for each target (default: 60), --deep to
                               watch what libraries do with it as well (builds all of them anew)
cargo xtask fuzz --keep        put what was found on the way and reaches more among the seeds in fuzz/corpus
cargo xtask house              count what makes the sources hard to read, beside an older revision (--against REV);
                               --openings, --dialect, --names, --cycles list the places
cargo xtask powercut [OPTIONS] cut the power of piton at random moments and look what is left (--help)

Options of bench:
  --piton PATH    the piton to measure (default: built from this workspace)
  --work DIR      where trees and stores go (default: target/bench); the trees stay for the next run
  --large DIR     measure a copy of DIR as the large tree (default: Debian's linux-source-6.1, if installed)
  --rounds N      timed runs of every contestant, 1 to 15 (default: 7; at most 3 where one takes many seconds)
  --only A,B      some of small,medium,large
  --out FILE      write the report to FILE as well, as Markdown
  --quick         a check that all of it works, within a minute: small and medium, 2 rounds or 1
  --scale         instead of all that: 10,000 checkpoints, a file of 3 GB, 1,000,000 files (needs 15 GB, many minutes)
  --scale-down N  the same with everything N times smaller, to try the benchmark itself
  --strict        exit with 1 if a bar is missed
";

/// Maximum number of rounds: above it, the stores would reach the 20 checkpoints at which old ones are dropped, and the
/// time of that would be counted as the time of a checkpoint.
const ROUNDS_MAX: usize = 15;

pub(crate) struct Options {
    pub(crate) piton: Option<PathBuf>,
    pub(crate) work: PathBuf,
    pub(crate) large: Option<PathBuf>,
    pub(crate) rounds: usize,
    pub(crate) sizes: Vec<Size>,
    pub(crate) out: Option<PathBuf>,
    pub(crate) quick: bool,
    pub(crate) strict: bool,
    /// Measure scale instead, with everything so many times smaller.
    pub(crate) scale: Option<usize>,
}

/// Returns the root of the workspace that this program was built in.
pub(crate) fn workspace_root() -> PathBuf {
    let xtask = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().map_or_else(|| xtask.clone(), PathBuf::from)
}

/// Parses the arguments. Returns `None` if help was requested.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Option<Options>> {
    let mut options = Options {
        piton: None,
        work: workspace_root().join("target").join("bench"),
        large: None,
        rounds: 7,
        sizes: vec![Size::Small, Size::Medium, Size::Large],
        out: None,
        quick: false,
        strict: false,
        scale: None,
    };
    let (mut rounds, mut only) = (None, None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let name = argument.to_str().unwrap_or_default();
        let mut value = || rest.next().with_context(|| format!("{name} needs a value"));
        match name {
            "--piton" => options.piton = Some(PathBuf::from(value()?)),
            "--work" => options.work = PathBuf::from(value()?),
            "--large" => options.large = Some(PathBuf::from(value()?)),
            "--out" => options.out = Some(PathBuf::from(value()?)),
            "--rounds" => rounds = Some(parse_rounds(&value()?.to_string_lossy())?),
            "--only" => only = Some(parse_sizes(&value()?.to_string_lossy())?),
            "--quick" => options.quick = true,
            "--scale" => options.scale = options.scale.or(Some(1)),
            "--scale-down" => {
                let value = value()?.to_string_lossy().into_owned();
                let divisor = value.parse().with_context(|| format!("--scale-down {value}: not a number"))?;
                ensure!(divisor > 0, "--scale-down {value}: 1 or more");
                options.scale = Some(divisor);
            }
            "--strict" => options.strict = true,
            "--help" | "-h" => return Ok(None),
            _ => bail!("no such option: {}\n\n{HELP}", argument.display()),
        }
    }
    if options.quick {
        options.rounds = 2;
        options.sizes.retain(|&size| size != Size::Large);
    }
    options.rounds = rounds.unwrap_or(options.rounds);
    options.sizes = only.unwrap_or(options.sizes);
    Ok(Some(options))
}

fn parse_rounds(value: &str) -> Result<usize> {
    let rounds = value.parse().with_context(|| format!("--rounds {value}: not a number"))?;
    ensure!((1..=ROUNDS_MAX).contains(&rounds), "--rounds {value}: 1 to {ROUNDS_MAX}");
    Ok(rounds)
}

fn parse_sizes(value: &str) -> Result<Vec<Size>> {
    value
        .split(',')
        .map(|word| {
            Size::ALL
                .into_iter()
                .find(|size| size.name() == word)
                .with_context(|| format!("--only {word}: small, medium or large"))
        })
        .collect()
}
