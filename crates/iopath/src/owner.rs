//! Owners by number or by name: an image's names are those of its own `/etc/passwd`.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use vfs::FileType;

use crate::app::App;
use crate::session::Session;
use crate::text;

/// Longest list of names that is read, bytes.
const LIST_MAX: u64 = 16 << 20;

/// The users and groups of an image, by number.
#[derive(Default)]
pub struct Names {
    users: BTreeMap<u32, String>,
    groups: BTreeMap<u32, String>,
}

impl Names {
    /// Those of an image; empty where it has no such files.
    pub fn of(app: &mut App, session: &Session) -> Names {
        let by_number = |list: Vec<u8>| {
            let pairs = entries(&list).map(|(name, id)| (id, text::printable(name)));
            // The first of several names counts.
            pairs.collect::<Vec<_>>().into_iter().rev().collect()
        };
        Names {
            users: by_number(list(app, Some(session), "/etc/passwd")),
            groups: by_number(list(app, Some(session), "/etc/group")),
        }
    }

    /// The name of a user, or the number.
    pub fn user(&self, id: u32) -> String {
        self.users.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }

    /// The name of a group, or the number.
    pub fn group(&self, id: u32) -> String {
        self.groups.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }
}

/// An owner, a group, or both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
}

/// Names and numbers of a list like `/etc/passwd` and `/etc/group`.
fn entries(list: &[u8]) -> impl Iterator<Item = (&[u8], u32)> {
    list.split(|&b| b == b'\n').filter_map(|line| {
        let mut fields = line.split(|&b| b == b':');
        let (name, _password, id) = (fields.next()?, fields.next()?, fields.next()?);
        let id = std::str::from_utf8(id).ok()?.parse().ok()?;
        (!name.is_empty()).then_some((name, id))
    })
}

/// The text of a list: of an image, or of the host. Empty where there is none.
fn list(app: &mut App, session: Option<&Session>, path: &str) -> Vec<u8> {
    let Some(session) = session else { return std::fs::read(path).unwrap_or_default() };
    let Ok(attr) = session.names.stat(app.cx, path.as_bytes()) else { return Vec::new() };
    if attr.kind != FileType::Regular || attr.size > LIST_MAX {
        return Vec::new();
    }
    let mut list = vec![0; attr.size as usize];
    let mut done = 0;
    while done < list.len() {
        match session.fs.read(app.cx, attr.ino, done as u64, &mut list[done..]) {
            Ok(0) | Err(_) => break,
            Ok(count) => done += count,
        }
    }
    list.truncate(done);
    list
}

/// Reads `USER`, `USER:GROUP`, `USER:` (the user's own group) or `:GROUP`, by number or by the
/// names of an image; of the host where there is none.
///
/// # Errors
/// There is no such name, or nothing is named.
pub fn parse(app: &mut App, session: Option<&Session>, owner: &str) -> Result<Owner> {
    let whose = session.map_or("the host".to_string(), |session| session.target.to_string());
    let (user, group) = match owner.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (owner, None),
    };
    let mut id = |text: &str, path: &str| -> Result<Option<u32>> {
        let number = text.strip_prefix('+').unwrap_or(text);
        match (text.is_empty(), number.parse()) {
            (true, _) => Ok(None),
            (_, Ok(id)) => Ok(Some(id)),
            _ => {
                let list = list(app, session, path);
                let found = entries(&list).find(|(name, _)| *name == text.as_bytes());
                match found {
                    Some((_, id)) => Ok(Some(id)),
                    None => bail!("`{text}` is no number, and not in {path} of {whose}"),
                }
            }
        }
    };
    let uid = id(user, "/etc/passwd")?;
    let gid = match (group, uid) {
        (Some(""), Some(uid)) => own_group(&list(app, session, "/etc/passwd"), uid),
        (Some(group), _) => id(group, "/etc/group")?,
        (None, _) => None,
    };
    if uid.is_none() && gid.is_none() {
        bail!("`{owner}` names neither owner nor group");
    }
    Ok(Owner { uid, gid })
}

/// The group of a user's line in `/etc/passwd`.
fn own_group(list: &[u8], uid: u32) -> Option<u32> {
    let line = list.split(|&b| b == b'\n').find(|line| {
        let id = line.split(|&b| b == b':').nth(2);
        id.is_some_and(|id| id == uid.to_string().as_bytes())
    })?;
    std::str::from_utf8(line.split(|&b| b == b':').nth(3)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_by_line() {
        let list = b"root:x:0:0:root:/root:/bin/sh\n\nbad\n:x:7:\nme:x:1000:1001::/:\nbig:x:9z:";
        let found: Vec<_> = entries(list).collect();
        assert_eq!(found, [(&b"root"[..], 0), (b"me", 1000)]);
        assert_eq!((own_group(list, 1000), own_group(list, 5)), (Some(1001), None));
    }
}
