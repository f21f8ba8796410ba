//! Intents of exchanges of ranges between files.

use std::sync::Arc;

use super::Logged;
use crate::error::Result;
use crate::format::log_item::ItemKind;
use crate::log::LogError;
use crate::trans::intent::{Exchange, ExchangeSide, Work, exchange_flags};

/// Bytes of an XMI.
const LENGTH: usize = 88;

/// Checks an XMI.
pub(super) fn parse_exchange(tid: u32, bytes: &[u8]) -> Result<Logged> {
    let (what, found) = (ItemKind::Xmi.name(), bytes.len() as u64);
    if bytes.len() != LENGTH {
        return Err(LogError::ItemLength { tid, what, found, expected: LENGTH as u64 }.into());
    }
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let flags = number(64);
    if flags & !exchange_flags::ALL != 0 {
        return Err(LogError::ItemValue { tid, what: "flags of an XMI", found: flags }.into());
    }
    let side = |index: usize| ExchangeSide {
        ino: number(16 + 8 * index),
        generation: half(32 + 4 * index),
        start: number(40 + 8 * index),
        size: number(72 + 8 * index),
    };
    let exchange = Exchange { sides: [side(0), side(1)], blocks: number(56), flags };
    let reach = |side: &ExchangeSide| side.start.checked_add(exchange.blocks);
    if exchange.blocks == 0 || exchange.sides.iter().any(|side| reach(side).is_none()) {
        let (what, found) = ("blocks of an XMI", exchange.blocks);
        return Err(LogError::ItemValue { tid, what, found }.into());
    }
    Ok(Logged::Intent(ItemKind::Xmi, number(8), vec![Work::Exchange(Arc::new(exchange))]))
}
