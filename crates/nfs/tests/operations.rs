//! Goal: a file system behind our client and our server is the file system. Method: a reference
//! file system in memory, exported over a modelled network.

mod common;

use std::sync::Arc;

use base::Errno;
use common::{Site, quick_calls, world};
use nfs::{Mode, NfsOptions};
use testkit::memfs::MemFs;
use vfs::{FileSystem, FileType, Namespace, OpenFlags, SetAttr};

const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE).union(OpenFlags::CREATE);

#[test]
fn a_tree_is_made_read_and_removed() {
    world(1, |cx| {
        let site = Site::new(cx, Arc::new(MemFs::new()));
        let client = site.client(cx, 1, NfsOptions::default());
        let ns = Namespace::new(client.clone());
        ns.mkdir(cx, b"/d", 0o755).unwrap();
        let file = ns.open(cx, b"/d/f", RW, 0o644).unwrap();
        let data: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
        assert_eq!(file.write(cx, &data).unwrap(), data.len());
        let mut back = vec![0; data.len() + 10];
        assert_eq!(file.read_at(cx, 0, &mut back).unwrap(), data.len());
        assert_eq!(back[..data.len()], data);
        file.close(cx).unwrap();
        // The server has it: close has sent it.
        let theirs = Namespace::new(site.fs.clone());
        assert_eq!(theirs.stat(cx, b"/d/f").unwrap().size, data.len() as u64);
        ns.symlink(cx, b"d/f", b"/s").unwrap();
        assert_eq!(ns.readlink(cx, b"/s").unwrap(), b"d/f");
        ns.link(cx, b"/d/f", b"/l").unwrap();
        assert_eq!(ns.stat(cx, b"/l").unwrap().nlink, 2);
        ns.mknod(cx, b"/p", FileType::Fifo, 0o600, 0).unwrap();
        let mut names: Vec<Vec<u8>> =
            ns.list(cx, b"/").unwrap().into_iter().map(|(name, _)| name).collect();
        names.sort();
        assert_eq!(names, [b"d".to_vec(), b"l".to_vec(), b"p".to_vec(), b"s".to_vec()]);
        ns.rename(cx, b"/l", b"/d/g", vfs::RenameFlags::empty()).unwrap();
        assert_eq!(ns.rmdir(cx, b"/d"), Err(Errno::ENOTEMPTY));
        for name in [&b"/d/f"[..], b"/d/g", b"/s", b"/p"] {
            ns.unlink(cx, name).unwrap();
        }
        ns.rmdir(cx, b"/d").unwrap();
        assert_eq!(ns.stat(cx, b"/d").map(drop), Err(Errno::ENOENT));
        client.unmount(cx).unwrap();
        site.nfsd.stop(cx);
    });
}

#[test]
fn large_directories_are_listed_whole() {
    world(2, |cx| {
        let site = Site::new(cx, Arc::new(MemFs::new()));
        let client = site.client(cx, 1, quick_calls());
        let theirs = Namespace::new(site.fs.clone());
        for n in 0..3000 {
            let path = format!("/a rather long name of a file {n:05}");
            theirs.open(cx, path.as_bytes(), RW, 0o644).unwrap().close(cx).unwrap();
        }
        let names = Namespace::new(client.clone()).list(cx, b"/").unwrap();
        assert_eq!(names.len(), 3000);
        assert!(client.stats().calls[17] > 2, "several READDIRPLUS");
        client.unmount(cx).unwrap();
    });
}

/// Random reads, writes, truncates and flushes of every mode against a plain vector, with a cache
/// that is smaller than the file.
#[test]
fn content_is_that_of_the_model_in_every_mode() {
    for (name, mode) in Mode::ALL {
        for folio_size in [4096, 16384, 65536] {
            let seed = u64::from(folio_size);
            let options = NfsOptions {
                mode,
                folio_size,
                dirty_background_bytes: 64 << 10,
                dirty_limit_bytes: 256 << 10,
                ..NfsOptions::with_cache(400 << 10)
            };
            world(seed, |cx| random_content(cx, options, name));
        }
    }
}

