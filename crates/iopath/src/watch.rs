//! Looks from time to time at what goes wrong without a request that would report it.

use std::sync::Arc;

use base::Nanos;
use block::Queue;
use ext4::Ext4;
use rt::Cx;
use vfs::FileSystem;
use xfs::Xfs;

use crate::log::{self, Level};
use crate::session::Session;

/// How often.
const EVERY: Nanos = Nanos::from_secs(2);

/// What is looked at.
#[derive(Default)]
pub struct Watched {
    target: String,
    fs: Option<Arc<dyn FileSystem>>,
    ext: Option<Arc<Ext4>>,
    xfs: Option<Arc<Xfs>>,
    queue: Option<Arc<Queue>>,
}

impl Watched {
    /// A mounted file system, and its device where that is one of ours.
    pub fn session(session: &Session) -> Watched {
        let (ext, xfs) = (session.ext.clone(), session.xfs.clone());
        let queue = ext.as_ref().map(|fs| fs.queue().clone());
        let queue = queue.or_else(|| xfs.as_ref().map(|fs| fs.queue().clone()));
        let (target, fs) = (session.target.to_string(), Some(session.fs.clone()));
        Watched { target, fs, ext, xfs, queue }
    }

    /// A device that is served as it is.
    pub fn device(target: &str, queue: &Arc<Queue>) -> Watched {
        let (target, queue) = (target.to_owned(), Some(queue.clone()));
        Watched { target, queue, ..Watched::default() }
    }

    /// The error that stopped writing, in words.
    fn error(&self) -> Option<String> {
        let aborted = |fs: &Arc<Ext4>| {
            let errno = fs.journal()?.aborted()?;
            Some(format!("the journal was aborted: {errno}"))
        };
        let ext = self.ext.as_ref().and_then(|fs| fs.error().or_else(|| aborted(fs)));
        ext.or_else(|| self.xfs.as_ref().and_then(|fs| fs.error()))
    }
}

/// Logs what goes wrong from now on, in a task of its own: requests that the device fails, content
/// that was accepted and could not be written, and the error that stops writing.
pub fn begin(cx: &mut Cx, watched: Watched) {
    if !log::is_begun() {
        return;
    }
    cx.spawn("log", move |cx| {
        let mut seen = Seen::default();
        loop {
            cx.sleep(EVERY);
            for (level, text) in seen.look(&watched) {
                log::event(level, &format!("{}: {text}", watched.target));
            }
        }
    });
}

/// What was logged already.
#[derive(Default)]
struct Seen {
    read_error: Option<String>,
    device_errors: u64,
    lost_bytes: u64,
    error: Option<String>,
}

impl Seen {
    /// What is new.
    fn look(&mut self, watched: &Watched) -> Vec<(Level, String)> {
        let mut news = Vec::new();
        let errors = watched.queue.as_ref().map_or(0, |queue| queue.stats().errors);
        if errors > self.device_errors {
            let more = errors - self.device_errors;
            news.push((Level::Warning, format!("requests that the device failed: {more}")));
            self.device_errors = errors;
        }
        let lost = watched.fs.as_ref().map(|fs| fs.lost()).unwrap_or_default();
        if lost.bytes > self.lost_bytes {
            news.push((Level::Error, lost.to_string()));
            self.lost_bytes = lost.bytes;
        }
        if self.read_error.is_none() {
            self.read_error = watched.ext.as_ref().and_then(|fs| fs.read_error());
            let text = |error: &String| format!("metadata that cannot be read: {error}");
            news.extend(self.read_error.iter().map(|error| (Level::Warning, text(error))));
        }
        if self.error.is_none() {
            self.error = watched.error();
            let stopped = self.error.iter().map(|error| format!("writing has stopped: {error}"));
            news.extend(stopped.map(|text| (Level::Error, text)));
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Page, Sector};
    use block::{BioFlags, Op, QueueConfig};
    use device::{Fault, FaultDevice, MemoryDevice, Rule};
    use rt::{World, WorldConfig};
    use vfs::{FileType, NewNode};

    /// An ext4 whose device begins to fail writes: its failures and the stop are news once.
    #[test]
    fn news_are_reported_once() {
        let mut world = World::new(WorldConfig::default());
        let rt = world.runtime();
        world.run("test", |cx| {
            let disk = Arc::new(MemoryDevice::new(16 << 20));
            let faults = Arc::new(FaultDevice::new(&rt, disk));
            let queue = Queue::new(&rt, faults.clone(), QueueConfig::default()).expect("a queue");
            ext4::mkfs(cx, &queue, &ext4::MkfsOptions::default()).expect("made");
            let fs = Ext4::mount_alone(cx, &queue, Default::default(), Default::default());
            let fs = fs.expect("mounted");
            let ext = Some(fs.clone());
            let watched = Watched { ext, ..Watched::device("a.img", &queue) };
            let mut seen = Seen::default();
            assert_eq!(seen.look(&watched), []);
            faults.add(Rule::on(Op::Write, 0..u64::MAX, Fault::Fail(block::Cause::Io)));
            let failed = queue.write(cx, Sector(0), Page::zeroed(512), BioFlags::empty());
            assert!(failed.is_err());
            let news = seen.look(&watched);
            assert_eq!(news, [(Level::Warning, "requests that the device failed: 1".to_owned())]);
            let root = fs.root();
            let new = NewNode::new(FileType::Directory, 0o755);
            let made = fs.create(cx, root, b"d", &new).and_then(|_| fs.sync(cx));
            assert!(made.is_err(), "the journal is not written");
            let news = seen.look(&watched);
            assert!(news.iter().any(|(level, _)| *level == Level::Warning), "{news:?}");
            let stopped = |text: &str| text.starts_with("writing has stopped: ");
            assert!(
                news.iter().any(|(level, text)| *level == Level::Error && stopped(text)),
                "{news:?}"
            );
            assert_eq!(seen.look(&watched), []);
        });
    }
}
