//! The calls of a log as versions of names, contents and rights, and the promises, in time.

use std::ops::Range;
use std::sync::Arc;

use base::Ino;
use base::map::HashMap;
use device::Cut;
use rt::{Cx, World, WorldConfig};
use vfs::{FileSystem, FileType};

use super::order::Order;
use super::{OracleError, Rules};
use crate::calls::{Call, Name, Node, Place, Rights};
use crate::log::Log;
use crate::medium::medium;
use crate::recover::Kind;

/// Bytes of a file from before the run above which its content is not compared.
const BASE_MAX: u64 = 1 << 20;

/// When something happened: it began behind `came` entries of the log and returned at entry
/// `done`, both counted from 1; 0 is before the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Span {
    pub came: usize,
    pub done: usize,
}

impl Span {
    /// It began when entry `done` was there.
    pub fn began_behind(self, done: usize) -> bool {
        self.came > done
    }

    /// It had returned before the other one began.
    pub fn before(self, came: usize) -> bool {
        self.done < came
    }
}

/// A place in the log at which the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment(usize);

impl Moment {
    pub fn new(upto: usize) -> Moment {
        Moment(upto)
    }

    /// Had it begun?
    pub fn begun(self, span: Span) -> bool {
        span.came <= self.0 + 1
    }

    /// Had it returned?
    pub fn done(self, span: Span) -> bool {
        span.done <= self.0
    }
}

/// Until when something is covered, by the promises that had been made.
#[derive(Clone, Debug, Default)]
pub(super) struct Covers(Vec<(usize, usize)>);

impl Covers {
    /// A promise that returned at `done` covers what had returned before `until`.
    fn add(&mut self, done: usize, until: usize) {
        let until = until.max(self.0.last().map_or(0, |last| last.1));
        self.0.push((done, until));
    }

    /// What had returned before the answer is covered.
    pub fn at(&self, moment: Moment) -> usize {
        let made = self.0.partition_point(|promise| promise.0 <= moment.0);
        made.checked_sub(1).map_or(1, |last| self.0[last].1)
    }
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Nothing,
    Object(usize),
    /// It was changed in a way that is not known.
    Unknown,
}

/// A version of a name.
#[derive(Clone, Debug)]
pub(super) struct Naming {
    pub span: Span,
    pub value: Value,
    /// The object that a call named, moved or took the name of.
    pub subject: Option<usize>,
    /// A rename put a file in the place of another one.
    pub replaces: bool,
}

/// A name in a directory.
#[derive(Debug)]
pub(super) struct Slot {
    pub dir: usize,
    pub name: Name,
    pub versions: Vec<Naming>,
}

/// A change of a content.
#[derive(Clone, Debug)]
pub(super) enum Edit {
    /// The bytes of the write call at this entry of the log.
    Write(usize),
    Zero,
    Unknown,
}

/// A change of a content: where, and whether it sets the size.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub span: Span,
    /// Bytes that it changes.
    pub range: Range<u64>,
    pub edit: Edit,
    pub size: Option<Resize>,
}

/// What a change does with the size.
#[derive(Clone, Copy, Debug)]
pub(super) enum Resize {
    /// The file ends there.
    To(u64),
    /// The file reaches there, at least.
    AtLeast(u64),
    /// Up to there, perhaps.
    Perhaps(u64),
    /// Not even to where it reached before.
    Lost,
}

/// The content before all changes.
#[derive(Clone, Debug)]
pub(super) enum Base {
    Bytes(Vec<u8>),
    Unknown(u64),
}

