//! Takes a checkpoint of a directory for each line on stdin, and prints the outcome and its time in nanoseconds:
//! `cargo xtask bench --serve` compares this with `piton serve`.
//!
//! ```sh
//! cargo run --release -p piton --example take_loop -- BASE DIR
//! ```

use std::error::Error;
use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use piton::{CheckpointKind, Moment, Outcome, Progress, Project, Request, Settings, Store, take};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (base, dir) = (arguments.next().ok_or("no base")?, arguments.next().ok_or("no directory")?);
    let store = Store::open_or_create(&base, now()?)?;
    let project = Project::at(&dir, None)?;
    let settings = Settings::default();
    let request = Request::default().reason("bench").kind(CheckpointKind::Manual).count_left_out(true);
    for line in std::io::stdin().lock().lines() {
        line?;
        let began = Instant::now();
        let report = take(&store, &project, &request, &settings, now()?, &Progress::default())?;
        let nanos = began.elapsed().as_nanos();
        let outcome = match report.outcome {
            Outcome::Taken(_) => "taken",
            Outcome::Unchanged(_) => "unchanged",
            _ => return Err("no checkpoint was taken".into()),
        };
        let mut stdout = std::io::stdout();
        writeln!(stdout, "{outcome} {nanos}")?;
        stdout.flush()?;
    }
    Ok(())
}

fn now() -> Result<Moment, Box<dyn Error>> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(Moment { secs: i64::try_from(since.as_secs())?, nanos: since.subsec_nanos(), offset_secs: 0 })
}
