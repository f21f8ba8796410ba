//! ONC RPC version 2 (RFC 5531): calls, replies, credentials, and records on a stream.

use crate::xdr::{Reader, Writer, XdrError};
use rt::Cred;
use thiserror::Error;

/// Program number of the portmapper.
pub const PORTMAP: u32 = 100_000;
/// Program number of NFS.
pub const NFS: u32 = 100_003;
/// Program number of MOUNT.
pub const MOUNT: u32 = 100_005;

/// Largest number of supplementary groups in AUTH_SYS.
pub const GROUPS_MAX: usize = 16;
/// Largest credential body, bytes.
const AUTH_MAX: usize = 400;
/// Longest machine name, bytes.
const MACHINE_MAX: usize = 255;
const LAST_FRAGMENT: u32 = 1 << 31;

/// Who calls, as the call says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Auth {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS: what the client's machine says of its user.
    Sys {
        /// User.
        uid: u32,
        /// Group.
        gid: u32,
        /// Supplementary groups, at most [`GROUPS_MAX`].
        groups: Vec<u32>,
    },
}

impl Auth {
    /// AUTH_SYS of these credentials; groups above the bound are left out.
    pub fn of(cred: &Cred) -> Auth {
        let groups = cred.groups.iter().copied().take(GROUPS_MAX).collect();
        Auth::Sys { uid: cred.uid, gid: cred.gid, groups }
    }

    fn write(&self, w: &mut Writer) {
        let Auth::Sys { uid, gid, groups } = self else {
            w.u32(0);
            return w.opaque(&[]);
        };
        let mut body = Writer::default();
        body.u32(0);
        body.opaque(b"iopath");
        body.u32(*uid);
        body.u32(*gid);
        body.u32(groups.len() as u32);
        groups.iter().for_each(|&group| body.u32(group));
        w.u32(1);
        w.opaque(&body.out);
    }

    /// `None` for a flavour that is not known.
    fn read(r: &mut Reader<'_>) -> Result<Option<Auth>, XdrError> {
        let flavour = r.u32()?;
        let body = r.opaque(AUTH_MAX)?;
        match flavour {
            0 => Ok(Some(Auth::None)),
            1 => {
                let mut r = Reader::new(body);
                r.u32()?;
                r.opaque(MACHINE_MAX)?;
                let (uid, gid, count) = (r.u32()?, r.u32()?, r.u32()?);
                if count as usize > GROUPS_MAX {
                    return Err(XdrError::Long { at: 0, len: count, max: GROUPS_MAX });
                }
                let groups = (0..count).map(|_| r.u32()).collect::<Result<_, _>>()?;
                Ok(Some(Auth::Sys { uid, gid, groups }))
            }
            _ => Ok(None),
        }
    }
}

/// The head of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallHead {
    /// Names the call; a retransmission has the same.
    pub xid: u32,
    /// Program.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure of the program.
    pub procedure: u32,
    /// Who calls; `None` for a flavour that is not known.
    pub auth: Option<Auth>,
}

/// Why a record is no call that can be carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoCall {
    /// Not a call at all, or not even a head: nobody to answer.
    Drop,
    /// A call of another version of RPC.
    Version(u32),
    /// A call with credentials that cannot be read.
    Credentials(u32),
}

/// Begins a call; the arguments follow. The record mark is in front, to be set by [`seal`].
pub fn call(head: &CallHead) -> Writer {
    let mut w = Writer { out: Vec::with_capacity(256) };
    w.words(&[0, head.xid, 0, 2, head.program, head.version, head.procedure]);
    head.auth.as_ref().unwrap_or(&Auth::None).write(&mut w);
    Auth::None.write(&mut w);
    w
}

/// Reads the head of a call; the arguments are left in the reader.
///
/// # Errors
/// Why it is none.
pub fn read_call<'a>(record: &'a [u8]) -> Result<(CallHead, Reader<'a>), NoCall> {
    let mut r = Reader::new(record);
    let mut word = || r.u32().map_err(|_| NoCall::Drop);
    let (xid, kind, rpc) = (word()?, word()?, word()?);
    if kind != 0 {
        return Err(NoCall::Drop);
    }
    if rpc != 2 {
        return Err(NoCall::Version(xid));
    }
    let (program, version, procedure) = (word()?, word()?, word()?);
    let auth = Auth::read(&mut r).map_err(|_| NoCall::Credentials(xid))?;
    r.u32().and_then(|_| r.opaque(AUTH_MAX)).map_err(|_| NoCall::Credentials(xid))?;
    Ok((CallHead { xid, program, version, procedure, auth }, r))
}

