//! Walks that are kept beside changes of what they passed: a mount that keeps them (with names in
//! memory) answers every call on a path as one that does not, for whoever asks.

use base::Rng;
use rt::{Cred, Cx};
use std::sync::Arc;
use vfs::acl::{Acl, DEFAULT, Entry, NO_ID, Tag};
use vfs::permission::Access;
use vfs::{FileSystem, Namespace, OpenFlags, RenameFlags, SetAttr, XattrFlags};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A path of up to four components, now and then with something odd in it.
fn path(rng: &mut Rng) -> Vec<u8> {
    let mut path = String::from(if rng.below(4) > 0 { "/" } else { "" });
    for at in 0..1 + rng.below(4) {
        if at > 0 {
            path += if rng.below(9) > 0 { "/" } else { "//" };
        }
        path += match rng.below(24) {
            0 => ".",
            1 => "..",
            2 => "link",
            _ => NAMES[rng.below(4) as usize],
        };
    }
    if rng.below(12) == 0 {
        path += "/";
    }
    path.into_bytes()
}

fn acl(rng: &mut Rng) -> Vec<u8> {
    let entry = |tag, perm, id| Entry { tag, perm, id };
    let user = 1 + rng.below(2) as u32;
    let perm = rng.below(8) as u16;
    let entries = vec![
        entry(Tag::UserObj, 7, NO_ID),
        entry(Tag::User, perm, user),
        entry(Tag::GroupObj, 5, NO_ID),
        entry(Tag::Mask, 7, NO_ID),
        entry(Tag::Other, 0, NO_ID),
    ];
    Acl::new(entries).expect("a list with all it needs").emit()
}

/// One call; what it answers, without numbers of inodes and times.
fn step(cx: &mut Cx, names: &mut Namespace, rng: &mut Rng) -> String {
    let (one, other) = (path(rng), path(rng));
    let user = [0, 0, 1, 2][rng.below(4) as usize];
    cx.set_cred(Cred::user(user, user));
    let exclusive = OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::WRITE;
    let mode = [0o700, 0o750, 0o711, 0o755, 0o777, 0o1777, 0o2770][rng.below(7) as usize];
    let shown = |attr: vfs::Attr| (attr.kind, attr.mode, attr.uid, attr.gid, attr.nlink);
    let answer = match rng.below(16) {
        0..=3 => format!("{:?}", names.stat(cx, &one).map(shown)),
        4 => format!("{:?}", names.mkdir(cx, &one, mode).map(shown)),
        5 => format!("{:?}", names.rmdir(cx, &one)),
        6 => format!("{:?}", names.unlink(cx, &one)),
        7 => format!("{:?}", names.rename(cx, &one, &other, RenameFlags::empty())),
        8 => format!("{:?}", names.rename(cx, &one, &other, RenameFlags::EXCHANGE)),
        9 | 10 => {
            let file = names.open(cx, &one, exclusive, mode);
            format!("{:?}", file.and_then(|file| file.close(cx)))
        }
        11 => {
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            format!("{:?}", names.setattr(cx, &one, &set, true).map(shown))
        }
        12 => {
            let set = SetAttr { uid: Some(rng.below(3) as u32), ..SetAttr::default() };
            format!("{:?}", names.setattr(cx, &one, &set, true).map(shown))
        }
        13 => {
            let name = if rng.below(2) == 0 { vfs::acl::ACCESS } else { DEFAULT };
            let value = acl(rng);
            format!("{:?}", names.setxattr(cx, &one, name, &value, XattrFlags::empty()))
        }
        14 => format!("{:?}", names.symlink(cx, &other, &one).map(shown)),
        _ if rng.below(3) == 0 => format!("{:?}", names.chdir(cx, &one)),
        _ => format!("{:?}", names.access(cx, &one, Access::EXEC)),
    };
    cx.set_cred(Cred::root());
    format!("{user}: {} {}: {answer}", one.escape_ascii(), other.escape_ascii())
}

/// A fresh file system that keeps about so many names; 0: none.
pub type Mount<'a> = &'a dyn Fn(&mut Cx, usize) -> Arc<dyn FileSystem>;

/// 3,000 random calls on each of two mounts, one with walks that are kept; returns how many of them
/// did something.
///
/// # Panics
/// Where the two answer differently; a mount that keeps walks without names, or none with them.
pub fn compare(cx: &mut Cx, seed: u64, mount: Mount<'_>) -> usize {
    let mut sides = [4096, 0].map(|names| {
        let fs = mount(cx, names);
        assert_eq!(fs.walk_version().is_some(), names > 0);
        Namespace::new(fs)
    });
    let both = sides.each_mut().map(|names| {
        let mut rng = Rng::new(seed, 7);
        (0..3000).map(|_| step(cx, names, &mut rng)).collect::<Vec<_>>()
    });
    for (at, (kept, anew)) in both[0].iter().zip(&both[1]).enumerate() {
        assert_eq!(kept, anew, "seed {seed}, step {at}");
    }
    both[0].iter().filter(|line| line.contains(": Ok")).count()
}
