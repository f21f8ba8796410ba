//! The numbers and messages of the protocol. All integers are big-endian.

use base::Errno;
use block::Cause;

/// First word of a server.
pub const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second word of a newstyle server, and first of an option.
pub const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
/// First word of a reply to an option.
pub const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// First word of a request.
pub const REQUEST: u32 = 0x2560_9513;
/// First word of a simple reply.
pub const SIMPLE_REPLY: u32 = 0x6744_6698;
/// First word of a chunk of a structured reply.
pub const STRUCTURED_REPLY: u32 = 0x668e_33ef;

/// Handshake flags, server and client alike: fixed newstyle, no 124 zeroes.
pub const FLAG_FIXED: u16 = 1;
/// See [`FLAG_FIXED`].
pub const FLAG_NO_ZEROES: u16 = 2;

/// Options of the handshake.
#[allow(missing_docs, reason = "the names are those of the protocol")]
pub mod opt {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Replies to options.
#[allow(missing_docs, reason = "the names are those of the protocol")]
pub mod rep {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    pub const ERROR: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERROR | 1;
    pub const ERR_POLICY: u32 = ERROR | 2;
    pub const ERR_INVALID: u32 = ERROR | 3;
    pub const ERR_TLS_REQD: u32 = ERROR | 5;
    pub const ERR_UNKNOWN: u32 = ERROR | 6;
    pub const ERR_TOO_BIG: u32 = ERROR | 9;
}

/// Kinds of information about an export.
#[allow(missing_docs, reason = "the names are those of the protocol")]
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const BLOCK_SIZE: u16 = 3;
}

bitflags::bitflags! {
    /// What an export can.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct ExportFlags: u16 {
        /// The flags mean something.
        const HAS_FLAGS = 1;
        /// Nothing can be changed.
        const READ_ONLY = 2;
        /// FLUSH is known.
        const SEND_FLUSH = 4;
        /// The flag FUA is known.
        const SEND_FUA = 8;
        /// Distance costs time.
        const ROTATIONAL = 16;
        /// TRIM is known.
        const SEND_TRIM = 32;
        /// WRITE_ZEROES is known.
        const SEND_WRITE_ZEROES = 64;
        /// A read may be asked for in one chunk.
        const SEND_DF = 128;
        /// A flush on any connection covers them all.
        const CAN_MULTI_CONN = 256;
    }
}

/// Types of requests.
#[allow(missing_docs, reason = "the names are those of the protocol")]
pub mod cmd {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
    /// Flag: durable when it is answered.
    pub const FUA: u16 = 1;
    /// Flag of WRITE_ZEROES: keep the space.
    pub const NO_HOLE: u16 = 2;
    /// Flag of READ: one chunk with all data, or an error.
    pub const DF: u16 = 4;
    /// Flag of BLOCK_STATUS: one extent is enough.
    pub const REQ_ONE: u16 = 8;
}

/// Types of chunks.
#[allow(missing_docs, reason = "the names are those of the protocol")]
pub mod chunk {
    pub const DONE: u16 = 1;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const BLOCK_STATUS: u16 = 5;
    pub const ERROR: u16 = 1 << 15 | 1;
}

/// State bits of `base:allocation`: not allocated; reads as zeros.
pub const STATE_HOLE: u32 = 1;
/// See [`STATE_HOLE`].
pub const STATE_ZERO: u32 = 2;

/// Bytes of a request without its data.
pub const REQUEST_BYTES: usize = 28;

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Flags of [`cmd`].
    pub flags: u16,
    /// Type of [`cmd`].
    pub kind: u16,
    /// Comes back in the reply.
    pub cookie: u64,
    /// Bytes from the start of the export.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

impl Request {
    /// The bytes of a request.
    pub fn emit(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&REQUEST.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// Reads a request; none where the magic number is wrong.
    pub fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Request> {
        let mut fields = Fields(bytes);
        (fields.u32()? == REQUEST).then_some(())?;
        let (flags, kind) = (fields.u16()?, fields.u16()?);
        Some(Request {
            flags,
            kind,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            len: fields.u32()?,
        })
    }
}

/// The bytes of a simple reply without data.
pub fn simple_reply(cookie: u64, error: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// The header of a chunk with `len` bytes behind it.
pub fn chunk_header(flags: u16, kind: u16, cookie: u64, len: u32) -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&STRUCTURED_REPLY.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// The number for an errno: the protocol knows a few, and `ENOTSUP` only for what is not offered.
pub fn error_number(errno: Errno) -> u32 {
    match errno {
        Errno::EPERM | Errno::EROFS => 1,
        Errno::ENOMEM => 12,
        Errno::EINVAL | Errno::EOPNOTSUPP => 22,
        Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG => 28,
        _ => 5,
    }
}

/// The cause that a number of the protocol stands for.
pub fn cause(number: u32) -> Cause {
    match number {
        1 => Cause::ReadOnly,
        28 => Cause::NoSpace,
        95 => Cause::Unsupported,
        12 => Cause::Os(Errno::ENOMEM),
        22 => Cause::Os(Errno::EINVAL),
        _ => Cause::Io,
    }
}

/// A walk over the fields of a message; every step may find that it ends too soon.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    /// The next 16 bits.
    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.bytes(2)?.try_into().ok()?))
    }

    /// The next 32 bits.
    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.bytes(4)?.try_into().ok()?))
    }

    /// The next 64 bits.
    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.bytes(8)?.try_into().ok()?))
    }

    /// A string behind its 32-bit length.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.bytes(len as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_its_bytes() {
        let request = Request { flags: 1, kind: 6, cookie: 7 << 40, offset: 9 << 33, len: 4096 };
        let mut bytes = request.emit();
        assert_eq!(Request::parse(&bytes), Some(request));
        bytes[0] ^= 1;
        assert_eq!(Request::parse(&bytes), None);
    }
}