/// How a server answers a call that it does not carry out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Refusal {
    /// No such program.
    #[error("the server has no such program")]
    Program,
    /// Another version of the program; those that there are.
    #[error("the server has versions {0} to {1} of the program")]
    Version(u32, u32),
    /// No such procedure.
    #[error("the program has no such procedure")]
    Procedure,
    /// The arguments cannot be read.
    #[error("the server could not read the arguments")]
    Garbage,
    /// The server failed.
    #[error("the server failed")]
    System,
    /// Another version of RPC.
    #[error("the server speaks RPC versions {0} to {1}")]
    Rpc(u32, u32),
    /// The credentials are refused, with the number that says why.
    #[error("the server refuses the credentials ({0})")]
    Auth(u32),
}

/// Begins an answer to an accepted call; the results follow.
pub fn reply(xid: u32) -> Writer {
    let mut w = Writer { out: Vec::with_capacity(256) };
    w.words(&[0, xid, 1, 0, 0, 0, 0]);
    w
}

/// A whole answer that refuses.
pub fn refuse(xid: u32, refusal: Refusal) -> Writer {
    let mut w = Writer::default();
    w.words(&[0, xid, 1]);
    let accepted: &[u32] = match refusal {
        Refusal::Program => &[0, 0, 0, 1],
        Refusal::Version(low, high) => &[0, 0, 0, 2, low, high],
        Refusal::Procedure => &[0, 0, 0, 3],
        Refusal::Garbage => &[0, 0, 0, 4],
        Refusal::System => &[0, 0, 0, 5],
        Refusal::Rpc(low, high) => &[1, 0, low, high],
        Refusal::Auth(why) => &[1, 1, why],
    };
    w.words(accepted);
    w
}

/// Why an answer has no results.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ReplyError {
    /// The server refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It cannot be read.
    #[error("the answer cannot be read: {0}")]
    Garbled(#[from] XdrError),
}

/// The xid of an answer; `None` where the record is none.
pub fn reply_xid(record: &[u8]) -> Option<u32> {
    let mut r = Reader::new(record);
    let xid = r.u32().ok()?;
    (r.u32() == Ok(1)).then_some(xid)
}

/// Reads the head of an answer; the results are left in the reader.
///
/// # Errors
/// A refusal, or bytes that cannot be read.
pub fn read_reply<'a>(record: &'a [u8]) -> Result<Reader<'a>, ReplyError> {
    let mut r = Reader::new(record);
    r.u32()?;
    r.u32()?;
    if r.u32()? == 1 {
        return Err(match r.u32()? {
            0 => Refusal::Rpc(r.u32()?, r.u32()?),
            _ => Refusal::Auth(r.u32()?),
        }
        .into());
    }
    r.u32()?;
    r.opaque(AUTH_MAX)?;
    match r.u32()? {
        0 => Ok(r),
        1 => Err(Refusal::Program.into()),
        2 => Err(Refusal::Version(r.u32()?, r.u32()?).into()),
        3 => Err(Refusal::Procedure.into()),
        4 => Err(Refusal::Garbage.into()),
        5 => Err(Refusal::System.into()),
        value => Err(r.wrong(value).into()),
    }
}

/// Sets the record mark in front of a message: one fragment, the last.
///
/// # Panics
/// Above 2 GiB.
pub fn seal(w: Writer) -> Vec<u8> {
    let mut out = w.out;
    let len = u32::try_from(out.len() - 4).expect("a record of ours is short");
    assert!(len < LAST_FRAGMENT, "a record of {len} bytes");
    out[..4].copy_from_slice(&(len | LAST_FRAGMENT).to_be_bytes());
    out
}

/// A record that is too long, or in too many fragments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a record of {len} bytes in {fragments} fragments; {max} bytes are allowed")]
pub struct RecordError {
    /// Its length so far.
    pub len: usize,
    /// Its fragments so far.
    pub fragments: u32,
    /// What is allowed.
    pub max: usize,
}

