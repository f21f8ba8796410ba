//! Directories: what their blocks hold, and what of it can be kept.

use std::collections::BTreeMap;

use ::block::DeviceError;
use base::map::HashSet;
use ext4::Policies;
use ext4::Rule;
use ext4::format::casefold;
use ext4::format::checksum::DIR_TAIL_SIZE;
use ext4::format::dir::{self, DirLayout};
use ext4::format::hash::NameHash;
use ext4::format::super_block::ROOT_INO;
use ext4::format::{FileKind, InodeFlags, InodeValues, htree};

use super::Fs;
use super::connect::Tree;
use super::inodes::Inode;
use crate::restore;
use ext4::format::extent::FileRun;

mod block;

use block::Parsed;

/// Names that only a damaged or an old place holds; more are not kept.
const WEAK_MAX: usize = 1 << 20;
/// The rules whose violation means that a directory is written anew.
const REBUILD: &[Rule] = &[
    Rule::HtreeRoot,
    Rule::HtreeNode,
    Rule::HtreeChecksum,
    Rule::HtreeOrder,
    Rule::HtreeBlocks,
    Rule::HtreeHash,
    Rule::DirTail,
    Rule::DirEntryLength,
    Rule::DirEntryType,
    Rule::DirHole,
];

/// What is done about names that cannot stay.
pub const REWRITE: &str = "write the directory anew with the names that are sound";

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name {
    /// The bytes.
    pub name: Vec<u8>,
    /// The inode that it names.
    pub ino: u32,
    /// The type that the entry has; 0 where it has none.
    pub file_type: u8,
    /// The hashes that stand beside it, in a directory that has them.
    pub hash: NameHash,
    /// What lies behind it, as [`dir::behind`] says.
    pub behind: Vec<u8>,
}

impl Name {
    /// A name with nothing beside it.
    pub fn new(name: Vec<u8>, ino: u32, file_type: u8) -> Name {
        Name { name, ino, file_type, hash: NameHash::default(), behind: Vec::new() }
    }
}

/// A problem of a directory: rule, what is wrong, what is lost.
pub type Problem = (Rule, String, Option<String>);

/// What a directory holds.
#[derive(Default)]
pub struct Content {
    /// The names that are kept, without `.` and `..`.
    pub names: Vec<Name>,
    /// What `..` names, 0 where there is none.
    pub dotdot: u32,
    /// What lies behind `.` and `..`.
    pub behind_dots: [Vec<u8>; 2],
    /// What is wrong; it is written anew then.
    pub problems: Vec<Problem>,
}

/// One problem for each rule, which says all that is wrong and all that is lost by what is done
/// about it: that is decided once.
pub fn by_rule(problems: &[Problem]) -> Vec<Problem> {
    let mut joined: Vec<(Rule, Vec<&str>, Vec<&str>)> = Vec::new();
    for (rule, detail, loss) in problems {
        let known = joined.iter().position(|(other, ..)| other == rule);
        let index = known.unwrap_or_else(|| {
            joined.push((*rule, Vec::new(), Vec::new()));
            joined.len() - 1
        });
        let (_, details, losses) = &mut joined[index];
        details.push(detail);
        let fresh = loss.as_deref().filter(|loss| losses.last() != Some(loss));
        losses.extend(fresh);
    }
    let join = |(rule, details, losses): (Rule, Vec<&str>, Vec<&str>)| {
        let loss = (!losses.is_empty()).then(|| losses.join(", "));
        (rule, details.join("; "), loss)
    };
    joined.into_iter().map(join).collect()
}

/// What may be done with an entry.
enum Verdict {
    Keep(u8),
    Drop(Problem),
    Wait,
}

