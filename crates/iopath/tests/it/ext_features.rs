//! Verity and directories that ignore case, by the command and through a mount, beside fsverity(1),
//! chattr(1) and e2fsck. Needs root.

use testkit::judge;

use crate::command::{Mounted, bash_in};

/// A script of bash in a directory of its own, where `iopath` is the command; it must succeed.
fn bash(script: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let output = bash_in(dir.path(), &format!("set -e\n{script}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}: {out}{err}", output.status);
    (dir, out + &err)
}

/// Goal: `verity` and `cp --verity` give files the digests of fsverity(1), which cannot change
/// afterwards; where there is no verity, nothing is copied.
#[test]
fn copies_have_the_digests_of_fsverity() {
    let (dir, text) = bash(
        "iopath mkfs -q -b 4096 -O verity --size 20M v.img; iopath mkfs -q --size 8M plain.img
         mkdir bin; head -c 300000 /dev/zero | tr '\\0' x >bin/tool; : >bin/empty
         ln -s tool bin/link
         iopath cp -r --verity bin v.img:/
         for f in tool empty; do
           iopath verity measure v.img:/bin/$f | sed 's/ .*//' >ours
           fsverity digest --compact bin/$f | sed 's/^/sha256:/' | cmp ours
         done
         iopath cp bin/tool v.img:/salted
         iopath verity enable --hash-alg sha512 --block-size 1024 --salt aabb v.img:/salted
         iopath verity measure v.img:/salted | sed 's/ .*//' >ours
         fsverity digest --compact --hash-alg=sha512 --block-size=1024 --salt=aabb bin/tool |
           sed 's/^/sha512:/' | cmp ours
         iopath verity verify v.img:/bin/tool v.img:/salted
         iopath cat v.img:/bin/tool | cmp bin/tool
         iopath cp bin/empty v.img:/bin/tool && exit 1
         iopath cp --verity bin/tool plain.img:/ && exit 1
         iopath cp --verity v.img:/salted out && exit 1
         test ! -e out; iopath ls plain.img:/",
    );
    assert!(text.contains("`iopath mkfs -O verity` makes it"), "{text}");
    assert!(text.contains("out: --verity is for files of an ext4 image"), "{text}");
    assert!(!text.contains("\ntool"), "{text}");
    judge::e2fsck(&dir.path().join("v.img")).expect("sound");
}

/// Goal: directories begin to ignore case by the command, and names are found by it and through a
/// mount.
#[test]
fn case_is_ignored_by_the_command_and_through_a_mount() {
    let (dir, text) = bash(
        "iopath mkfs -q -O encrypt -E encoding=utf8-12.1,encoding_flags=strict --size 20M v.img
         dumpe2fs -h v.img 2>/dev/null | grep -E 'features|encoding'
         iopath mkdir v.img:/games v.img:/plain; iopath chattr +F v.img:/games
         echo one >one; iopath cp one v.img:/games/Straße; iopath cat v.img:/games/STRASSE
         iopath chattr -F v.img:/games && exit 1
         iopath cp one v.img:/games/$(printf 'caf\\351') && exit 1
         head -c 64 /dev/urandom >key; iopath mkdir v.img:/games/secret
         iopath encrypt set --key key v.img:/games/secret
         iopath cp --key key one v.img:/games/secret/Name
         iopath cat --key key v.img:/GAMES/x && exit 1
         iopath cat --key key v.img:/games/SECRET/NAME; iopath ls v.img:/games/secret",
    );
    assert!(text.contains("casefold") && text.contains("utf8-12.1"), "{text}");
    assert!(text.contains("not empty"), "{text}");
    let image = dir.path().join("v.img");
    let at = dir.path().join("mnt");
    std::fs::create_dir(&at).expect("a directory");
    let mounted = Mounted::new(&[], &image, at);
    let output = bash_in(
        &mounted.dir,
        "set -e; lsattr -d games | grep -q F; echo two >games/Name
         cat games/nAME games/straSSE; rm games/NAME; test ! -e games/Name
         chattr +F plain; echo three >plain/A; cat plain/a
         chattr +d plain/A; lsattr plain/A | grep -q d; chattr -d plain/A",
    );
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said, "two\none\nthree\n");
    drop(mounted);
    judge::e2fsck(&image).expect("sound");
}

/// Goal: a journal on another device is named by `-o journal_path=`, for commands that write and
/// for `check`; without it the error says so, and nothing is written. A block device is looked at
/// (the sandbox refused to ask for its sectors).
#[test]
fn the_device_of_a_journal_is_named() {
    let (_dir, text) = bash(
        "iopath mkfs -O journal_dev -b 1024 -L jl --size 5M log; iopath info log
         loop=$(losetup --find --show log)
         iopath info $loop; iopath mkfs -J device=LABEL=jl --size 16M v.img
         blockdev --flushbufs $loop; losetup --detach $loop
         iopath info log; iopath mkfs -J device=log --size 16M w.img && exit 1
         iopath mkfs -J device=v.img --size 16M w.img && exit 1
         iopath ls log && exit 1; test ! -e w.img
         iopath mkfs -O journal_dev -b 1024 --size 5M other; mkdir tree; echo in >tree/in
         iopath mkfs -d tree -J device=other w.img; iopath cat -o journal_path=other w.img:/in
         e2fsck -fn -j other w.img
         iopath tune -O ^has_journal w.img && exit 1
         iopath tune -O ^has_journal -o journal_path=other w.img; e2fsck -fn w.img
         dumpe2fs other | grep 'Journal users' && exit 1
         iopath tune -J device=other w.img; e2fsck -fn -j other w.img; dumpe2fs other
         new=5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a
         iopath tune -U $new w.img && exit 1
         iopath tune -U $new -o journal_path=log w.img && exit 1
         iopath tune -U $new -o journal_path=other w.img; e2fsck -fn -j other w.img
         dumpe2fs other | grep \"Journal users: *$new\"
         iopath cat -o journal_path=other w.img:/in >two; grep in two
         iopath tune -U $new -o journal_path=other w.img; e2fsck -fn -j other w.img
         echo one >one; cksum v.img log >before
         iopath cp one v.img:/ && exit 1
         cksum v.img log | cmp before; iopath ls v.img:/
         iopath cp -o journal_path=log one v.img:/; iopath cat v.img:/one
         iopath check -o journal_path=log v.img; e2fsck -fn -j log v.img",
    );
    assert!(text.contains("`-o journal_path=DEVICE` names the device of a journal"), "{text}");
    assert!(text.contains("\none\n") && text.contains("\nin\n"), "{text}");
    assert!(text.contains("journal of ext3 or ext4") && text.contains("users: "), "{text}");
    assert!(text.contains("is that of file system"), "{text}");
    assert!(text.contains("holds no external journal"), "{text}");
}
