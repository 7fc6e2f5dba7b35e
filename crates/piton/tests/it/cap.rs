//! The limit on the size of the store: it holds after each take, and no more is dropped than necessary.
//! `PITON_CAP_TAKES` and `PITON_CAP_MB` set the number of takes and the limit.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use piton::{Maintained, Progress, Settings, Store, maintain};
use testkit::{Sandbox, space};

use crate::kit::{Dice, cases, now, take_at, take_with, taken};
use crate::upkeep::{ids_of, store_of};

/// Everything that was ever taken, in a store without a limit, as stock git reads it.
struct Shadow {
    base: PathBuf,
    /// The checkpoints in the order they were taken: project, commit.
    taken: Vec<(PathBuf, String)>,
}

impl Shadow {
    fn new(sandbox: &Sandbox) -> Self {
        Self { base: sandbox.root().join("shadow"), taken: Vec::new() }
    }

    fn take(&mut self, dir: &Path) {
        let settings = Settings::default().max_snapshots(u64::MAX.into()).max_total_size_mb(0).auto_prune(false);
        self.taken.push((dir.to_owned(), taken(&take_at(&self.base, dir, &settings, now()))));
        let store = Store::open_existing(&self.base).expect("a base").expect("a store");
        maintain(&store, &settings, now(), &Progress::default()).expect("maintenance");
    }

    fn git(&self, args: &[&str]) -> String {
        let output = testkit::git().env("GIT_DIR", self.base.join("store")).args(args).output().expect("git runs");
        assert!(output.status.success(), "{args:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Returns the number of checkpoints whose objects fit in `bytes_max`: first the newest of each project, then the
    /// youngest of all.
    fn best(&self, bytes_max: u64) -> usize {
        let all = self.git(&["cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objectsize:disk)"]);
        let sizes: HashMap<&str, u64> = all
            .lines()
            .map(|line| line.split_once(' ').expect("two words"))
            // 28 bytes per object in an idx: its id, its checksum, its offset.
            .map(|(id, bytes)| (id, bytes.parse::<u64>().expect("a number") + 28))
            .collect();
        let newest: BTreeMap<_, _> = self.taken.iter().map(|(dir, id)| (dir, id)).collect();
        let is_newest = |id: &String| newest.values().any(|newest| *newest == id);
        let (first, others): (Vec<_>, Vec<_>) = self.taken.iter().map(|(_, id)| id).rev().partition(|id| is_newest(id));
        let (mut held, mut bytes) = (HashSet::new(), 0);
        let fits = first.into_iter().chain(others).take_while(|id| {
            let tree = self.git(&["ls-tree", "-r", "-t", "--format=%(objectname)", id]);
            let root = self.git(&["rev-parse", &format!("{id}^{{tree}}")]);
            let objects = tree.lines().chain([root.trim(), id.as_str()]).map(str::to_owned);
            bytes += objects.filter(|id| held.insert(id.clone())).map(|id| sizes[id.as_str()]).sum::<u64>();
            bytes <= bytes_max
        });
        fits.count()
    }
}

/// G5, G6.
#[test]
fn the_limit_holds_after_each_take_and_drops_no_more_than_it_must() {
    let sandbox = Sandbox::new();
    let mut dice = Dice::new(4);
    let mut shadow = Shadow::new(&sandbox);
    let dirs: Vec<_> = (0..10).map(|number| sandbox.other_project(&format!("p{number}"))).collect();
    let max_total_size_mb = cases("PITON_CAP_MB", 12);
    let settings = Settings::default().max_snapshots(100_000.into()).max_total_size_mb(max_total_size_mb);
    let bytes_max = settings.total_bytes_max().expect("a limit");
    let mut newest = BTreeMap::new();
    for number in 0..cases("PITON_CAP_TAKES", 400) {
        let dir = &dirs[dice.roll(dirs.len())];
        let bytes = 2_000 + dice.roll(60_000);
        fs::write(dir.join(format!("f{}", dice.roll(4))), dice.noise(bytes)).expect("a file");
        shadow.take(dir);
        newest.insert(dir.clone(), taken(&take_with(&sandbox, dir, &settings)));
        // As the command does after each take.
        maintain(&store_of(&sandbox), &settings, now(), &Progress::default()).expect("maintenance");
        let size = space::bytes_below(&sandbox.store());
        assert!(size <= bytes_max, "take {number}: {size} bytes of {bytes_max}");
        for (dir, id) in &newest {
            assert_eq!(ids_of(&sandbox, dir).first(), Some(id), "take {number}: the newest of {}", dir.display());
        }
    }
    sandbox.assert_store_is_whole();
    let size = space::bytes_below(&sandbox.store());
    assert!(size * 10 > bytes_max * 9, "{size} bytes of {bytes_max}: more was dropped than had to be");
    let kept: usize = dirs.iter().map(|dir| ids_of(&sandbox, dir).len()).sum();
    let besides = size - space::bytes_below(&sandbox.store().join("objects"));
    let best = shadow.best(bytes_max - besides);
    // Written straight to stderr: it is the figure that a long run is for.
    let _ = writeln!(
        std::io::stderr(),
        "{} takes at {max_total_size_mb} MB: {kept} are kept, {best} could be",
        shadow.taken.len()
    );
    assert!(kept * 10 >= best * 9, "{kept} are kept, and {best} could be");
}

/// G4. A garbage collection beside takes never exceeds the limit, at any moment.
#[test]
fn the_limit_holds_while_packs_are_merged_beside_takes() {
    let sandbox = Sandbox::new();
    let mut dice = Dice::new(5);
    let dirs: Vec<_> = (0..4).map(|number| sandbox.other_project(&format!("p{number}"))).collect();
    let settings = Settings::default().max_snapshots(100_000.into()).max_total_size_mb(4);
    let bytes_max = settings.total_bytes_max().expect("a limit");
    let mut tidied = 0;
    for number in 0..200 {
        let dir = &dirs[dice.roll(dirs.len())];
        let bytes = 20_000 + dice.roll(40_000);
        fs::write(dir.join(format!("f{}", dice.roll(4))), dice.noise(bytes)).expect("a file");
        let is_within = || {
            let size = space::bytes_below(&sandbox.store());
            assert!(size <= bytes_max, "take {number}: {size} bytes of {bytes_max}");
        };
        let done = std::thread::scope(|scope| {
            let upkeep = || maintain(&store_of(&sandbox), &settings, now(), &Progress::default()).expect("maintenance");
            // There is no store before the first take.
            let upkeep = (number > 0).then(|| scope.spawn(upkeep));
            taken(&take_with(&sandbox, dir, &settings));
            is_within();
            let upkeep = upkeep?;
            while !upkeep.is_finished() {
                is_within();
            }
            Some(upkeep.join().expect("no panic"))
        });
        tidied += u32::from(matches!(done, Some(Maintained::Tidied(freed)) if freed > 0));
    }
    assert!(tidied > 0, "no pack was ever merged");
    sandbox.assert_store_is_whole();
    let size = space::bytes_below(&sandbox.store());
    assert!(size * 10 > bytes_max * 9, "{size} bytes of {bytes_max}: more was dropped than had to be");
}
