//! Sizes, bytes and rights of a recovered inode.

use std::ops::Range;

use base::Ino;
use rt::Cx;
use vfs::walk::next_data;
use vfs::{Attr, FileSystem};

use super::history::{Base, Change, Edit, Moment, Object, Resize, Span, rights_of};
use super::names::{Found, Life};
use super::{Oracle, Rules, broken};
use crate::calls::{Call, Node};
use crate::log::{LogError, Note, PIECE};
use crate::verdict::{Verdict, Wrong};

/// Bytes that are compared at once.
const PART: u64 = 64 << 10;

/// What changes of a file a state must have, and which it may have.
pub(super) struct Asked<'a> {
    pub object: usize,
    pub ino: Ino,
    pub path: &'a str,
    /// Changes that had returned before this are there.
    pub until: usize,
    /// By a call that promised it.
    pub promised: bool,
    pub at: Moment,
}

impl Oracle {
    /// Compares an inode that was found with what it may be.
    pub(super) fn inode(
        &self,
        cx: &mut Cx,
        fs: &dyn FileSystem,
        found: &Found,
        at: Moment,
    ) -> Result<(), Wrong> {
        let mut first = Ok(());
        for life in &found.lives {
            match self.life(cx, fs, found, *life, at) {
                Ok(()) => return Ok(()),
                wrong => first = first.and(wrong),
            }
        }
        first
    }