/// An inode from its creation on.
#[derive(Debug)]
pub(super) struct Object {
    pub ino: u64,
    pub node: Node,
    /// Made by the run; the others were there before.
    pub made: Span,
    pub base: Base,
    pub changes: Vec<Change>,
    /// Versions of its rights; None for unknown ones.
    pub rights: Vec<(Span, Option<Rights>)>,
    /// Names that it had, in the order of their calls: when, and the slot.
    pub named: Vec<(Span, usize)>,
    /// Covered: contents and sizes.
    pub data: Covers,
    /// Covered: rights, and for a directory its names.
    pub all: Covers,
    /// Covered: its own names.
    pub names: Covers,
    /// When changes of it that a commit needs had returned, and when the newest of them began.
    newest: Covers,
    /// The same, of what fdatasync commits.
    newest_data: Covers,
    /// Its size behind all changes.
    size: u64,
}

/// All of it.
#[derive(Debug)]
pub(super) struct History {
    pub objects: Vec<Object>,
    pub slots: Vec<Slot>,
    /// Slots of each directory.
    pub of_dir: HashMap<usize, Vec<usize>>,
    /// Changes of names that a commit has brought, whatever they are about.
    commits: Covers,
    /// Everything.
    syncs: Covers,
    by_place: HashMap<(usize, Name), usize>,
    pub(super) by_ino: HashMap<u64, usize>,
    /// Directories that a rename or link has joined: each with a representative.
    joined: Vec<usize>,
    rules: Rules,
    /// All promises: when, and their entry in the log.
    pub promises: Vec<(Span, usize)>,
}

impl History {
    pub fn new(log: &Log, kind: Kind, rules: Rules) -> Result<History, OracleError> {
        let mut history = History {
            objects: Vec::new(),
            slots: Vec::new(),
            of_dir: HashMap::default(),
            commits: Covers::default(),
            syncs: Covers::default(),
            by_place: HashMap::default(),
            by_ino: HashMap::default(),
            joined: Vec::new(),
            rules,
            promises: Vec::new(),
        };
        history.before(log, kind)?;
        let mut order = Order::new(log);
        for position in 0..order.len() {
            history.take(&mut order, position, usize::MAX);
        }
        match order.len() {
            0 => Err(OracleError::NoCalls),
            _ => Ok(history),
        }
    }

    /// Takes the tree as it was before the run.
    fn before(&mut self, log: &Log, kind: Kind) -> Result<(), OracleError> {
        let medium = Arc::new(medium(log, &Cut::clean(0))?);
        let walked = World::new(WorldConfig::default()).run("before", |cx| {
            let fs = kind.mount(cx, medium)?;
            let walked = self.walk(cx, &*fs);
            fs.shutdown_hard();
            walked.map_err(|errno| errno.to_string())
        });
        walked.map_err(OracleError::Before)
    }

    fn walk(&mut self, cx: &mut Cx, fs: &dyn FileSystem) -> Result<(), base::Errno> {
        let attr = fs.getattr(cx, fs.root())?;
        let root = self.object(attr.ino.0, Node::Directory, Span::default(), rights_of(&attr));
        let mut folders = vec![(attr.ino, root)];
        while let Some((dir, object)) = folders.pop() {
            for (name, ino) in entries(cx, fs, dir)? {
                let attr = fs.getattr(cx, Ino(ino))?;
                let known = self.by_ino.get(&ino).copied();
                let child = match known {
                    Some(child) => child,
                    None => {
                        let node = node_of(cx, fs, &attr)?;
                        let child = self.object(ino, node, Span::default(), rights_of(&attr));
                        self.objects[child].base = base_of(cx, fs, &attr)?;
                        self.objects[child].size = attr.size;
                        child
                    }
                };
                let slot = self.slot(object, &name);
                self.name(slot, Span::default(), Value::Object(child), Some(child), false);
                if attr.is_dir() {
                    folders.push((attr.ino, child));
                }
            }
        }
        Ok(())
    }

    fn object(&mut self, ino: u64, node: Node, made: Span, rights: Rights) -> usize {
        let object = self.objects.len();
        self.objects.push(Object {
            ino,
            node,
            made,
            base: Base::Bytes(Vec::new()),
            changes: Vec::new(),
            rights: vec![(made, Some(rights))],
            named: Vec::new(),
            data: Covers::default(),
            all: Covers::default(),
            names: Covers::default(),
            newest: Covers(vec![(made.done, made.came)]),
            newest_data: Covers(vec![(made.done, made.came)]),
            size: 0,
        });
        self.joined.push(object);
        self.by_ino.insert(ino, object);
        object
    }

