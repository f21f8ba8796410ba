//! The handshake as a server leads it, without I/O: bytes in, bytes out.

use super::wire::{self, ExportFlags, FLAG_FIXED, FLAG_NO_ZEROES, Fields, IHAVEOPT, NBDMAGIC};
use super::wire::{info, opt, rep};

/// Longest data of an option: names are at most 4096 bytes.
const OPTION_MAX: u32 = 64 << 10;
/// The number of the one metadata context.
pub(super) const ALLOCATION_ID: u32 = 1;
const ALLOCATION: &[u8] = b"base:allocation";

/// What a server offers under a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// Name; clients that ask for the empty one get it too.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// What it can.
    pub flags: ExportFlags,
    /// Least, preferred and largest size of a request in bytes.
    pub block_size: [u32; 3],
}

/// What client and server have settled at the end of the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settled {
    /// Replies come in chunks.
    pub structured: bool,
    /// `base:allocation` may be asked for.
    pub allocation: bool,
}

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// More of the handshake.
    More,
    /// Requests.
    Transmission(Settled),
    /// The end: the client leaves, or says what cannot be understood.
    Close,
}

enum State {
    Flags,
    Header,
    Data { option: u32, len: u32 },
}

/// The handshake with one client.
pub struct Handshake<'a> {
    export: &'a Export,
    state: State,
    zeroes: bool,
    settled: Settled,
}

impl<'a> Handshake<'a> {
    /// Begins: answers the greeting.
    pub fn new(export: &'a Export) -> (Handshake<'a>, Vec<u8>) {
        let mut greeting = Vec::with_capacity(18);
        greeting.extend(NBDMAGIC.to_be_bytes());
        greeting.extend(IHAVEOPT.to_be_bytes());
        greeting.extend((FLAG_FIXED | FLAG_NO_ZEROES).to_be_bytes());
        let settled = Settled::default();
        (Handshake { export, state: State::Flags, zeroes: true, settled }, greeting)
    }

    /// How many bytes [`Handshake::advance`] wants.
    pub(super) fn wants(&self) -> usize {
        match self.state {
            State::Flags => 4,
            State::Header => 16,
            State::Data { len, .. } => len as usize,
        }
    }

