//! Calls by name, and those that had returned and left nothing.

use std::sync::Arc;

use rt::Cx;
use vfs::FileSystem;

use super::Oracle;
use super::content::Asked;
use super::history::{Moment, Span, Value, entries, rights_of};
use crate::calls::{Call, Node, Place, Rights};
use crate::log::Note;

/// Things that are named at the most.
const NAMED: usize = 6;

impl Oracle {
    /// A call as its user wrote it, with its place in the log.
    pub fn call(&self, entry: usize) -> String {
        let Some(Note::Call(call)) = self.log.note(entry) else { return "no call".into() };
        let path = |ino: &u64| self.path_of(*ino, entry);
        let place = |place: &Place| {
            let dir = self.path_of(place.dir, entry);
            format!("{}/{}", dir.trim_end_matches('/'), place.name)
        };
        let text = match call {
            Call::Create { at: Some(at), node: Node::Directory, .. } => {
                format!("mkdir({})", place(at))
            }
            Call::Create { at: Some(at), node: Node::Symlink(to), .. } => {
                format!("symlink({to}, {})", place(at))
            }
            Call::Create { at: Some(at), .. } => format!("creat({})", place(at)),
            Call::Create { ino, .. } => format!("open(O_TMPFILE) of inode {ino}"),
            // The file has its new name already: its path is the one before.
            Call::Link { ino, at } => {
                format!("link({}, {})", self.path_with(*ino, entry), place(at))
            }
            Call::Remove { at, directory: true } => format!("rmdir({})", place(at)),
            Call::Remove { at, .. } => format!("unlink({})", place(at)),
            Call::Rename { from, to, exchange, whiteout } => {
                let flags = match (exchange, whiteout) {
                    (true, _) => ", RENAME_EXCHANGE",
                    (false, true) => ", RENAME_WHITEOUT",
                    (false, false) => "",
                };
                format!("rename({}, {}{flags})", place(from), place(to))
            }
            Call::Write { ino, offset, len } => {
                format!("write({}, {len} bytes at {offset})", path(ino))
            }
            Call::Truncate { ino, size } => format!("truncate({}, {size})", path(ino)),
            Call::Allocate { ino, offset, len, .. } => {
                format!("fallocate({}, {offset}, {len})", path(ino))
            }
            Call::Unknown { ino, offset, .. } => format!("a change of {} at {offset}", path(ino)),
            Call::Rights { ino, rights: Some(rights) } => {
                let Rights { mode, uid, gid } = rights;
                format!("chmod or chown({}, mode {mode:o}, {uid}:{gid})", path(ino))
            }
            Call::Rights { ino, .. } => format!("chmod or chown({})", path(ino)),
            Call::Fsync { ino, data: true } => format!("fdatasync({})", path(ino)),
            Call::Fsync { ino, .. } => format!("fsync({})", path(ino)),
            Call::Failed { ino } => format!("an fsync({}) that failed", path(ino)),
            Call::Sync => "sync()".to_owned(),
        };
        format!("{text} at entry {entry}")
    }

    pub(super) fn call_at(&self, span: Span) -> String {
        match span.done.checked_sub(1) {
            Some(entry) => self.call(entry),
            None => "what was there before".to_owned(),
        }
    }

    /// The promise, made until `at`, that covers what returned at `span` for one of these objects.
    pub(super) fn promise_of(&self, span: Span, objects: &[Option<usize>], at: Moment) -> String {
        let inos: Vec<u64> =
            objects.iter().flatten().map(|object| self.history.objects[*object].ino).collect();
        let about = |entry: usize| match self.log.note(entry) {
            Some(Note::Call(Call::Sync)) => true,
            Some(Note::Call(Call::Fsync { ino, .. })) => inos.contains(ino),
            _ => false,
        };
        let made = || self.history.promises.iter().filter(|(made, _)| at.done(*made));
        let covers = |made: &Span| span.before(made.came);
        let own = made().find(|(made, entry)| covers(made) && about(*entry));
        // On ext4 and XFS an fsync brings what was done before it elsewhere.
        let any = own.or_else(|| made().find(|(made, _)| covers(made)));
        any.map_or_else(|| "the file system's rules".into(), |(_, entry)| self.call(*entry))
    }