    /// The object that has an inode number now; one of unknown content where none is known.
    fn known(&mut self, ino: u64) -> usize {
        if let Some(&object) = self.by_ino.get(&ino) {
            return object;
        }
        let rights = Rights { mode: 0, uid: 0, gid: 0 };
        let object = self.object(ino, Node::Special, Span::default(), rights);
        self.objects[object].rights[0].1 = None;
        self.objects[object].base = Base::Unknown(u64::MAX);
        object
    }

    fn slot(&mut self, dir: usize, name: &Name) -> usize {
        let next = self.slots.len();
        let slot = *self.by_place.entry((dir, name.clone())).or_insert(next);
        if slot == next {
            let none = Naming {
                span: Span::default(),
                value: Value::Nothing,
                subject: None,
                replaces: false,
            };
            self.slots.push(Slot { dir, name: name.clone(), versions: vec![none] });
            self.of_dir.entry(dir).or_default().push(slot);
        }
        slot
    }

    pub(super) fn at(&mut self, place: &Place) -> usize {
        let dir = self.known(place.dir);
        self.slot(dir, &place.name)
    }

    pub(super) fn value(&self, slot: usize) -> Value {
        self.slots[slot].versions.last().map_or(Value::Nothing, |version| version.value)
    }

    fn name(
        &mut self,
        slot: usize,
        span: Span,
        value: Value,
        subject: Option<usize>,
        replaces: bool,
    ) {
        let dir = self.slots[slot].dir;
        let naming = Naming { span, value, subject, replaces };
        if span.done == 0 {
            self.slots[slot].versions.clear();
        }
        self.slots[slot].versions.push(naming);
        self.objects[dir].newest.add(span.done, span.came);
        if let Some(subject) = subject {
            self.objects[subject].newest.add(span.done, span.came);
            self.objects[subject].named.push((span, slot));
        }
    }

