//! `nfs://host[:port]/export[?name=value&..]`.

use std::str::FromStr;

/// The portmapper's port, unless the address names another (a tunnel's).
const PORTMAP_PORT: u16 = 111;

/// Where an export is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    /// Name or address of the server; IPv6 addresses without their brackets.
    pub host: String,
    /// Port of NFS, where it is not to be asked for.
    pub port: Option<u16>,
    /// Port of MOUNT, where it is not to be asked for.
    pub mount_port: Option<u16>,
    /// Port of the portmapper, which is asked for the two where they are not named.
    pub portmap_port: u16,
    /// The export's path: absolute.
    pub path: String,
    /// Further options, in order.
    pub options: Vec<(String, String)>,
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Url, String> {
        let rest = text.strip_prefix("nfs://").ok_or_else(|| format!("`{text}` is no nfs://"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let slash = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(slash);
        let (host, port) = match authority.strip_prefix('[') {
            Some(v6) => {
                let (host, port) =
                    v6.split_once(']').ok_or_else(|| format!("`{text}`: `[` without `]`"))?;
                (host, port.strip_prefix(':'))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return Err(format!("`{text}` names no host"));
        }
        let number = |what: &str, port: &str| {
            port.parse::<u16>()
                .ok()
                .filter(|&port| port > 0)
                .ok_or_else(|| format!("`{text}`: {what} `{port}` is no port"))
        };
        let mut url = Url {
            host: host.to_owned(),
            port: port.map(|port| number("port", port)).transpose()?,
            mount_port: None,
            portmap_port: PORTMAP_PORT,
            path: if path.is_empty() { "/".to_owned() } else { path.to_owned() },
            options: Vec::new(),
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) =
                pair.split_once('=').ok_or_else(|| format!("`{text}`: `{pair}` has no `=`"))?;
            match name {
                "mountport" => url.mount_port = Some(number(name, value)?),
                "portmapport" => url.portmap_port = number(name, value)?,
                "nfsport" | "port" => url.port = Some(number(name, value)?),
                "version" | "vers" if value == "3" => {}
                "version" | "vers" => {
                    return Err(format!("`{text}`: only NFS version 3 is supported"));
                }
                _ => url.options.push((name.to_owned(), value.to_owned())),
            }
        }
        Ok(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_host_ports_and_path() {
        let url: Url = "nfs://srv:2050/a/b?mountport=7&rsize=4096".parse().unwrap();
        assert_eq!((url.host.as_str(), url.port, url.mount_port), ("srv", Some(2050), Some(7)));
        assert_eq!(url.path, "/a/b");
        assert_eq!(url.options, [("rsize".to_owned(), "4096".to_owned())]);
        let url: Url = "nfs://[::1]:5/x?version=3".parse().unwrap();
        assert_eq!((url.host.as_str(), url.port, url.path.as_str()), ("::1", Some(5), "/x"));
        let url: Url = "nfs://srv".parse().unwrap();
        assert_eq!((url.port, url.path.as_str(), url.portmap_port), (None, "/", 111));
        let url: Url = "nfs://srv/?portmapport=1111".parse().unwrap();
        assert_eq!(url.portmap_port, 1111);
        for wrong in ["nfs://", "nfs:///x", "nfs://h:0/", "nfs://h:x/", "nfs://h/x?version=4"] {
            assert!(wrong.parse::<Url>().is_err(), "{wrong}");
        }
    }
}