    /// The path of an inode number as it was at an entry of the log.
    fn path_of(&self, ino: u64, entry: usize) -> String {
        self.path_with(ino, entry + 1)
    }

    /// The path of an inode number as it was when the log had `upto` entries.
    fn path_with(&self, ino: u64, upto: usize) -> String {
        let objects = self.history.objects.iter().enumerate().rev();
        let mut made = objects.filter(|(_, object)| object.ino == ino);
        let object = made.find(|(_, object)| object.made.done <= upto);
        match object {
            Some((object, _)) => match self.history.path_at(object, upto) {
                path if path.is_empty() => format!("inode {ino}"),
                path => path,
            },
            None => format!("inode {ino}"),
        }
    }

    /// What had returned before the power failed behind `upto` entries and is not there, with the
    /// call that would have kept it. Names what nothing promised only. Parks.
    pub fn missing(&self, cx: &mut Cx, fs: &Arc<dyn FileSystem>, upto: usize) -> Vec<String> {
        let at = Moment::new(upto);
        let mut missing = Vec::new();
        let mut folders = vec![(0, fs.root())];
        while let Some((dir, ino)) = folders.pop() {
            let Ok(names) = entries(cx, &**fs, ino) else { continue };
            for &slot in self.history.of_dir.get(&dir).map_or(&[][..], |slots| slots) {
                if missing.len() >= NAMED {
                    return missing;
                }
                let slot = &self.history.slots[slot];
                let here = names.iter().find(|(name, _)| *name == slot.name).map(|(_, ino)| *ino);
                let Some(last) = slot.versions.iter().rfind(|version| at.done(version.span)) else {
                    continue;
                };
                let wanted = match last.value {
                    Value::Object(object) => Some(self.history.objects[object].ino),
                    Value::Nothing => None,
                    Value::Unknown => continue,
                };
                if wanted != here {
                    if !self.history.covered(dir, last, at) {
                        say(&mut missing, self.lacks(last.span, dir));
                    }
                    continue;
                }
                let (Value::Object(object), Some(ino)) = (last.value, here) else { continue };
                let ino = base::Ino(ino);
                if let Some(lost) = self.lost_rights(cx, &**fs, object, ino, at) {
                    say(&mut missing, lost);
                }
                match self.history.objects[object].node {
                    Node::Directory => folders.push((object, ino)),
                    Node::File => {
                        if let Some(lost) = self.lost_bytes(cx, &**fs, object, ino, at) {
                            say(&mut missing, lost);
                        }
                    }
                    _ => {}
                }
            }
        }
        missing
    }

    fn lost_bytes(
        &self,
        cx: &mut Cx,
        fs: &dyn FileSystem,
        object: usize,
        ino: base::Ino,
        at: Moment,
    ) -> Option<String> {
        let path = self.history.path(object);
        let attr = fs.getattr(cx, ino).ok()?;
        let until = self.history.data_until(object, at);
        let changes = &self.history.objects[object].changes;
        let last = changes.iter().rfind(|change| at.done(change.span))?;
        if last.span.before(until) {
            return None;
        }
        let until = last.span.done + 1;
        let asked = Asked { object, ino, path: &path, until, promised: false, at };
        self.content(cx, fs, &attr, &asked).err()?;
        Some(self.lacks(last.span, object))
    }

    fn lost_rights(
        &self,
        cx: &mut Cx,
        fs: &dyn FileSystem,
        object: usize,
        ino: base::Ino,
        at: Moment,
    ) -> Option<String> {
        let (span, rights) =
            self.history.objects[object].rights.iter().rfind(|(span, _)| at.done(*span))?;
        let found = rights_of(&fs.getattr(cx, ino).ok()?);
        let lost = rights.is_some_and(|rights| rights != found);
        let covered = span.before(self.history.all_until(object, at));
        (lost && !covered).then(|| self.lacks(*span, object))
    }

    /// That a call left nothing, and which fsync of an object would have kept it.
    fn lacks(&self, span: Span, object: usize) -> String {
        let path = match self.history.path_at(object, span.done) {
            path if path.is_empty() => self.history.path(object),
            path => path,
        };
        format!("{} is not there: no fsync({path}) followed it", self.call_at(span))
    }
}

/// Once: a rename changes two names.
fn say(missing: &mut Vec<String>, what: String) {
    if !missing.contains(&what) {
        missing.push(what);
    }
}
