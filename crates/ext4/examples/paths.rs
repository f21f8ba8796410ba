//! One name after another by its path, in a directory of many, in memory: `paths [COUNT [PASSES
//! [TASKS [NAMES BEFORE]]]]`; for profiles.

#[path = "../benches/mounted/mod.rs"]
mod mounted;

fn main() {
    testkit::paths::run(|cx| mounted::mounted(cx));
}
