//! `iopath demo`: what README shows first.

use testkit::judge;

/// A seed gives one run, and what was kept of it is sound.
#[test]
fn the_demonstration_repeats_and_leaves_a_sound_image() {
    let dir = tempfile::tempdir().expect("a directory");
    let kept = dir.path().join("recovered.img");
    let run = || {
        let output =
            crate::command::iopath(&["demo", "--seed", "7", "--keep", &kept.display().to_string()]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {error}", output.status);
        judge::e2fsck(&kept).unwrap_or_else(|text| panic!("{text}"));
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(run(), run());
}