    /// Takes the bytes it wanted; what is to be sent goes into `out`.
    pub(super) fn advance(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Next {
        let mut fields = Fields(bytes);
        match self.state {
            State::Flags => {
                let Some(flags) = fields.u32() else { return Next::Close };
                let known = u32::from(FLAG_FIXED | FLAG_NO_ZEROES);
                if flags & u32::from(FLAG_FIXED) == 0 || flags & !known != 0 {
                    return Next::Close;
                }
                self.zeroes = flags & u32::from(FLAG_NO_ZEROES) == 0;
                self.state = State::Header;
                Next::More
            }
            State::Header => {
                let header = (fields.u64(), fields.u32(), fields.u32());
                let (Some(IHAVEOPT), Some(option), Some(len)) = header else { return Next::Close };
                if len > OPTION_MAX {
                    return Next::Close;
                }
                self.state = State::Data { option, len };
                if len == 0 { self.advance(&[], out) } else { Next::More }
            }
            State::Data { option, .. } => {
                self.state = State::Header;
                self.option(option, bytes, out)
            }
        }
    }

    fn option(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Next {
        let mut reply = |kind: u32, parts: &[&[u8]]| {
            let len: usize = parts.iter().map(|part| part.len()).sum();
            out.extend(wire::OPTION_REPLY.to_be_bytes());
            out.extend(option.to_be_bytes());
            out.extend(kind.to_be_bytes());
            out.extend((len as u32).to_be_bytes());
            parts.iter().for_each(|part| out.extend(*part));
        };
        match option {
            opt::EXPORT_NAME => return self.export_name(data, out),
            opt::ABORT => {
                reply(rep::ACK, &[]);
                return Next::Close;
            }
            opt::LIST if data.is_empty() => {
                let name = self.export.name.as_bytes();
                reply(rep::SERVER, &[&(name.len() as u32).to_be_bytes(), name]);
                reply(rep::ACK, &[]);
            }
            opt::STRUCTURED_REPLY if data.is_empty() => {
                self.settled.structured = true;
                reply(rep::ACK, &[]);
            }
            opt::LIST | opt::STRUCTURED_REPLY => {
                reply(rep::ERR_INVALID, &[b"no data belongs here"]);
            }
            opt::INFO | opt::GO => match info_request(data) {
                None => reply(rep::ERR_INVALID, &[b"the option's data end too soon"]),
                Some(name) if !self.is_ours(name) => reply(rep::ERR_UNKNOWN, &[b"no such export"]),
                Some(_) => {
                    let (size, flags) = (self.export.size, self.flags());
                    let export = info::EXPORT.to_be_bytes();
                    reply(rep::INFO, &[&export, &size.to_be_bytes(), &flags.bits().to_be_bytes()]);
                    let sizes = self.export.block_size.map(u32::to_be_bytes);
                    let kind = info::BLOCK_SIZE.to_be_bytes();
                    reply(rep::INFO, &[&kind, &sizes[0], &sizes[1], &sizes[2]]);
                    reply(rep::ACK, &[]);
                    if option == opt::GO {
                        return Next::Transmission(self.settled);
                    }
                }
            },
            opt::LIST_META_CONTEXT | opt::SET_META_CONTEXT => match meta_request(data) {
                None => reply(rep::ERR_INVALID, &[b"the option's data end too soon"]),
                Some(_) if !self.settled.structured => {
                    reply(rep::ERR_INVALID, &[b"ask for structured replies first"]);
                }
                Some((name, _)) if !self.is_ours(name) => {
                    reply(rep::ERR_UNKNOWN, &[b"no such export"]);
                }
                Some((_, wanted)) => {
                    let listed = option == opt::LIST_META_CONTEXT;
                    if !listed {
                        self.settled.allocation = wanted == Wanted::Allocation;
                    }
                    if wanted == Wanted::Allocation || (listed && wanted == Wanted::All) {
                        let id = if listed { 0 } else { ALLOCATION_ID };
                        reply(rep::META_CONTEXT, &[&id.to_be_bytes(), ALLOCATION]);
                    }
                    reply(rep::ACK, &[]);
                }
            },
            _ => reply(rep::ERR_UNSUP, &[b"this option is not known"]),
        }
        Next::More
    }

    /// The old way into transmission: no reply can say no.
    fn export_name(&mut self, name: &[u8], out: &mut Vec<u8>) -> Next {
        if !self.is_ours(name) {
            return Next::Close;
        }
        out.extend(self.export.size.to_be_bytes());
        out.extend(self.flags().bits().to_be_bytes());
        if self.zeroes {
            out.extend([0; 124]);
        }
        Next::Transmission(self.settled)
    }

    fn flags(&self) -> ExportFlags {
        self.export.flags | ExportFlags::HAS_FLAGS
    }

    fn is_ours(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.export.name.as_bytes()
    }
}

/// The name in the data of INFO and GO; what else is asked for is told anyway.
fn info_request(data: &[u8]) -> Option<&[u8]> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let count = fields.u16()?;
    fields.bytes(usize::from(count) * 2)?;
    fields.0.is_empty().then_some(name)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// No query.
    All,
    Allocation,
    Nothing,
}

fn meta_request(data: &[u8]) -> Option<(&[u8], Wanted)> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let count = fields.u32()?;
    let mut wanted = if count == 0 { Wanted::All } else { Wanted::Nothing };
    for _ in 0..count {
        let query = fields.string()?;
        if query == ALLOCATION || query == b"base:" {
            wanted = Wanted::Allocation;
        }
    }
    fields.0.is_empty().then_some((name, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export() -> Export {
        let flags = ExportFlags::SEND_FLUSH;
        Export { name: "disk".into(), size: 1 << 20, flags, block_size: [512, 4096, 1 << 25] }
    }

    fn option(kind: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = IHAVEOPT.to_be_bytes().to_vec();
        bytes.extend(kind.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        bytes
    }

    /// Feeds a conversation; answers what was said and what came next.
    fn talk(input: &[u8]) -> (Vec<u8>, Next) {
        let export = export();
        let (mut handshake, mut out) = Handshake::new(&export);
        let mut rest = input;
        loop {
            let Some((bytes, tail)) = rest.split_at_checked(handshake.wants()) else {
                return (out, Next::More);
            };
            rest = tail;
            match handshake.advance(bytes, &mut out) {
                Next::More => {}
                next => return (out, next),
            }
        }
    }

    #[test]
    fn a_client_that_asks_for_everything_gets_it() {
        let mut input = 3u32.to_be_bytes().to_vec();
        input.extend(option(opt::STRUCTURED_REPLY, &[]));
        let query = [&4u32.to_be_bytes()[..], b"disk", &1u32.to_be_bytes(), &15u32.to_be_bytes()];
        input.extend(option(opt::SET_META_CONTEXT, &[&query.concat()[..], ALLOCATION].concat()));
        input.extend(option(opt::GO, &[&0u32.to_be_bytes()[..], &0u16.to_be_bytes()].concat()));
        let (_, next) = talk(&input);
        assert_eq!(next, Next::Transmission(Settled { structured: true, allocation: true }));
    }

    /// No cut or changed byte of a conversation makes the server panic or ask for much.
    #[test]
    fn damaged_conversations_end_or_go_on() {
        let mut input = 3u32.to_be_bytes().to_vec();
        let query = [&4u32.to_be_bytes()[..], b"disk", &1u32.to_be_bytes(), &15u32.to_be_bytes()];
        input.extend(option(opt::STRUCTURED_REPLY, &[]));
        input.extend(option(opt::LIST_META_CONTEXT, &[&query.concat()[..], ALLOCATION].concat()));
        input.extend(option(opt::INFO, &[&0u32.to_be_bytes()[..], &0u16.to_be_bytes()].concat()));
        for at in 0..input.len() {
            talk(&input[..at]);
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = input.clone();
                changed[at] = value;
                talk(&changed);
            }
        }
    }
}
