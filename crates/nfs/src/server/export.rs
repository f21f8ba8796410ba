//! Exports: which clients may use them, and with which credentials.

use std::net::IpAddr;
use std::str::FromStr;

use super::HandleKey;

/// Whose ids a server does not believe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Squash {
    /// Everybody is believed.
    None,
    /// User and group 0 become the anonymous ones.
    #[default]
    Root,
    /// Everybody becomes anonymous.
    All,
}

/// Addresses that may use an export: one, or a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// An address in it.
    pub address: IpAddr,
    /// Bits of the address that count.
    pub bits: u8,
}

impl Allowed {
    /// Is the address one of them?
    pub fn contains(&self, peer: IpAddr) -> bool {
        let same = |a: u128, b: u128, width: u32| {
            let rest = width.saturating_sub(self.bits.into());
            rest >= width || a >> rest == b >> rest
        };
        match (self.address, peer.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                same(u32::from(a).into(), u32::from(b).into(), u32::BITS)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.into(), b.into(), u128::BITS),
            _ => false,
        }
    }
}

impl FromStr for Allowed {
    type Err = String;

    /// `10.0.0.7`, `10.0.0.0/8`, `fd00::/8`.
    fn from_str(text: &str) -> Result<Allowed, String> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr =
            address.parse().map_err(|_| format!("`{text}` is no address or network"))?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(width), str::parse).ok().filter(|bits| *bits <= width);
        let bits = bits.ok_or_else(|| format!("`{text}`: a network has 0 to {width} bits"))?;
        Ok(Allowed { address, bits })
    }
}

/// An export.
#[derive(Clone, Debug)]
pub struct Export {
    /// Its path, as MOUNT names it: absolute, without a slash at the end unless it is `/`.
    pub path: Vec<u8>,
    /// Every change is refused.
    pub read_only: bool,
    /// Whose ids are not believed.
    pub squash: Squash,
    /// The anonymous user.
    pub anon_uid: u32,
    /// The anonymous group.
    pub anon_gid: u32,
    /// Who may use it.
    pub allowed: Vec<Allowed>,
    /// What handles are made with.
    pub key: HandleKey,
}

impl Export {
    /// A read-only export for this machine alone, with root squashed.
    pub fn new(path: &[u8], key: HandleKey) -> Export {
        let loopback = ["127.0.0.0/8", "::1"];
        Export {
            path: path.to_vec(),
            read_only: true,
            squash: Squash::Root,
            anon_uid: 65534,
            anon_gid: 65534,
            allowed: loopback.map(|text| text.parse().expect("an address")).to_vec(),
            key,
        }
    }

    /// May this address use it?
    pub fn allows(&self, peer: IpAddr) -> bool {
        self.allowed.iter().any(|allowed| allowed.contains(peer))
    }

    /// The path inside of the export that a MOUNT of `path` means; `None` for another export.
    pub fn inside<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        let rest = match self.path.as_slice() {
            b"/" => path,
            own => path.strip_prefix(own)?,
        };
        (rest.is_empty() || rest[0] == b'/').then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses() {
        let contains =
            |net: &str, peer: &str| net.parse::<Allowed>().unwrap().contains(peer.parse().unwrap());
        assert!(contains("10.0.0.0/8", "10.9.8.7"));
        assert!(!contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("10.0.0.7", "10.0.0.7") && !contains("10.0.0.7", "10.0.0.6"));
        assert!(contains("0.0.0.0/0", "1.2.3.4") && !contains("0.0.0.0/0", "::1"));
        assert!(contains("127.0.0.0/8", "::ffff:127.0.0.1"));
        assert!(contains("fd00::/8", "fd12::3") && !contains("fd00::/8", "fe80::1"));
        for wrong in ["", "a", "10.0.0.0/33", "10.0.0.0/x"] {
            assert!(wrong.parse::<Allowed>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn mounts_name_the_export_or_what_is_in_it() {
        let export = Export::new(b"/a", HandleKey::new([0; 32]));
        assert_eq!(export.inside(b"/a"), Some(&b""[..]));
        assert_eq!(export.inside(b"/a/b"), Some(&b"/b"[..]));
        assert_eq!(export.inside(b"/ab"), None);
        assert_eq!(Export::new(b"/", HandleKey::new([0; 32])).inside(b"/x"), Some(&b"/x"[..]));
    }
}