    fn life(
        &self,
        cx: &mut Cx,
        fs: &dyn FileSystem,
        Found { ino, path, .. }: &Found,
        Life { object, replaced }: Life,
        at: Moment,
    ) -> Result<(), Wrong> {
        let named = |errno| broken(format!("{path}: {errno}"));
        let attr = fs.getattr(cx, *ino).map_err(named)?;
        self.rights(object, &attr, path, at).map_err(broken)?;
        let own = &self.history.objects[object];
        match &own.node {
            Node::Symlink(target) if self.rules != Rules::Posix => {
                let found = fs.readlink(cx, *ino).map_err(named)?;
                if found != target.0 {
                    let found = String::from_utf8_lossy(&found);
                    return Err(broken(format!("{path} leads to {found}, not to {target}")));
                }
            }
            Node::File => {
                let until = self.history.data_until(object, at);
                let mut asked = Asked { object, ino: *ino, path, until, promised: true, at };
                if self.rules != Rules::Posix || until > 1 {
                    self.content(cx, fs, &attr, &asked).map_err(broken)?;
                }
                if let Some((came, done)) = replaced
                    && came > until
                {
                    (asked.until, asked.promised) = (came, false);
                    let kept = self.content(cx, fs, &attr, &asked);
                    kept.map_err(|message| {
                        self.not_synced(own, path, Span { came, done }, &message)
                    })?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A file that replaced another one lacks what was written to it before.
    ///
    /// A rename of ext4 writes out what waits for blocks, not what overwrites blocks.
    fn not_synced(&self, object: &Object, path: &str, renamed: Span, message: &str) -> Wrong {
        let less = ["noauto_da_alloc", "dioread_nolock"];
        let asked =
            self.log.header().mount_options.iter().all(|word| !less.contains(&word.as_str()));
        let by_rename = self.rules == Rules::Ext4
            && asked
            && object.made.done > 0
            && !overwritten(&object.changes, renamed.came);
        let rename = self.call(renamed.done - 1);
        match by_rename {
            true => broken(format!("{message}; it replaced another file by {rename}")),
            false => {
                let message = format!(
                    "{path} replaced another file by {rename}, and its content was not synced \
                     before: {message}; an fsync of it before the rename is missing"
                );
                (Verdict::Unsynced, message)
            }
        }
    }

    fn rights(&self, object: usize, attr: &Attr, path: &str, at: Moment) -> Result<(), String> {
        let own = &self.history.objects[object];
        let until = self.history.all_until(object, at);
        let covered = own.rights.iter().filter(|(span, _)| span.before(until));
        let newest = covered.map(|(span, _)| span.came).max().unwrap_or(0);
        let mut allowed =
            own.rights.iter().filter(|(span, _)| at.begun(*span) && !span.before(newest));
        let found = rights_of(attr);
        match allowed.any(|(_, rights)| rights.is_none_or(|rights| rights == found)) {
            true => Ok(()),
            false => Err(format!(
                "{path} has mode {:o}, owner {}, group {}, which nobody gave it or which was \
                 changed before it was synced",
                found.mode, found.uid, found.gid
            )),
        }
    }

    /// Compares size and bytes of a file.
    pub(super) fn content(
        &self,
        cx: &mut Cx,
        fs: &dyn FileSystem,
        attr: &Attr,
        asked: &Asked,
    ) -> Result<(), String> {
        let own = &self.history.objects[asked.object];
        let sizes = sizes(own, asked);
        if !sizes.contains(&attr.size) {
            let Range { start, end } = sizes;
            let allowed =
                if start + 1 == end { format!("{start}") } else { format!("{start}..{end}") };
            return Err(format!("{} has {} bytes, not {allowed}", asked.path, attr.size));
        }
        let mut changes: Vec<&Change> = own
            .changes
            .iter()
            .filter(|change| asked.at.begun(change.span) && change.range.start < attr.size)
            .filter(|change| !change.range.is_empty())
            .collect();
        changes.sort_by_key(|change| change.range.start);
        let mut edges: Vec<u64> = changes
            .iter()
            .flat_map(|change| [change.range.start, change.range.end.min(attr.size)])
            .chain([0, attr.size])
            .collect();
        edges.sort_unstable();
        edges.dedup();
        let mut waiting = changes.into_iter().peekable();
        let mut active: Vec<&Change> = Vec::new();
        for edge in edges.windows(2) {
            let part = edge[0]..edge[1];
            active.retain(|change| change.range.end > part.start);
            while let Some(change) = waiting.next_if(|change| change.range.start <= part.start) {
                active.push(change);
            }
            self.part(cx, fs, part, &active, asked)?;
        }
        Ok(())
    }

    /// Compares a part of a file that all these changes touch whole.
    fn part(
        &self,
        cx: &mut Cx,
        fs: &dyn FileSystem,
        part: Range<u64>,
        changes: &[&Change],
        asked: &Asked,
    ) -> Result<(), String> {
        let covered = changes.iter().filter(|change| change.span.before(asked.until));
        let newest = covered.map(|change| change.span.came).max().unwrap_or(0);
        let allowed: Vec<&Change> =
            changes.iter().copied().filter(|change| !change.span.before(newest)).collect();
        let own = &self.history.objects[asked.object];
        let base = (newest == 0).then_some(&own.base);
        let unknown = |change: &&Change| matches!(change.edit, Edit::Unknown);
        if allowed.iter().any(unknown) || matches!(base, Some(Base::Unknown(_))) {
            return Ok(());
        }
        // Zeroes are right there: then all holes are.
        let zero = |change: &&Change| !matches!(change.edit, Edit::Write(_));
        let ended =
            |base: &Base| matches!(base, Base::Bytes(all) if all.len() as u64 <= part.start);
        let zeroes = allowed.iter().any(zero) || base.is_some_and(ended);
        let mut at = part.start;
        while at < part.end {
            if zeroes {
                let data = next_data(cx, fs, asked.ino, at);
                let data = data.map_err(|errno| format!("{}: {errno}", asked.path))?;
                let Some(data) = data.filter(|data| data.start < part.end) else { break };
                at = at.max(data.start - (data.start - at) % PART);
            }
            let step = at..part.end.min(at + PART);
            let mut found = vec![0; (step.end - step.start) as usize];
            let read = fs.read(cx, asked.ino, at, &mut found);
            let read = read.map_err(|errno| format!("{}: {errno}", asked.path))?;
            if read < found.len() {
                return Err(format!("{}: only {read} bytes at {at}", asked.path));
            }
            let of = |change: &&Change| self.bytes(change, &step);
            let versions: Result<Vec<Vec<u8>>, LogError> = allowed
                .iter()
                .map(of)
                .chain(base.map(|base| Ok(base_bytes(base, &step))))
                .collect();
            let versions = versions.map_err(|error| error.to_string())?;
            if !versions.contains(&found) {
                let right = |byte: &usize| versions.iter().any(|v| v[*byte] == found[*byte]);
                if let Some(byte) = (0..found.len()).find(|byte| !right(byte)) {
                    return Err(self.wrong_byte(asked, at + byte as u64, found[byte], &allowed));
                }
            }
            at = step.end;
        }
        Ok(())
    }

    fn wrong_byte(&self, asked: &Asked, byte: u64, found: u8, allowed: &[&Change]) -> String {
        let Asked { path, until, promised, at, object, .. } = asked;
        let newest = allowed.iter().rfind(|change| change.span.before(*until));
        let why = match newest {
            Some(change) if !promised => format!("{} is not there", self.call_at(change.span)),
            Some(change) => {
                let by = self.promise_of(change.span, &[Some(*object)], *at);
                format!("{} is kept by {by}", self.call_at(change.span))
            }
            None => "nobody wrote that there".to_owned(),
        };
        format!("{path}: byte {byte} is {found:#04x}: {why}")
    }

    /// What a change left in a part that it touches whole.
    fn bytes(&self, change: &Change, part: &Range<u64>) -> Result<Vec<u8>, LogError> {
        let mut bytes = vec![0; (part.end - part.start) as usize];
        let Edit::Write(entry) = change.edit else { return Ok(bytes) };
        let Some(Note::Call(Call::Write { offset, .. })) = self.log.note(entry) else {
            return Ok(bytes);
        };
        let page = PIECE as u64;
        let pieces = self.log.written(entry);
        let mut at = part.start;
        while at < part.end {
            let piece = pieces[(at / page - offset / page) as usize];
            let content = self.log.page(piece)?;
            let end = part.end.min((at / page + 1) * page);
            let from = (at % page) as usize;
            let len = (end - at) as usize;
            let to = (at - part.start) as usize;
            bytes[to..to + len].copy_from_slice(&content[from..from + len]);
            at = end;
        }
        Ok(bytes)
    }
}

/// Had a block been written to that may have been on the disk already, before a call that began
/// behind `came` entries?
fn overwritten(changes: &[Change], came: usize) -> bool {
    let page = PIECE as u64;
    let mut blocks: Vec<Range<u64>> = Vec::new();
    for change in changes.iter().filter(|change| change.span.came <= came) {
        let Range { start, end } = change.range;
        if matches!(change.size, Some(Resize::To(_))) {
            blocks.iter_mut().for_each(|kept| kept.end = kept.end.min(start.div_ceil(page)));
            continue;
        }
        let range = start / page..end.div_ceil(page);
        let again = |kept: &Range<u64>| kept.start < range.end && range.start < kept.end;
        if matches!(change.edit, Edit::Unknown) || blocks.iter().any(again) {
            return true;
        }
        blocks.push(range);
    }
    false
}

fn base_bytes(base: &Base, part: &Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; (part.end - part.start) as usize];
    if let Base::Bytes(known) = base
        && let Some(known) = known.get(part.start as usize..)
    {
        let len = known.len().min(bytes.len());
        bytes[..len].copy_from_slice(&known[..len]);
    }
    bytes
}

/// The sizes that a file may have.
fn sizes(object: &Object, asked: &Asked) -> Range<u64> {
    let (mut least, mut most) = match &object.base {
        Base::Bytes(bytes) => (bytes.len() as u64, bytes.len() as u64),
        Base::Unknown(u64::MAX) => (0, u64::MAX - 1),
        Base::Unknown(size) => (*size, *size),
    };
    for change in object.changes.iter().filter(|change| asked.at.begun(change.span)) {
        let covered = change.span.before(asked.until);
        match change.size {
            Some(Resize::To(size)) if covered => (least, most) = (size, size),
            Some(Resize::To(size)) => (least, most) = (least.min(size), most.max(size)),
            Some(Resize::AtLeast(end)) => {
                least = if covered { least.max(end) } else { least };
                most = most.max(end);
            }
            Some(Resize::Lost) => least = 0,
            Some(Resize::Perhaps(end)) => most = most.max(end.min(u64::MAX - 1)),
            None => {}
        }
    }
    least..most + 1
}