    /// Directories whose changes a user can see to depend on one another have one representative.
    pub fn family(&self, mut dir: usize) -> usize {
        while self.joined[dir] != dir {
            dir = self.joined[dir];
        }
        dir
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.family(one), self.family(other));
        self.joined[one.max(other)] = one.min(other);
    }

    pub(super) fn call(&mut self, call: &Call, entry: usize, span: Span) {
        match call {
            Call::Create { at, ino, node, rights } => {
                let object = self.object(*ino, node.clone(), span, *rights);
                if let Some(place) = at {
                    let slot = self.at(place);
                    self.name(slot, span, Value::Object(object), Some(object), false);
                }
            }
            Call::Link { ino, at } => {
                let (object, slot) = (self.known(*ino), self.at(at));
                if let Some(&(_, other)) = self.objects[object].named.last() {
                    self.join(self.slots[slot].dir, self.slots[other].dir);
                }
                self.name(slot, span, Value::Object(object), Some(object), false);
            }
            Call::Remove { at, .. } => {
                let slot = self.at(at);
                let subject = match self.value(slot) {
                    Value::Object(object) => Some(object),
                    _ => None,
                };
                let left = if self.overlaps(slot, span) { Value::Unknown } else { Value::Nothing };
                self.name(slot, span, left, subject, false);
            }
            Call::Rename { from, to, exchange, whiteout } => {
                let (from, to) = (self.at(from), self.at(to));
                self.rename(span, from, to, *exchange, *whiteout);
            }
            Call::Write { ino, offset, len } => {
                let end = offset + len;
                let size = Some(Resize::AtLeast(end));
                self.change(*ino, span, *offset..end, Edit::Write(entry), size);
            }
            Call::Truncate { ino, size } => {
                self.change(*ino, span, *size..u64::MAX, Edit::Zero, Some(Resize::To(*size)));
            }
            Call::Allocate { ino, offset, len, zeroed, grows } => {
                let end = offset.saturating_add(*len);
                let range = if *zeroed { *offset..end } else { end..end };
                self.change(*ino, span, range, Edit::Zero, grows.then_some(Resize::AtLeast(end)));
            }
            Call::Unknown { ino, offset, len } => {
                let end = offset.saturating_add(*len);
                self.change(*ino, span, *offset..end, Edit::Unknown, Some(Resize::Perhaps(end)));
            }
            Call::Rights { ino, rights } => {
                let object = self.known(*ino);
                self.objects[object].rights.push((span, *rights));
                self.objects[object].newest.add(span.done, span.came);
            }
            Call::Fsync { ino, data } => {
                let object = self.known(*ino);
                self.promises.push((span, entry));
                self.fsync(object, *data, span);
            }
            Call::Failed { ino } => {
                self.change(*ino, span, 0..u64::MAX, Edit::Unknown, Some(Resize::Lost));
            }
            Call::Sync => {
                self.promises.push((span, entry));
                self.syncs.add(span.done, span.came);
            }
        }
    }

    /// Whether the last change of a name ran at the same time: the order of the two is not known. A
    /// name may be made again before the rename that took it away returns.
    fn overlaps(&self, slot: usize, span: Span) -> bool {
        self.slots[slot].versions.last().is_some_and(|last| !last.span.before(span.came))
    }

    fn rename(&mut self, span: Span, from: usize, to: usize, exchange: bool, whiteout: bool) {
        let (moved, replaced) = (self.value(from), self.value(to));
        if moved == replaced && matches!(moved, Value::Object(_)) {
            return; // Two names of one inode: nothing happens.
        }
        self.join(self.slots[from].dir, self.slots[to].dir);
        let object = |value| match value {
            Value::Object(object) => Some(object),
            _ => None,
        };
        let known = moved != Value::Nothing
            && ![from, to].into_iter().any(|slot| self.overlaps(slot, span));
        let moved = if known { moved } else { Value::Unknown };
        let left = match (exchange, whiteout) {
            _ if !known => Value::Unknown,
            (true, _) => replaced,
            (_, true) => Value::Unknown,
            _ => Value::Nothing,
        };
        let file = object(moved).is_some_and(|object| self.objects[object].node == Node::File);
        let replaces = !exchange && file && matches!(replaced, Value::Object(_));
        let other = if exchange { object(replaced) } else { object(moved) };
        self.name(from, span, left, other, false);
        self.name(to, span, moved, object(moved), replaces);
    }

    fn change(
        &mut self,
        ino: u64,
        span: Span,
        range: Range<u64>,
        edit: Edit,
        size: Option<Resize>,
    ) {
        let object = self.known(ino);
        let object = &mut self.objects[object];
        let old = object.size;
        object.size = match size {
            Some(Resize::To(size)) => size,
            Some(Resize::AtLeast(end)) => old.max(end),
            Some(Resize::Perhaps(_) | Resize::Lost) | None => old,
        };
        if object.size != old {
            object.newest.add(span.done, span.came);
            object.newest_data.add(span.done, span.came);
        }
        object.changes.push(Change { span, range, edit, size });
    }

    fn fsync(&mut self, object: usize, data: bool, span: Span) {
        let Span { came, done } = span;
        let own = &mut self.objects[object];
        own.data.add(done, came);
        if !data {
            own.all.add(done, came);
        }
        match self.rules {
            Rules::Posix => {}
            Rules::Ext4 => {
                if own.node == Node::Directory {
                    // Of a directory all is committed that there is.
                    return self.commits.add(done, came);
                }
                // What began beside the fsync may have come too late for it.
                let began = Moment::new(came - 1);
                let newest = if data { &own.newest_data } else { &own.newest };
                self.commits.add(done, newest.at(began));
                if !data {
                    self.objects[object].names.add(done, came);
                }
            }
            Rules::Xfs if data => {}
            Rules::Xfs => self.names_up(object, came, done),
        }
    }

    /// The names of an object that had been given before `came`, and the directories above them.
    fn names_up(&mut self, object: usize, came: usize, done: usize) {
        let mut above = vec![(object, came)];
        while let Some((object, came)) = above.pop() {
            let names = &mut self.objects[object].names;
            if names.0.last().is_some_and(|last| last.1 >= came) {
                continue;
            }
            names.add(done, came);
            let given = self.objects[object].named.iter().filter(|(span, _)| span.before(came));
            above.extend(given.map(|(span, slot)| (self.slots[*slot].dir, span.came)));
        }
    }

    /// Contents and sizes of an object that had been changed before the answer are covered.
    pub fn data_until(&self, object: usize, at: Moment) -> usize {
        self.objects[object].data.at(at).max(self.syncs.at(at))
    }

    /// As [`data_until`](History::data_until), for its rights, and the names in a directory.
    pub fn all_until(&self, object: usize, at: Moment) -> usize {
        self.objects[object].all.at(at).max(self.syncs.at(at)).max(self.commits.at(at))
    }

    /// Is a version of a name in a directory covered?
    pub fn covered(&self, dir: usize, version: &Naming, at: Moment) -> bool {
        let own = |subject: usize| version.span.before(self.objects[subject].names.at(at));
        version.span.before(self.all_until(dir, at)) || version.subject.is_some_and(own)
    }

    /// The newest path of an object, as far as it is known.
    pub fn path(&self, object: usize) -> String {
        self.path_at(object, usize::MAX)
    }

    /// The path of an object as it was when the log had `upto` entries; empty without a name.
    pub fn path_at(&self, object: usize, upto: usize) -> String {
        let mut path = String::new();
        let mut object = object;
        for _ in 0..self.objects.len() {
            let gives = |(span, slot): &&(Span, usize)| {
                let versions = &self.slots[*slot].versions;
                let gave = |version: &Naming| {
                    version.span == *span && version.value == Value::Object(object)
                };
                span.done <= upto && versions.iter().any(gave)
            };
            let Some((_, slot)) = self.objects[object].named.iter().rev().find(gives) else {
                break;
            };
            path = format!("/{}{path}", self.slots[*slot].name);
            object = self.slots[*slot].dir;
        }
        if path.is_empty() && object == 0 { "/".into() } else { path }
    }
}