fn random_content(cx: &mut rt::Cx, options: NfsOptions, name: &str) {
    let site = Site::new(cx, Arc::new(MemFs::new()));
    let client = site.client(cx, 1, options);
    let ns = Namespace::new(client.clone());
    let file = ns.open(cx, b"/f", RW, 0o644).unwrap();
    let mut model: Vec<u8> = Vec::new();
    for step in 0..600u32 {
        let (what, at) = (cx.rng().below(20), cx.rng().below(600 << 10));
        let len = 1 + cx.rng().below(if what == 0 { 100_000 } else { 9000 }) as usize;
        match what {
            0..9 => {
                let data: Vec<u8> = (0..len).map(|n| (n as u32 ^ step) as u8 | 1).collect();
                let at = at as usize;
                if model.len() < at + len {
                    model.resize(at + len, 0);
                }
                model[at..at + len].copy_from_slice(&data);
                assert_eq!(file.write_at(cx, at as u64, &data), Ok(len), "{name}");
            }
            9..17 => {
                let mut got = vec![0xee; len];
                let count = file.read_at(cx, at, &mut got).unwrap();
                let at = (at as usize).min(model.len());
                let want = &model[at..(at + len).min(model.len())];
                assert_eq!(count, want.len(), "{name}, step {step}");
                assert!(got[..count] == *want, "{name}, step {step}: {len} bytes at {at}");
            }
            17 => {
                model.resize(at as usize, 0);
                file.truncate(cx, at).unwrap();
            }
            18 => file.fsync(cx).unwrap(),
            _ => client.drop_clean(cx),
        }
    }
    assert_eq!(file.attr(cx).unwrap().size, model.len() as u64);
    file.close(cx).unwrap();
    let theirs = Namespace::new(site.fs.clone());
    let file = theirs.open(cx, b"/f", OpenFlags::READ, 0).unwrap();
    let mut got = vec![0; model.len() + 1];
    assert_eq!(file.read_at(cx, 0, &mut got).unwrap(), model.len());
    assert!(got[..model.len()] == model[..], "{name}: what the server has");
    client.unmount(cx).unwrap();
}

#[test]
fn an_open_file_outlives_its_name() {
    world(4, |cx| {
        let site = Site::new(cx, Arc::new(MemFs::new()));
        let client = site.client(cx, 1, NfsOptions::default());
        let ns = Namespace::new(client.clone());
        let file = ns.open(cx, b"/f", RW, 0o644).unwrap();
        file.write(cx, b"still here").unwrap();
        file.fsync(cx).unwrap();
        ns.unlink(cx, b"/f").unwrap();
        assert_eq!(ns.stat(cx, b"/f").map(drop), Err(Errno::ENOENT));
        client.drop_clean(cx);
        let mut back = [0; 10];
        assert_eq!(file.read_at(cx, 0, &mut back), Ok(10));
        assert_eq!(&back, b"still here");
        let listed = ns.list(cx, b"/").unwrap();
        assert!(listed.len() == 1 && listed[0].0.starts_with(b".nfs"), "{listed:?}");
        file.close(cx).unwrap();
        assert!(ns.list(cx, b"/").unwrap().is_empty());
        // Another file renamed onto an open one: the same.
        let file = ns.open(cx, b"/a", RW, 0o644).unwrap();
        file.write(cx, b"old").unwrap();
        ns.open(cx, b"/b", RW, 0o644).unwrap().close(cx).unwrap();
        ns.rename(cx, b"/b", b"/a", vfs::RenameFlags::empty()).unwrap();
        file.fsync(cx).unwrap();
        let mut back = [0; 3];
        assert_eq!(file.read_at(cx, 0, &mut back), Ok(3));
        file.close(cx).unwrap();
        assert_eq!(ns.list(cx, b"/").unwrap().len(), 1);
        client.unmount(cx).unwrap();
    });
}

#[test]
fn attributes_are_set() {
    world(5, |cx| {
        let site = Site::new(cx, Arc::new(MemFs::new()));
        let client = site.client(cx, 1, NfsOptions::default());
        let ns = Namespace::new(client.clone());
        ns.open(cx, b"/f", RW, 0o644).unwrap().close(cx).unwrap();
        let time = base::Timespec { sec: 1_000_000_000, nsec: 123_456_789 };
        let set = SetAttr {
            mode: Some(0o640),
            uid: Some(5),
            gid: Some(6),
            mtime: Some(time),
            ..SetAttr::default()
        };
        let attr = ns.setattr(cx, b"/f", &set, true).unwrap();
        assert_eq!((attr.mode, attr.uid, attr.gid, attr.mtime), (0o640, 5, 6, time));
        let before = base::Timespec::from_secs(-1);
        let set = SetAttr { mtime: Some(before), ..SetAttr::default() };
        assert_eq!(ns.setattr(cx, b"/f", &set, true).map(drop), Err(Errno::EINVAL));
        let space = client.statfs(cx).unwrap();
        assert!(space.blocks_free <= space.blocks);
        client.unmount(cx).unwrap();
    });
}
