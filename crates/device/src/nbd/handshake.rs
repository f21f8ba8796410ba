//! The handshake as a server leads it, without I/O: bytes in, bytes out.

use super::wire::{self, ExportFlags, FLAG_FIXED, FLAG_NO_ZEROES, Fields, IHAVEOPT, NBDMAGIC};
use super::wire::{info, opt, rep};

/// Longest data of an option: names are at most 4096 bytes.
const OPTION_MAX: u32 = 64 << 10;
/// Longest data that are passed over, so that the client gets an answer.
const SKIP_MAX: u32 = 1 << 20;
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
    Data {
        option: u32,
        len: u32,
    },
    /// Data of an option that are too long.
    Skip {
        option: u32,
        left: u32,
    },
}

/// The handshake with one client.
pub struct Handshake<'a> {
    export: &'a Export,
    state: State,
    zeroes: bool,
    structured: bool,
    /// The name of the export for which `base:allocation` was chosen.
    context: Option<Vec<u8>>,
}

/// Says whether one more client may go on to transmission.
pub(super) type Admit<'a> = &'a mut dyn FnMut() -> bool;

fn reply(out: &mut Vec<u8>, option: u32, kind: u32, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    out.extend(wire::OPTION_REPLY.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend((len as u32).to_be_bytes());
    parts.iter().for_each(|part| out.extend(*part));
}

impl<'a> Handshake<'a> {
    /// Begins: answers the greeting.
    pub fn new(export: &'a Export) -> (Handshake<'a>, Vec<u8>) {
        let mut greeting = Vec::with_capacity(18);
        greeting.extend(NBDMAGIC.to_be_bytes());
        greeting.extend(IHAVEOPT.to_be_bytes());
        greeting.extend((FLAG_FIXED | FLAG_NO_ZEROES).to_be_bytes());
        let state = State::Flags;
        let handshake = Handshake { export, state, zeroes: true, structured: false, context: None };
        (handshake, greeting)
    }

    /// How many bytes [`Handshake::advance`] wants.
    pub(super) fn wants(&self) -> usize {
        match self.state {
            State::Flags => 4,
            State::Header => 16,
            State::Data { len, .. } => len as usize,
            State::Skip { left, .. } => left.min(OPTION_MAX) as usize,
        }
    }

    /// Takes the bytes it wanted; what is to be sent goes into `out`.
    pub(super) fn advance(&mut self, bytes: &[u8], out: &mut Vec<u8>, admit: Admit<'_>) -> Next {
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
                // Nothing can be said to EXPORT_NAME.
                if len > SKIP_MAX || (len > OPTION_MAX && option == opt::EXPORT_NAME) {
                    return Next::Close;
                }
                self.state = match len {
                    0..=OPTION_MAX => State::Data { option, len },
                    left => State::Skip { option, left },
                };
                if len == 0 { self.advance(&[], out, admit) } else { Next::More }
            }
            State::Data { option, .. } => {
                self.state = State::Header;
                self.option(option, bytes, out, admit)
            }
            State::Skip { option, left } => {
                let left = left.saturating_sub(bytes.len() as u32);
                self.state = State::Skip { option, left };
                if left == 0 {
                    self.state = State::Header;
                    reply(out, option, rep::ERR_TOO_BIG, &[b"no option has so many data"]);
                }
                Next::More
            }
        }
    }

    fn option(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>, admit: Admit<'_>) -> Next {
        let mut reply = |kind: u32, parts: &[&[u8]]| reply(out, option, kind, parts);
        match option {
            opt::EXPORT_NAME => return self.export_name(data, out, admit),
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
                self.structured = true;
                reply(rep::ACK, &[]);
            }
            opt::LIST | opt::STRUCTURED_REPLY => {
                reply(rep::ERR_INVALID, &[b"no data belongs here"]);
            }
            opt::INFO | opt::GO => return self.info(option, data, out, admit),
            opt::LIST_META_CONTEXT | opt::SET_META_CONTEXT => self.contexts(option, data, out),
            opt::STARTTLS => reply(rep::ERR_UNSUP, &[b"there is no TLS here"]),
            _ => reply(rep::ERR_UNSUP, &[b"this option is not known"]),
        }
        Next::More
    }

    /// INFO and GO.
    fn info(&self, option: u32, data: &[u8], out: &mut Vec<u8>, admit: Admit<'_>) -> Next {
        let mut reply = |kind: u32, parts: &[&[u8]]| reply(out, option, kind, parts);
        match info_request(data) {
            None => reply(rep::ERR_INVALID, &[b"the option's data have another length"]),
            Some(name) if !self.is_ours(name) => reply(rep::ERR_UNKNOWN, &[b"no such export"]),
            Some(_) if option == opt::GO && !admit() => {
                reply(rep::ERR_POLICY, &[b"too many connections are served already"]);
            }
            Some(name) => {
                let (size, flags) = (self.export.size, self.flags());
                let export = info::EXPORT.to_be_bytes();
                reply(rep::INFO, &[&export, &size.to_be_bytes(), &flags.bits().to_be_bytes()]);
                let sizes = self.export.block_size.map(u32::to_be_bytes);
                let kind = info::BLOCK_SIZE.to_be_bytes();
                reply(rep::INFO, &[&kind, &sizes[0], &sizes[1], &sizes[2]]);
                reply(rep::ACK, &[]);
                if option == opt::GO {
                    return Next::Transmission(self.settled(name));
                }
            }
        }
        Next::More
    }

    /// LIST_META_CONTEXT and SET_META_CONTEXT, which takes back what was set before.
    fn contexts(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) {
        let mut reply = |kind: u32, parts: &[&[u8]]| reply(out, option, kind, parts);
        let listed = option == opt::LIST_META_CONTEXT;
        if !listed {
            self.context = None;
        }
        match meta_request(data) {
            None => reply(rep::ERR_INVALID, &[b"the option's data have another length"]),
            Some(_) if !self.structured => {
                reply(rep::ERR_INVALID, &[b"ask for structured replies first"]);
            }
            Some((name, _)) if !self.is_ours(name) => {
                reply(rep::ERR_UNKNOWN, &[b"no such export"]);
            }
            Some((name, wanted)) => {
                let answered = match wanted {
                    Wanted::Allocation => true,
                    Wanted::All => listed,
                    Wanted::Nothing => false,
                };
                if answered {
                    let id = if listed { 0 } else { ALLOCATION_ID };
                    reply(rep::META_CONTEXT, &[&id.to_be_bytes(), ALLOCATION]);
                }
                if answered && !listed {
                    self.context = Some(name.to_vec());
                }
                reply(rep::ACK, &[]);
            }
        }
    }

    /// The old way into transmission: no reply can say no.
    fn export_name(&mut self, name: &[u8], out: &mut Vec<u8>, admit: Admit<'_>) -> Next {
        if !self.is_ours(name) || !admit() {
            return Next::Close;
        }
        out.extend(self.export.size.to_be_bytes());
        out.extend(self.flags().bits().to_be_bytes());
        if self.zeroes {
            out.extend([0; 124]);
        }
        Next::Transmission(self.settled(name))
    }

    fn flags(&self) -> ExportFlags {
        let mut flags = self.export.flags | ExportFlags::HAS_FLAGS;
        // Without chunks there is nothing that could be one.
        flags.set(ExportFlags::SEND_DF, self.structured && flags.contains(ExportFlags::SEND_DF));
        flags
    }

    /// What holds for the export of this name: a context of another name does not.
    fn settled(&self, name: &[u8]) -> Settled {
        let allocation = self.context.as_deref() == Some(name);
        Settled { structured: self.structured, allocation }
    }

    fn is_ours(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.export.name.as_bytes()
    }
}

