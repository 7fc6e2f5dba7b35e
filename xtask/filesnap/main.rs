//! Takes one snapshot with filesnap: `bench-filesnap DATA TREE`.
//!
//! Prints how many files it covers and a hash of their names and contents, which tells whether it saw a change. Its
//! limits are lifted and hidden files are tracked, so that it covers as much of the tree as it can.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use filesnap::{HiddenFiles, ScanLimits, TurnScope, WorkspaceStore, capture_turn};

fn main() {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(data), Some(tree)) = (arguments.next(), arguments.next()) else { panic!("bench-filesnap DATA TREE") };
    let store = WorkspaceStore::open(&data, &tree).expect("a store");
    let limits = ScanLimits { max_files: usize::MAX, max_file_bytes: u64::MAX };
    let scope = TurnScope { hidden: HiddenFiles::Track, limits, ..TurnScope::at(&tree) };
    let turn = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_nanos().to_string();
    let entries = capture_turn(&store, "bench", &turn, &scope).expect("a snapshot").manifest.entries;
    let mut hasher = DefaultHasher::new();
    for (path, entry) in &entries {
        (path, &entry.hash, entry.mode).hash(&mut hasher);
    }
    println!("{} {:016x}", entries.len(), hasher.finish());
}
