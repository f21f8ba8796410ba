//! Helpers for tests: the same body in both clocks, and many seeds.

use crate::{Cx, Runtime, World, WorldConfig};

/// Runs `body` once in a world with the default parameters (first, since a world reports a deadlock
/// where threads would hang) and once in real time.
pub fn both(body: impl Fn(&mut Cx)) {
    world(&body);
    real(&body);
}

/// Runs `body` in real time, with 4 processors, on this thread.
pub fn real<T>(body: impl FnOnce(&mut Cx) -> T) -> T {
    Runtime::real(4).enter("main", body)
}

/// Runs `body` in a world with the default parameters.
pub fn world<T>(body: impl FnOnce(&mut Cx) -> T) -> T {
    World::new(WorldConfig { seed: seed_or(1), ..WorldConfig::default() }).run("main", body)
}

/// Runs `body` in `count` worlds that explore schedules (see [`WorldConfig::exploring`]), with the
/// seeds 0, 1, 2 .., or in one world with the seed in `IOPATH_SEED`.
pub fn explore(count: u64, body: impl Fn(&mut Cx)) {
    for seed in seeds(count) {
        World::new(WorldConfig::exploring(seed)).run("main", &body);
    }
}

/// The seeds that a test tries: 0 to `count`, or the one in the environment variable `IOPATH_SEED`.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    match seed_from_env() {
        Some(seed) => seed..seed + 1,
        None => 0..count,
    }
}

/// The seed in the environment variable `IOPATH_SEED`, else `default`.
pub fn seed_or(default: u64) -> u64 {
    seed_from_env().unwrap_or(default)
}

fn seed_from_env() -> Option<u64> {
    std::env::var("IOPATH_SEED").ok()?.trim().parse().ok()
}