/// The name in the data of INFO and GO; what else is asked for is sent anyway.
fn info_request(data: &[u8]) -> Option<&[u8]> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let count = fields.u16()?;
    fields.bytes(usize::from(count) * 2)?;
    fields.0.is_empty().then_some(name)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// No query, or all of `base:`: what a list shows, and nothing that can be set.
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
        match fields.string()? {
            ALLOCATION => wanted = Wanted::Allocation,
            b"base:" if wanted == Wanted::Nothing => wanted = Wanted::All,
            _ => {}
        }
    }
    fields.0.is_empty().then_some((name, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export() -> Export {
        let flags = ExportFlags::SEND_FLUSH | ExportFlags::SEND_DF;
        Export { name: "disk".into(), size: 1 << 20, flags, block_size: [512, 4096, 1 << 25] }
    }

    fn option(kind: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = IHAVEOPT.to_be_bytes().to_vec();
        bytes.extend(kind.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        bytes
    }

    fn string(text: &[u8]) -> Vec<u8> {
        [&(text.len() as u32).to_be_bytes()[..], text].concat()
    }

    fn info(kind: u32, name: &[u8]) -> Vec<u8> {
        option(kind, &[&string(name)[..], &[0, 0]].concat())
    }

    fn meta(kind: u32, name: &[u8], queries: &[&[u8]]) -> Vec<u8> {
        let mut data = string(name);
        data.extend((queries.len() as u32).to_be_bytes());
        queries.iter().for_each(|query| data.extend(string(query)));
        option(kind, &data)
    }

    /// Feeds a conversation after the client's flags; returns the replies and what came next.
    fn talk(options: &[Vec<u8>], places: usize) -> (Vec<(u32, Vec<u8>)>, Next) {
        let (out, next) = feed(&[&3u32.to_be_bytes()[..], &options.concat()].concat(), places);
        let mut replies = Vec::new();
        let mut fields = Fields(&out[18..]);
        while let Some(wire::OPTION_REPLY) = fields.u64() {
            let kind = (fields.u32(), fields.u32()).1.unwrap();
            replies.push((kind, fields.string().unwrap().to_vec()));
        }
        (replies, next)
    }

    fn feed(input: &[u8], mut places: usize) -> (Vec<u8>, Next) {
        let export = export();
        let (mut handshake, mut out) = Handshake::new(&export);
        let mut rest = input;
        loop {
            let Some((bytes, tail)) = rest.split_at_checked(handshake.wants()) else {
                return (out, Next::More);
            };
            rest = tail;
            let mut admit = || {
                places = places.wrapping_sub(1);
                places != usize::MAX
            };
            match handshake.advance(bytes, &mut out, &mut admit) {
                Next::More => {}
                next => return (out, next),
            }
        }
    }

    fn kinds(options: &[Vec<u8>]) -> Vec<u32> {
        talk(options, 1).0.iter().map(|(kind, _)| *kind).collect()
    }

    #[test]
    fn a_client_that_asks_for_everything_gets_it() {
        let structured = option(opt::STRUCTURED_REPLY, &[]);
        let set = meta(opt::SET_META_CONTEXT, b"disk", &[ALLOCATION]);
        let (_, next) = talk(&[structured.clone(), set, info(opt::GO, b"disk")], 1);
        assert_eq!(next, Next::Transmission(Settled { structured: true, allocation: true }));
        let (_, next) = talk(&[structured, option(opt::EXPORT_NAME, b"")], 1);
        assert_eq!(next, Next::Transmission(Settled { structured: true, allocation: false }));
    }

    #[test]
    fn a_context_holds_for_its_name_and_until_the_next_is_set() {
        let begin = [
            option(opt::STRUCTURED_REPLY, &[]),
            meta(opt::SET_META_CONTEXT, b"disk", &[ALLOCATION]),
        ];
        let allocation = |more: &[Vec<u8>], name: &[u8]| {
            let (_, next) = talk(&[&begin, more, &[info(opt::GO, name)]].concat(), 1);
            let Next::Transmission(settled) = next else { panic!("{next:?}") };
            settled.allocation
        };
        assert!(allocation(&[], b"disk") && !allocation(&[], b""));
        for queries in [&[][..], &[&b"base:"[..]], &[&b"other:x"[..]]] {
            assert!(!allocation(&[meta(opt::SET_META_CONTEXT, b"disk", queries)], b"disk"));
        }
        // What is refused takes back, too.
        assert!(!allocation(&[meta(opt::SET_META_CONTEXT, b"other", &[ALLOCATION])], b"disk"));
        let listed = |queries: &[&[u8]]| {
            kinds(&[begin[0].clone(), meta(opt::LIST_META_CONTEXT, b"", queries)])[1..].to_vec()
        };
        assert_eq!(listed(&[]), [rep::META_CONTEXT, rep::ACK]);
        assert_eq!(listed(&[b"base:"]), [rep::META_CONTEXT, rep::ACK]);
        assert_eq!(listed(&[b"other:"]), [rep::ACK]);
    }

    #[test]
    fn what_cannot_be_is_refused_by_name_and_the_talk_goes_on() {
        for (asked, refusal) in [
            (info(opt::INFO, b"other"), rep::ERR_UNKNOWN),
            (info(opt::GO, b"other"), rep::ERR_UNKNOWN),
            (option(opt::GO, b"\0\0"), rep::ERR_INVALID),
            (option(opt::INFO, &string(b"disk")), rep::ERR_INVALID),
            (option(opt::LIST, b"x"), rep::ERR_INVALID),
            (option(opt::STRUCTURED_REPLY, b"x"), rep::ERR_INVALID),
            (meta(opt::LIST_META_CONTEXT, b"", &[]), rep::ERR_INVALID),
            (option(opt::STARTTLS, &[]), rep::ERR_UNSUP),
            (option(11, &[]), rep::ERR_UNSUP),
            (option(opt::INFO, &vec![0; OPTION_MAX as usize + 1]), rep::ERR_TOO_BIG),
            (option(99, &vec![0; SKIP_MAX as usize]), rep::ERR_TOO_BIG),
        ] {
            let listed = option(opt::LIST, &[]);
            assert_eq!(kinds(&[asked, listed]), [refusal, rep::SERVER, rep::ACK]);
        }
        assert_eq!(talk(&[option(opt::ABORT, &[])], 1), (vec![(rep::ACK, vec![])], Next::Close));
        assert_eq!(talk(&[option(opt::EXPORT_NAME, b"other")], 1).1, Next::Close);
    }

    #[test]
    fn who_comes_too_many_is_told_and_may_leave_in_order() {
        let (replies, next) = talk(&[info(opt::GO, b""), option(opt::ABORT, &[])], 0);
        let kinds: Vec<u32> = replies.iter().map(|(kind, _)| *kind).collect();
        assert_eq!((kinds, next), (vec![rep::ERR_POLICY, rep::ACK], Next::Close));
        assert_eq!(talk(&[option(opt::EXPORT_NAME, b"")], 0).1, Next::Close);
    }

    /// DF means something only where replies are in chunks.
    #[test]
    fn flags_are_those_of_what_was_settled() {
        let flags = |options: &[Vec<u8>]| {
            let (replies, _) = talk(options, 1);
            let mut fields = Fields(&replies.iter().rev().nth(2).unwrap().1);
            (fields.u16(), fields.u64(), fields.u16()).2.unwrap()
        };
        let df = ExportFlags::SEND_DF.bits();
        assert_eq!(flags(&[info(opt::INFO, b"")]) & df, 0);
        let structured = option(opt::STRUCTURED_REPLY, &[]);
        assert_eq!(flags(&[structured, info(opt::INFO, b"")]) & df, df);
    }

    /// No cut or changed byte of a conversation makes the server panic or ask for much.
    #[test]
    fn damaged_conversations_end_or_go_on() {
        let input = [
            3u32.to_be_bytes().to_vec(),
            option(opt::STRUCTURED_REPLY, &[]),
            meta(opt::LIST_META_CONTEXT, b"disk", &[ALLOCATION]),
            info(opt::INFO, b""),
        ]
        .concat();
        for at in 0..input.len() {
            feed(&input[..at], 1);
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = input.clone();
                changed[at] = value;
                feed(&changed, 1);
            }
        }
    }
}