impl Fs<'_> {
    /// Reads all directories, counts the names, and lists the directories to write anew.
    ///
    /// # Errors
    /// The device's.
    pub fn directories(&mut self) -> Result<(), DeviceError> {
        self.tree = Tree::default();
        self.first_blocks_go_back()?;
        let all = self.inodes.iter().filter(|(_, inode)| inode.kind == FileKind::Directory);
        let all: Vec<u32> = all.map(|(&ino, _)| ino).collect();
        self.view.meter.begin("reading directories", all.len() as u64);
        for ino in all {
            self.view.meter.add(1);
            let content = self.content(ino, true)?;
            let mut wanted = false;
            for (rule, detail, loss) in by_rule(&content.problems) {
                wanted |= match loss {
                    None => self.safe(rule, Self::at(ino), detail, REWRITE),
                    Some(loss) => self.lossy(rule, Self::at(ino), detail, REWRITE, loss),
                };
            }
            for name in &content.names {
                self.count_name(ino, name);
            }
            self.tree.dotdot.insert(ino, content.dotdot);
            if content.behind_dots.iter().any(|behind| !behind.is_empty()) {
                self.tree.behind_dots.insert(ino, content.behind_dots);
            }
            if wanted {
                self.rebuilt.insert(ino, content.names);
            }
        }
        Ok(())
    }

    /// Two directories whose first blocks name each other by `.` have each other's block.
    fn first_blocks_go_back(&mut self) -> Result<(), DeviceError> {
        let mut dots: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
        let is_dir = |(_, inode): &(&u32, &Inode)| {
            let inline = inode.flags.contains(InodeFlags::INLINE_DATA);
            inode.kind == FileKind::Directory && !inline
        };
        let first = |(&ino, inode): (&u32, &Inode)| {
            let run = inode.map.runs.first().filter(|run| run.logical == 0)?;
            Some((ino, run.start))
        };
        let all: Vec<(u32, u64)> = self.inodes.iter().filter(is_dir).filter_map(first).collect();
        for (ino, block) in all {
            let content = self.view.read(block)?;
            if content[6] == 1 && content[8] == b'.' {
                let dot = u32::from_le_bytes(content[..4].try_into().expect("four bytes"));
                dots.insert(ino, (block, dot));
            }
        }
        for (&ino, &(block, dot)) in &dots {
            let Some(&(other, back)) = dots.get(&dot).filter(|_| ino < dot) else { continue };
            if back != ino {
                continue;
            }
            let detail = format!("its first block and that of inode {dot} were swapped");
            if self.safe(Rule::DirDot, Self::at(ino), detail, "put them back") {
                let [first, second] = [self.view.read(block)?, self.view.read(other)?];
                self.view.write(block, &second);
                self.view.write(other, &first);
            }
        }
        Ok(())
    }

    fn count_name(&mut self, dir: u32, name: &Name) {
        if dir == ROOT_INO && name.name == b"lost+found" {
            self.tree.lost_found = name.ino;
        }
        let Some(inode) = self.inodes.get_mut(&name.ino) else { return };
        inode.names += 1;
        if inode.kind == FileKind::Directory {
            self.tree.parents.entry(name.ino).or_default().push(dir);
        }
    }

    /// The names of a directory that is written anew.
    ///
    /// # Errors
    /// The device's.
    pub fn names_of(&mut self, dir: u32) -> Result<&mut Vec<Name>, DeviceError> {
        if !self.rebuilt.contains_key(&dir) {
            let content = self.content(dir, false)?;
            self.rebuilt.insert(dir, content.names);
        }
        Ok(self.rebuilt.get_mut(&dir).expect("just inserted"))
    }

    /// What a directory holds, with what is wrong with it. `first` says that weak names are taken
    /// note of.
    fn content(&mut self, ino: u32, first: bool) -> Result<Content, DeviceError> {
        let inode = self.inodes[&ino].clone();
        let mut content = Content::default();
        let mut seen: HashSet<Vec<u8>> = HashSet::default();
        if inode.flags.contains(InodeFlags::INLINE_DATA) {
            self.inline_content(ino, &mut content, &mut seen, first)?;
        }
        let mut logical = 0;
        for run in &inode.map.runs {
            if run.logical != logical && logical != u64::MAX {
                let detail = format!("a hole at block {logical}");
                content.problems.push((Rule::DirHole, detail, None));
            }
            logical = run.logical + run.len;
            for index in 0..run.len {
                let (logical, start) = (run.logical + index, run.start + index);
                let place = FileRun { logical, start, len: 1, unwritten: run.unwritten };
                let parsed = self.dir_block(ino, &inode, place, &mut content.problems)?;
                self.take_names(ino, parsed, &mut content, &mut seen, first)?;
            }
        }
        let inline = inode.flags.contains(InodeFlags::INLINE_DATA);
        if content.dotdot == 0 || inode.map.runs.is_empty() && !inline {
            content.problems.push((Rule::DirDotdot, "no `.` and `..`".into(), None));
        }
        if let Some(rules) = self.suspects.inodes.get(&ino) {
            for &rule in rules.iter().filter(|rule| REBUILD.contains(rule)) {
                let known = content.problems.iter().any(|(other, ..)| *other == rule);
                if !known {
                    let detail = format!("the check reports {rule}");
                    content.problems.push((rule, detail, None));
                }
            }
        }
        Ok(content)
    }

    fn take_names(
        &mut self,
        dir: u32,
        parsed: Parsed,
        content: &mut Content,
        seen: &mut HashSet<Vec<u8>>,
        first: bool,
    ) -> Result<(), DeviceError> {
        if let Some(dotdot) = parsed.dotdot {
            content.dotdot = dotdot;
            content.behind_dots = parsed.behind_dots;
        }
        if first && self.tree.weak.len() < WEAK_MAX {
            self.tree.weak.extend(parsed.weak.into_iter().map(|name| (dir, name)));
        }
        for mut name in parsed.names {
            match self.verdict(dir, &name)? {
                Verdict::Wait => self.again = true,
                Verdict::Drop(problem) => {
                    content.problems.push(problem);
                    continue;
                }
                Verdict::Keep(kind) => {
                    let stored = self.g.dir_layout().stored_type(kind);
                    if name.file_type != stored {
                        let text = String::from_utf8_lossy(&name.name).into_owned();
                        let detail = format!("{text:?} has type {}", name.file_type);
                        content.problems.push((Rule::DirEntryType, detail, None));
                        name.file_type = stored;
                    }
                }
            }
            if self.own_name(dir, &mut name, content, seen) {
                content.names.push(name);
            }
        }
        Ok(())
    }

    /// Makes a name one that its directory can have, beside those that it has; false where it is
    /// left out.
    fn own_name(
        &self,
        dir: u32,
        name: &mut Name,
        content: &mut Content,
        seen: &mut HashSet<Vec<u8>>,
    ) -> bool {
        let flags = self.inodes[&dir].flags;
        let text = |name: &Name| String::from_utf8_lossy(&name.name).into_owned();
        let plain = !self.g.dir_names(flags).is_encrypted();
        let strict = self.g.encoding.is_some_and(|encoding| encoding.strict);
        if plain && strict && self.g.ignores_case(flags) && !casefold::is_valid(&name.name) {
            let loss = Some("a part of the name".to_string());
            content.problems.push((
                Rule::DirNameEncoding,
                format!("{:?} is no UTF-8", text(name)),
                loss,
            ));
            name.name = text(name).replace(char::REPLACEMENT_CHARACTER, "_").into_bytes();
        }
        if seen.insert(self.folded(dir, &name.name)) {
            return true;
        }
        let same = content.names.iter().any(|n| n.name == name.name && n.ino == name.ino);
        let loss = (!plain && !same).then(|| "an encrypted name".to_string());
        content.problems.push((Rule::DirDuplicate, format!("{:?} twice", text(name)), loss));
        // Another name cannot be encrypted: its inode goes to lost+found.
        if same || !plain {
            return false;
        }
        name.name = self.unique(dir, &name.name, seen);
        seen.insert(self.folded(dir, &name.name));
        true
    }

    /// What two names of a directory must not have in common.
    pub fn folded(&self, dir: u32, name: &[u8]) -> Vec<u8> {
        let flags = self.inodes[&dir].flags;
        let folds = self.g.ignores_case(flags) && !self.g.dir_names(flags).is_encrypted();
        let folded = if folds { casefold::fold(name) } else { None };
        folded.unwrap_or_else(|| name.to_vec())
    }

    /// A name that is not taken yet in a directory, of whose names the folded forms are given.
    pub fn unique(&self, dir: u32, name: &[u8], taken: &HashSet<Vec<u8>>) -> Vec<u8> {
        for number in 1u32.. {
            let mark = format!("~{number}");
            let most = name.len().min(255 - mark.len());
            // A character stays whole, for directories that take no others.
            let whole = |&keep: &usize| std::str::from_utf8(&name[..keep]).is_ok();
            let keep = (most.saturating_sub(3)..=most).rev().find(whole).unwrap_or(most);
            let fresh = [&name[..keep], mark.as_bytes()].concat();
            if !taken.contains(&self.folded(dir, &fresh)) {
                return fresh;
            }
        }
        unreachable!("a directory has fewer names than numbers")
    }

    /// How the blocks of a directory look.
    pub fn layout_of(&self, flags: InodeFlags) -> DirLayout {
        DirLayout { names: self.g.dir_names(flags), ..self.g.dir_layout() }
    }

    /// The names of a directory in its inode.
    fn inline_content(
        &mut self,
        ino: u32,
        content: &mut Content,
        seen: &mut HashSet<Vec<u8>>,
        first: bool,
    ) -> Result<(), DeviceError> {
        let bytes = self.inline_bytes(ino)?;
        content.dotdot = dir::inline_parent(&bytes);
        let filetype = self.g.dir_layout().filetype;
        for index in 0..dir::INLINE_RUNS {
            let (run, layout) = dir::inline_run(&bytes, index, filetype);
            let bounds =
                block::Bounds { ino, first: false, inner: false, inodes: self.g.inodes_count };
            let parsed = block::parse(run, layout, bounds, &mut content.problems);
            self.take_names(ino, parsed, content, seen, first)?;
        }
        Ok(())
    }

    /// May an entry stay?
    fn verdict(&mut self, dir: u32, name: &Name) -> Result<Verdict, DeviceError> {
        let text = || String::from_utf8_lossy(&name.name).into_owned();
        let drop = |rule: Rule, why: &str, loss: Option<String>| {
            Verdict::Drop((rule, format!("{:?} names inode {}, {why}", text(), name.ino), loss))
        };
        if name.name == b"." || name.name == b".." {
            return Ok(drop(Rule::DirDuplicate, "but stands behind the first two", None));
        }
        let lost = || Some(format!("the name {:?}", text()));
        if name.ino == ROOT_INO || self.is_system(name.ino) || name.ino > self.g.inodes_count {
            return Ok(drop(Rule::DirEntryInode, "which may have no name", lost()));
        }
        let policy = self.inodes[&dir].policy;
        let known =
            self.inodes.get(&name.ino).map(|inode| (inode.nameless, inode.kind, inode.policy));
        match known {
            Some((true, ..)) => Ok(drop(Rule::DirEntryInode, "which may have no name", lost())),
            Some((_, kind, own)) if !Policies::agree(policy, own, Some(kind)) => Ok(drop(
                Rule::EncryptionPolicy,
                "which is not encrypted as the directory is",
                lost(),
            )),
            Some((false, kind, _)) => Ok(Verdict::Keep(kind.dir_type())),
            None if self.may_exist(name.ino)? => Ok(Verdict::Wait),
            None => Ok(drop(Rule::DirEntryUnused, "which is not in use", lost())),
        }
    }

    /// A named inode that no pass has seen: does its slot hold one? Then the next round reads it.
    ///
    /// # Errors
    /// The device's.
    pub fn may_exist(&mut self, ino: u32) -> Result<bool, DeviceError> {
        let slot = self.slot(ino)?;
        let values = InodeValues::read(&slot, &self.g);
        let (group, _) = self.g.inode_group(base::Ino(ino.into())).expect("in range");
        if values.kind().is_none() || values.dtime != 0 {
            return Ok(false);
        }
        let fresh = match values.links {
            0 => self.held.insert(ino) | self.whole.insert(group),
            _ => self.whole.insert(group),
        };
        Ok(fresh)
    }

    /// The names in the journal's newest sound copy of a directory block.
    fn old_names_in(
        &mut self,
        ino: u32,
        inode: &super::Inode,
        place: FileRun,
    ) -> Result<Vec<Name>, DeviceError> {
        let (layout, seed) = (self.layout_of(inode.flags), self.seed(ino, inode.generation));
        let inodes = self.g.inodes_count;
        let sound = |data: &[u8]| {
            let summed = !layout.checksum || dir::verify_checksum(seed, data).is_ok();
            summed && dir::check(data, layout, inodes).is_ok()
        };
        let copy = self.old_copy(place.start, sound)?;
        let bounds = block::Bounds { ino, first: place.logical == 0, inner: true, inodes };
        let parsed = copy.map(|(data, _)| block::parse(&data, layout, bounds, &mut Vec::new()));
        Ok(parsed.unwrap_or_default().names)
    }

    /// All names that a directory's block holds or held, the newest first.
    ///
    /// # Errors
    /// The device's.
    pub fn names_ever(
        &mut self,
        dir: u32,
        place: FileRun,
        index: bool,
    ) -> Result<Vec<Name>, DeviceError> {
        let flags = self.inodes.get(&dir).map(|inode| inode.flags).unwrap_or_default();
        let layout = DirLayout { checksum: false, ..self.layout_of(flags) };
        let inodes = self.g.inodes_count;
        let mut names = Vec::new();
        for (data, _) in self.versions(place.start)? {
            let first = place.logical == 0;
            let inner = index && (first || htree::is_node(&data));
            let bounds = block::Bounds { ino: dir, first, inner, inodes };
            let parsed = block::parse(&data, layout, bounds, &mut Vec::new());
            names.extend(parsed.names);
            names.extend(parsed.weak);
        }
        Ok(names)
    }

    /// Reads one block: put right by its checksum, taken apart.
    fn dir_block(
        &mut self,
        ino: u32,
        inode: &super::Inode,
        place: FileRun,
        problems: &mut Vec<Problem>,
    ) -> Result<Parsed, DeviceError> {
        let FileRun { logical, start: block, .. } = place;
        let known = problems.len();
        let mut data = self.view.read(block)?;
        let layout = self.layout_of(inode.flags);
        let index = inode.flags.contains(InodeFlags::INDEX);
        let inner = index && (logical == 0 || htree::is_node(&data));
        let mut whole = layout;
        if inner {
            // A root or node has no tail; what is wrong with it, the check says.
            whole.checksum = false;
        } else if layout.checksum {
            let seed = self.seed(ino, inode.generation);
            let len = data.len();
            let sum = |data: &[u8]| base::crc::crc32c(seed.0, &data[..len - DIR_TAIL_SIZE]);
            let word = |data: &[u8]| data[len - 4..].try_into().expect("four bytes");
            let stored = |data: &[u8]| u32::from_le_bytes(word(data));
            let at = format!("inode {ino}, block {block}");
            if !dir::has_tail(&data) {
                problems.push((Rule::DirTail, format!("{at}: no checksum tail"), None));
            } else if sum(&data) != stored(&data) {
                let act = "put that byte right by the checksum";
                let detail = "one byte does not fit its checksum";
                match restore::one_byte(&data, sum, stored).filter(|fixed| dir::has_tail(fixed)) {
                    Some(fixed) if self.safe(Rule::DirChecksum, &at, detail, act) => {
                        self.view.write(block, &fixed);
                        data = fixed;
                    }
                    _ => {
                        let loss = Some("names in it may be wrong".to_string());
                        let detail = format!("{at}: its checksum does not fit");
                        problems.push((Rule::DirChecksum, detail, loss));
                    }
                }
            }
        }
        let bounds = block::Bounds { ino, first: logical == 0, inner, inodes: self.g.inodes_count };
        let before = problems.len();
        let mut parsed = block::parse(&data, whole, bounds, problems);
        if problems.len() > before || known < before {
            parsed.weak.extend(self.old_names_in(ino, inode, place)?);
        }
        Ok(parsed)
    }
}