/// The names of a directory but `.` and `..`, with their inode numbers.
pub(super) fn entries(
    cx: &mut Cx,
    fs: &dyn FileSystem,
    dir: Ino,
) -> Result<Vec<(Name, u64)>, base::Errno> {
    let mut names = Vec::new();
    fs.readdir(cx, dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push((Name(entry.name.to_vec()), entry.ino.0));
        }
        true
    })?;
    Ok(names)
}

pub(super) fn rights_of(attr: &vfs::Attr) -> Rights {
    Rights { mode: attr.mode, uid: attr.uid, gid: attr.gid }
}

fn node_of(cx: &mut Cx, fs: &dyn FileSystem, attr: &vfs::Attr) -> Result<Node, base::Errno> {
    Ok(match attr.kind {
        FileType::Regular => Node::File,
        FileType::Directory => Node::Directory,
        FileType::Symlink => Node::Symlink(Name(fs.readlink(cx, attr.ino)?)),
        _ => Node::Special,
    })
}

fn base_of(cx: &mut Cx, fs: &dyn FileSystem, attr: &vfs::Attr) -> Result<Base, base::Errno> {
    if attr.kind != FileType::Regular || attr.size > BASE_MAX {
        return Ok(Base::Unknown(attr.size));
    }
    let mut bytes = vec![0; attr.size as usize];
    let read = fs.read(cx, attr.ino, 0, &mut bytes)?;
    bytes.truncate(read);
    Ok(Base::Bytes(bytes))
}
