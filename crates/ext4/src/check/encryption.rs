//! Encrypted inodes: their contexts, and that a directory tree has one policy.

use base::Ino;
use fscrypt::{Context, Error, Policy};

use super::Checker;
use super::rule::Rule;
use crate::format::features::Incompat;
use crate::format::{At, FileKind, InodeFlags, InodeValues};

/// The policies seen so far. An inode notes the number of its own; that of an inode that is not
/// encrypted is the default.
#[derive(Default, Debug)]
pub struct Policies(Vec<Policy>);

/// Not encrypted.
const NONE: u16 = 0;
/// Encrypted, by a policy that is not known: nothing follows from it.
const UNKNOWN: u16 = u16::MAX;

impl Policies {
    /// The number of an encrypted inode's policy, by its context; and what is wrong with that.
    pub fn of(&mut self, context: Option<&[u8]>) -> (u16, Option<String>) {
        match context.map(Context::parse) {
            Some(Ok(context)) => (self.number(context.policy), None),
            None => (UNKNOWN, Some("encrypted, without a context".into())),
            Some(Err(error @ (Error::ContextSize(_) | Error::Version(_)))) => {
                (UNKNOWN, Some(error.to_string()))
            }
            // Ciphers and flags that are not known may be those of a later time.
            Some(Err(_)) => (UNKNOWN, None),
        }
    }

    /// May a directory of policy `dir` name an inode of this policy and kind?
    pub fn agree(dir: u16, policy: u16, kind: Option<FileKind>) -> bool {
        let kinds = [FileKind::Regular, FileKind::Directory, FileKind::Symlink];
        let special = !kind.is_some_and(|kind| kinds.contains(&kind));
        dir == NONE || special || dir == policy || dir == UNKNOWN || policy == UNKNOWN
    }

    /// The number here of a policy that has another one there.
    pub(super) fn renumber(&mut self, there: &Policies, number: u16) -> u16 {
        match number {
            NONE | UNKNOWN => number,
            _ => self.number(there.0[usize::from(number) - 1]),
        }
    }

    fn number(&mut self, policy: Policy) -> u16 {
        let known = self.0.iter().position(|known| *known == policy);
        let index = known.unwrap_or_else(|| {
            self.0.push(policy);
            self.0.len() - 1
        });
        // More policies than an inode has numbers for are not compared.
        u16::try_from(index + 1).unwrap_or(UNKNOWN)
    }
}

impl Checker<'_> {
    /// Checks the context of an inode whose attributes were walked over.
    pub fn encryption(&mut self, ino: u32, values: &InodeValues) {
        let context = self.context.take();
        if !values.flags.contains(InodeFlags::ENCRYPT) {
            return;
        }
        let (policy, wrong) = self.policies.of(context.as_deref());
        self.inodes.set_policy(ino, policy);
        let known = self.g.features.incompat.contains(Incompat::ENCRYPT);
        let wrong = if known { wrong } else { Some("encrypted, without the feature".into()) };
        if let Some(detail) = wrong {
            self.findings.add(Rule::EncryptionContext, At::Inode(Ino(ino.into())), detail);
        }
    }

    /// Whether directory `dir` is encrypted.
    pub fn is_encrypted(&self, dir: u32) -> bool {
        self.pass.known.policy(dir) != NONE
    }

    /// Checks that what an encrypted directory names has its policy.
    pub fn entry_policy(&mut self, dir: u32, ino: u32, at: At) {
        let known = &self.pass.known;
        let (policy, theirs, kind) = (known.policy(dir), known.policy(ino), known.get(ino).kind);
        if !Policies::agree(policy, theirs, kind) {
            let how = if theirs == NONE { "not" } else { "otherwise" };
            let detail = format!("inode {ino} is {how} encrypted, its directory {dir} is");
            self.findings.add(Rule::EncryptionPolicy, at, detail);
        }
    }
}
