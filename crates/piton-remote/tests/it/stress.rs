//! Many machines and one collector on a hostile server, and on the bucket that `PITON_REMOTE_URL` names (see `contract`).
//! `PITON_REMOTE_SECONDS`, `PITON_REMOTE_WRITERS` and `PITON_REMOTE_PROJECTS` make it longer; `cargo xtask remote` does.

use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use testkit::Dice;
use testkit::s3::Hostility;

use crate::kit::{Machine, Place, state};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The grace period is longer than twice the lag of listings and the delay of duplicates.
const HOSTILITY: Hostility = Hostility {
    unavailable: 30,
    dropped: 30,
    conflicts: 5,
    duplicated: 20,
    stalled_parts: 0,
    undeletable: None,
    delay_millis_max: 20,
    list_lag_millis: 700,
    clock_secs: -3 * 24 * 3600,
};

#[derive(Default)]
struct Counts {
    pushes: AtomicU64,
    failures: AtomicU64,
    kills: AtomicU64,
    collections: AtomicU64,
    failed_collections: AtomicU64,
    deleted: AtomicU64,
    copies: AtomicU64,
}

/// B10, B11, B12, B13.
#[test]
fn no_live_object_is_ever_deleted_and_every_ref_can_be_restored() {
    stress(&Place::named().unwrap_or_else(Place::server));
}

fn stress(place: &Place) {
    let (collector, phrase) = Machine::first("collector", place);
    let writers = number("PITON_REMOTE_WRITERS", 4);
    let projects = number("PITON_REMOTE_PROJECTS", 2);
    let machines: Vec<_> = (0..writers)
        .map(|at| {
            let machine = Machine::joining(&format!("m{at}"), place, &phrase);
            machine.clone_of(&format!("https://example.com/project/{}", at % projects));
            machine
        })
        .collect();
    let ends = Instant::now() + Duration::from_secs(number("PITON_REMOTE_SECONDS", 15));
    let counts = Arc::new(Counts::default());
    set_hostility(place, HOSTILITY);
    let machines: Vec<_> = std::thread::scope(|scope| {
        let work = |(at, machine): (usize, Machine)| {
            let counts = Arc::clone(&counts);
            scope.spawn(move || write_until(machine, at as u64, ends, place, &counts))
        };
        let working: Vec<_> = machines.into_iter().enumerate().map(work).collect();
        while Instant::now() < ends {
            let output = collector.output(&["collect", "--grace-secs", "3", "--lease-secs", "8"]);
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
            counts.deleted.fetch_add(report["deleted"].as_u64().unwrap_or(0), Ordering::Relaxed);
            let count = if output.status.success() { &counts.collections } else { &counts.failed_collections };
            count.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(300));
        }
        working.into_iter().map(|writer| writer.join().expect("no panic")).collect()
    });
    set_hostility(place, Hostility::default());
    assert_restored(&collector, &machines);
    let report = collector.run(&["verify", "--read-data"]);
    let findings: Vec<_> =
        report["findings"].as_array().expect("findings").iter().filter(|one| one["key"] != "ref").collect();
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!(
        "{} pushes, {} failed, {} killed, {} copies, {} collections ({} failed), {} objects deleted, {} checkpoints of {} refs",
        get(&counts.pushes),
        get(&counts.failures),
        get(&counts.kills),
        get(&counts.copies),
        get(&counts.collections),
        get(&counts.failed_collections),
        get(&counts.deleted),
        report["checkpoints"],
        report["refs"]
    );
    assert!(findings.is_empty(), "{findings:?}");
    assert!(get(&counts.deleted) > 0, "nothing was collected: the test shows nothing");
    assert!(get(&counts.pushes) > 0 && get(&counts.kills) > 0 && report["checkpoints"].as_u64() > Some(0), "{report}");
}

/// Sets the misbehaviour of the server of these tests. Any other bucket is as it is.
fn set_hostility(place: &Place, hostility: Hostility) {
    if let Place::Server(server) = place {
        server.set(hostility);
    }
}

/// Restores the newest checkpoint of each machine on another one, and compares it byte for byte.
fn assert_restored(reader: &Machine, machines: &[Machine]) {
    for machine in machines {
        machine.write("last", &machine.name);
        machine.take("last");
        machine.run(&["push"]);
    }
    let all = reader.run(&["machines"]);
    for machine in machines {
        let directory = machine.project().to_str().expect("a path").to_owned();
        // A machine that was copied has several ids, and names to tell them apart.
        let names = all.as_array().expect("machines").iter().filter(|one| {
            one["name"].as_str().is_some_and(|name| name.split('-').next() == Some(&machine.name))
                && one["projects"].as_array().is_some_and(|all| all.iter().any(|one| one["directory"] == *directory))
        });
        let is_as_there = |name: &serde_json::Value| {
            let id = reader.fetch(name["name"].as_str().expect("a name"), "1", &["--project", &directory]);
            reader.restore(&id, &[]);
            state(&reader.project()) == state(&machine.project())
        };
        assert!(names.clone().any(is_as_there), "{} in {all}", machine.name);
    }
}

/// Changes files, takes checkpoints and pushes; every third push is killed. From time to time, a copy of the machine
/// pushes under the same id, too. Returns the machine.
fn write_until(machine: Machine, seed: u64, ends: Instant, place: &Place, counts: &Counts) -> Machine {
    let mut dice = Dice::new(100 + seed);
    let mut longest = Duration::from_millis(500);
    while Instant::now() < ends {
        if dice.roll(40) == 0 {
            let copy = machine.copy(place);
            copy.write("copied", dice.noise(100));
            copy.take("in a copy");
            let pushed = copy.output(&["push", "--lease-secs", "8"]);
            counts.copies.fetch_add(u64::from(pushed.status.success()), Ordering::Relaxed);
        }
        for _ in 0..dice.between(1, 4) {
            let name = format!("d{}/f{}", dice.roll(3), dice.roll(6));
            // Contents that other machines have, too, so that they rely on each other's packs.
            let shared = Dice::new(dice.roll(40) as u64).noise(4000);
            machine.write(&name, shared);
        }
        machine.take("random");
        let start = Instant::now();
        let status = push(&machine, place, &mut dice, longest);
        longest = longest.max(start.elapsed());
        let count = match status.code() {
            Some(0) => &counts.pushes,
            Some(_) => &counts.failures,
            None => &counts.kills,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
    machine
}

/// Pushes. Every third push is killed: at a random request on the server of these tests, elsewhere at a random moment of
/// the `longest` time that a push took.
fn push(machine: &Machine, place: &Place, dice: &mut Dice, longest: Duration) -> ExitStatus {
    let mut child = machine.spawn(&["push", "--lease-secs", "8"]);
    let is_killed = dice.roll(3) == 0;
    if let (true, Place::Server(server)) = (is_killed, place) {
        let pid = child.id();
        server.kill_at(&machine.name, dice.between(1, 9) as u64, dice.roll(2) == 0, move || {
            drop(Command::new("kill").args(["-9", &pid.to_string()]).status());
        });
    } else if is_killed {
        std::thread::sleep(longest.mul_f64(dice.roll(1000) as f64 / 1000.0));
        // Fails if the push has ended before.
        drop(child.kill());
    }
    let status = child.wait().expect("the program");
    if let Place::Server(server) = place {
        server.spare(&machine.name);
    }
    status
}
