//! Eight processes at a time that run every command, all of them killed at random. `PITON_SOAK_SECONDS` sets the
//! duration; `cargo xtask soak` does the same for minutes or hours.

use std::path::Path;
use std::time::Duration;

use testkit::Sandbox;
use testkit::soak::{Plan, Soaked};

use crate::kit::PITON;

fn soak(size_mb_max: u64, seed: u64) -> Soaked {
    let seconds = std::env::var("PITON_SOAK_SECONDS").ok();
    let seconds = seconds.map_or(4, |seconds| seconds.parse().expect("PITON_SOAK_SECONDS is a number"));
    let plan = Plan {
        program: Path::new(PITON),
        length: Duration::from_secs(seconds),
        check_every: Duration::from_secs(2),
        size_mb_max,
        kill_within: Duration::from_millis(80),
        seed,
    };
    let soaked = plan.run(&Sandbox::new());
    assert!(soaked.has_everything(), "{soaked:?}");
    soaked
}

/// L1.
#[test]
fn all_commands_at_once_killed_at_random_lose_nothing() {
    soak(0, 1);
}

#[test]
fn the_same_at_the_limit_on_the_size_loses_only_what_the_limit_drops() {
    let soaked = soak(4, 2);
    assert!(soaked.store_bytes_max <= 4 << 20, "{soaked:?}");
}
