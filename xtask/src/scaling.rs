//! `scaling`: cost of a checkpoint as the tree grows, and as the change grows, drawn as two pictures in `docs`.
//!
//! Each point is the fastest of several runs; where warm git is drawn, its runs alternated with piton's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use plotters::prelude::*;

use crate::bench::{pause_after_edit, wait_until_old};
use crate::contestants::{Contestant, Outcome, Piton, Repository, WarmGit};
use crate::measure::settle;
use crate::trees;
use crate::workspace::{build_piton, workspace_root};

const TREES: [usize; 8] = [1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000];
const TREE_OF_CHANGES: usize = 20_000;
const CHANGES: [usize; 6] = [1, 10, 100, 1_000, 5_000, 20_000];
/// About the size of a source file.
const BYTES_PER_FILE: usize = 4_000;
const ROUNDS: usize = 5;

/// One curve of a picture.
struct Line {
    name: &'static str,
    colour: RGBColor,
    points: Vec<(usize, Duration)>,
}

impl Line {
    fn new(name: &'static str, colour: RGBColor) -> Self {
        Self { name, colour, points: Vec::new() }
    }
}

#[derive(clap::Args)]
pub(crate) struct ScalingArgs {
    /// Leave out trees with more files
    #[arg(long, value_name = "N")]
    files_max: Option<usize>,
}

pub(crate) fn run(args: &ScalingArgs) -> Result<ExitCode> {
    let files_max = args.files_max.unwrap_or(usize::MAX);
    let bench = Bench { program: build_piton()?, work: workspace_root().join("target").join("scaling") };
    trees::remove(&bench.work)?;
    let docs = workspace_root().join("docs");
    let by_tree = bench.by_tree(TREES.into_iter().filter(|files| *files <= files_max))?;
    draw(&docs.join("cost-by-tree.svg"), "A checkpoint as the tree grows", "files in the tree", &by_tree)?;
    let by_change = bench.by_change(TREE_OF_CHANGES.min(files_max))?;
    draw(&docs.join("cost-by-change.svg"), "A checkpoint as the change grows", "files changed", &by_change)?;
    print!("{}{}", table("files in the tree", &by_tree), table("files changed", &by_change));
    trees::remove(&bench.work)?;
    Ok(ExitCode::SUCCESS)
}

struct Bench {
    program: PathBuf,
    work: PathBuf,
}

impl Bench {
    fn contestants(&self, tree: &Path) -> (Piton, WarmGit) {
        let home = self.work.join("home");
        let dir = self.work.join("git");
        let repository = Repository { index: dir.join("index"), dir, tree: tree.to_owned(), home: home.clone() };
        let piton = Piton { program: self.program.clone(), base: self.work.join("base"), tree: tree.to_owned(), home };
        (piton, WarmGit::new(repository))
    }

    fn tree(&self, files: usize) -> Result<PathBuf> {
        eprintln!("a tree of {files} files");
        let tree = self.work.join("tree");
        trees::remove(&tree)?;
        fs::create_dir_all(&tree)?;
        fs::create_dir_all(self.work.join("home"))?;
        trees::generate(&tree, files, files * BYTES_PER_FILE)?;
        settle();
        wait_until_old();
        Ok(tree)
    }

    fn by_tree(&self, sizes: impl Iterator<Item = usize>) -> Result<Vec<Line>> {
        let mut first = Line::new("piton, first checkpoint", RED);
        let mut one = Line::new("piton, one file changed", BLUE);
        let mut nothing = Line::new("piton, nothing changed", GREEN);
        let mut git = Line::new("warm git, one file changed", BLACK);
        for files in sizes {
            let tree = self.tree(files)?;
            let (mut piton, mut warm) = self.contestants(&tree);
            let before = |contestant: &mut dyn Contestant| contestant.fresh();
            first.points.push((files, fastest(&mut piton, 2, Outcome::Taken, before)?));
            take_all(&mut [&mut piton, &mut warm])?;
            nothing.points.push((files, fastest(&mut piton, ROUNDS, Outcome::Unchanged, |_| Ok(()))?));
            let edit = |_: &mut dyn Contestant| edit(&[tree.join("Makefile")]);
            one.points.push((files, fastest(&mut piton, ROUNDS, Outcome::Taken, edit)?));
            git.points.push((files, fastest(&mut warm, ROUNDS, Outcome::Taken, edit)?));
            piton.fresh()?;
            warm.fresh()?;
        }
        Ok(vec![first, git, one, nothing])
    }

