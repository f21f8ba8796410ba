//! A network link between two ends: latency, bandwidth, the cost of each message, queueing.
//!
//! Each way is a line of its own: a message waits until those before it are on the line, occupies
//! it for its bytes with the headers of its packets and for the cost of a message, and arrives a
//! latency later. Messages of one way arrive in the order in which they were sent.
//!
//! Not modelled: loss, retransmission, congestion control, half duplex, switches that others use
//! too.

use crate::quantity::Rate;
use base::Nanos;

/// The parameters of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkParams {
    /// Time of a message from one end to the other, beside its transfer.
    pub latency: Nanos,
    /// Bandwidth, each way.
    pub rate: Rate,
    /// What every message occupies the line for, beside its bytes: the ends' work on it.
    pub per_message: Nanos,
    /// Bytes of headers in front of each packet.
    pub header: u64,
    /// Largest packet in bytes, with its headers.
    pub mtu: u64,
}

/// The two ways of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// What went over one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Messages.
    pub messages: u64,
    /// Their bytes, without headers.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Time for which the line was occupied.
    pub busy: Nanos,
    /// Time for which messages waited for the line, summed.
    pub waited: Nanos,
}

/// A link in event context: it shows when a message arrives; the caller makes it arrive.
#[derive(Clone, Debug)]
pub struct Link {
    params: LinkParams,
    free: [Nanos; 2],
    stats: [LinkStats; 2],
}

impl Link {
    /// A link on which nothing is sent yet.
    pub fn new(params: LinkParams) -> Link {
        Link { params, free: [Nanos::ZERO; 2], stats: [LinkStats::default(); 2] }
    }

    /// Sends a message of `bytes` bytes at `now`; returns when it has arrived as a whole.
    pub fn send(&mut self, now: Nanos, way: Way, bytes: u64) -> Nanos {
        let LinkParams { latency, rate, per_message, header, mtu } = self.params;
        let packets = bytes.div_ceil((mtu - header).max(1)).max(1);
        let span = rate.time(bytes + packets * header) + per_message;
        let begin = self.free[way as usize].max(now);
        self.free[way as usize] = begin + span;
        let stats = &mut self.stats[way as usize];
        stats.messages += 1;
        stats.bytes += bytes;
        stats.packets += packets;
        stats.busy += span;
        stats.waited += begin.since(now);
        begin + span + latency
    }

    /// What went over one way so far.
    pub fn stats(&self, way: Way) -> LinkStats {
        self.stats[way as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Link {
        Link::new(LinkParams {
            latency: Nanos::from_micros(50),
            rate: Rate(125_000_000),
            per_message: Nanos::from_micros(5),
            header: 60,
            mtu: 1500,
        })
    }

    #[test]
    fn a_message_takes_its_bytes_with_headers_and_the_latency() {
        let mut link = link();
        // 1440 bytes and one header: 12 us on the line, 5 of work, 50 on the way.
        assert_eq!(link.send(Nanos::ZERO, Way::Up, 1440), Nanos::from_micros(67));
        // 1441 bytes need a second packet.
        assert_eq!(link.send(Nanos::from_secs(1), Way::Up, 1441).0 - 1_000_000_000, 67_488);
        assert_eq!(link.stats(Way::Up).packets, 3);
        assert_eq!(link.stats(Way::Down), LinkStats::default());
    }

    #[test]
    fn messages_of_one_way_queue_and_ways_do_not_meet() {
        let mut link = link();
        let mut send = |way| link.send(Nanos::ZERO, way, 1440).0 / 1000;
        assert_eq!([send(Way::Up), send(Way::Up), send(Way::Up)], [67, 84, 101]);
        assert_eq!(send(Way::Down), 67);
        assert_eq!(link.stats(Way::Up).waited, Nanos::from_micros(17 + 34));
    }
}