/// Puts the records of a stream together. Sans-I/O: the caller asks what to read next, and says
/// what came.
#[derive(Debug)]
pub struct Records {
    max: usize,
    /// Longer than what was filled where its memory held a longer record before.
    record: Vec<u8>,
    filled: usize,
    fragments: u32,
}

/// Fragments of one record that are taken: enough for any peer that means well.
const FRAGMENTS_MAX: u32 = 1024;

impl Records {
    /// For records of up to `max` bytes.
    pub fn new(max: usize) -> Records {
        Records { max, record: Vec::new(), filled: 0, fragments: 0 }
    }

    /// Takes a record mark: makes room for the fragment's bytes, which the caller fills in.
    ///
    /// # Errors
    /// The record is too long.
    pub fn mark(&mut self, mark: [u8; 4]) -> Result<(&mut [u8], bool), RecordError> {
        let word = u32::from_be_bytes(mark);
        let (start, len) = (self.filled, (word & !LAST_FRAGMENT) as usize);
        self.fragments += 1;
        if start + len > self.max || self.fragments > FRAGMENTS_MAX {
            let (fragments, max) = (self.fragments, self.max);
            return Err(RecordError { len: start + len, fragments, max });
        }
        self.filled = start + len;
        if self.record.len() < self.filled {
            self.record.resize(self.filled, 0);
        }
        Ok((&mut self.record[start..self.filled], word & LAST_FRAGMENT != 0))
    }

    /// Lets the next record use the memory of an old one, whose bytes need not be cleared. To be
    /// called between records.
    pub fn reuse(&mut self, old: Vec<u8>) {
        debug_assert_eq!(self.filled, 0, "a record has begun");
        self.record = old;
    }

    /// The record whose last fragment was filled in.
    pub fn take(&mut self) -> Vec<u8> {
        self.fragments = 0;
        self.record.truncate(self.filled);
        self.filled = 0;
        std::mem::take(&mut self.record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> CallHead {
        let auth = Some(Auth::Sys { uid: 5, gid: 6, groups: vec![7, 8] });
        CallHead { xid: 9, program: NFS, version: 3, procedure: 1, auth }
    }

    #[test]
    fn calls_and_replies_come_back() {
        let mut w = call(&head());
        w.u32(77);
        let record = seal(w);
        let (back, mut args) = read_call(&record[4..]).unwrap();
        assert_eq!((back, args.u32()), (head(), Ok(77)));
        let mut w = reply(9);
        w.u32(78);
        let record = seal(w);
        assert_eq!(reply_xid(&record[4..]), Some(9));
        assert_eq!(read_reply(&record[4..]).unwrap().u32(), Ok(78));
    }

    #[test]
    fn refusals_come_back() {
        for refusal in [
            Refusal::Program,
            Refusal::Version(3, 4),
            Refusal::Procedure,
            Refusal::Garbage,
            Refusal::System,
            Refusal::Rpc(2, 2),
            Refusal::Auth(5),
        ] {
            let record = seal(refuse(1, refusal));
            let error = read_reply(&record[4..]).map(drop).unwrap_err();
            assert_eq!(error, ReplyError::Refused(refusal));
        }
    }

    #[test]
    fn records_are_put_together_and_bounded() {
        let mut records = Records::new(8);
        let (part, last) = records.mark([0, 0, 0, 4]).unwrap();
        part.copy_from_slice(b"abcd");
        assert!(!last);
        let (part, last) = records.mark([0x80, 0, 0, 2]).unwrap();
        part.copy_from_slice(b"ef");
        assert!(last);
        assert_eq!(records.take(), b"abcdef");
        records.reuse(b"01234567".to_vec());
        records.mark([0x80, 0, 0, 3]).unwrap().0.copy_from_slice(b"xyz");
        assert_eq!(records.take(), b"xyz", "nothing of the old record");
        assert!(records.mark([0x80, 0, 0, 9]).is_err());
        let mut endless = Records::new(8);
        let marks = (0..2000).find_map(|_| endless.mark([0; 4]).map(drop).err());
        assert_eq!(marks.unwrap().fragments, 1025);
    }
}