    fn by_change(&self, files: usize) -> Result<Vec<Line>> {
        let mut ours = Line::new("piton", BLUE);
        let mut git = Line::new("warm git", BLACK);
        let tree = self.tree(files)?;
        let (mut piton, mut warm) = self.contestants(&tree);
        take_all(&mut [&mut piton, &mut warm])?;
        let all = warm.repository.files()?;
        for changed in CHANGES.into_iter().filter(|changed| *changed <= files) {
            let paths = trees::spread(&tree, &all, changed)?;
            let edit = |_: &mut dyn Contestant| edit(&paths);
            ours.points.push((changed, fastest(&mut piton, 3, Outcome::Taken, edit)?));
            git.points.push((changed, fastest(&mut warm, 3, Outcome::Taken, edit)?));
        }
        piton.fresh()?;
        warm.fresh()?;
        Ok(vec![git, ours])
    }
}

/// Takes the first checkpoint of each contestant, and a second one to reach a steady state.
fn take_all(contestants: &mut [&mut dyn Contestant]) -> Result<()> {
    for contestant in contestants {
        contestant.fresh()?;
        contestant.take()?;
        contestant.take()?;
    }
    Ok(())
}

/// Changes the files so that no run finds content that an earlier one stored.
fn edit(paths: &[PathBuf]) -> Result<()> {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicU64, Ordering};
    static EDITS: AtomicU64 = AtomicU64::new(0);
    let number = EDITS.fetch_add(1, Ordering::Relaxed);
    for path in paths {
        writeln!(fs::OpenOptions::new().append(true).open(path)?, "# edit {number} of {}", path.display())?;
    }
    pause_after_edit();
    Ok(())
}

fn fastest(
    contestant: &mut dyn Contestant,
    rounds: usize,
    expected: Outcome,
    mut before: impl FnMut(&mut dyn Contestant) -> Result<()>,
) -> Result<Duration> {
    let mut fastest = Duration::MAX;
    for _ in 0..rounds {
        before(contestant)?;
        settle();
        let (time, outcome) = contestant.take()?;
        ensure!(outcome.is_none_or(|outcome| outcome == expected), "{outcome:?} instead of {expected:?}");
        fastest = fastest.min(time);
    }
    Ok(fastest)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn table(what: &str, lines: &[Line]) -> String {
    let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text =
        row(&std::iter::once(what.to_owned()).chain(lines.iter().map(|line| line.name.to_owned())).collect::<Vec<_>>());
    text += &row(&vec!["---:".to_owned(); lines.len() + 1]);
    for at in 0..lines[0].points.len() {
        let times = lines.iter().map(|line| format!("{:.1}", ms(line.points[at].1)));
        text += &row(&std::iter::once(lines[0].points[at].0.to_string()).chain(times).collect::<Vec<_>>());
    }
    text + "\n"
}

/// Draws a picture with logarithmic axes: linear growth is a straight line.
fn draw(path: &Path, title: &str, what: &str, lines: &[Line]) -> Result<()> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let (first, last) = points().fold((usize::MAX, 1), |(low, high), (at, _)| (low.min(*at), high.max(*at)));
    let (least, most) =
        points().fold((f64::MAX, 0.0_f64), |(low, high), (_, time)| (low.min(ms(*time)), high.max(ms(*time))));
    let root = SVGBackend::new(path, (760, 440)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d((first..last).log_scale(), (least * 0.7..most * 1.4).log_scale())?;
    chart
        .configure_mesh()
        .x_desc(what)
        .y_desc("milliseconds")
        .label_style(("sans-serif", 13))
        .light_line_style(WHITE.mix(0.0))
        .draw()?;
    for line in lines {
        let points = || line.points.iter().map(|(at, time)| (*at, ms(*time)));
        let colour = line.colour;
        chart
            .draw_series(LineSeries::new(points(), colour.stroke_width(2)))?
            .label(line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .label_font(("sans-serif", 13))
        .draw()?;
    root.present()?;
    Ok(())
}
