//! The addresses of objects.

use url::Url;

use crate::Error;

/// The schemes that are known.
const SCHEMES: [&str; 5] = ["http", "https", "s3", "gs", "az"];

/// Whether a text begins as an address that [`crate::open`] takes.
pub fn is_address(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| SCHEMES.contains(&scheme))
}

/// An address in its parts.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub url: Url,
}

impl Address {
    pub fn parse(text: &str) -> Result<Address, Error> {
        let wrong = |what: String| Error::Address { address: text.to_owned(), what };
        let url = Url::parse(text).map_err(|error| wrong(error.to_string()))?;
        if !SCHEMES.contains(&url.scheme()) {
            return Err(wrong(format!("`{}://` is not supported", url.scheme())));
        }
        let address = Address { url };
        if address.url.host_str().unwrap_or_default().is_empty() || address.key().is_empty() {
            let form =
                "http(s)://HOST/PATH, s3://BUCKET/KEY, gs://BUCKET/KEY or az://CONTAINER/KEY";
            return Err(wrong(format!("an address is {form}")));
        }
        Ok(address)
    }

    /// The bucket, container or host.
    pub fn bucket(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// The path without the first slash, as it is written.
    pub fn key(&self) -> &str {
        self.url.path().trim_start_matches('/')
    }

    /// What may be shown and stored: without user, password and query, which may be secrets.
    pub fn shown(&self) -> String {
        let mut url = self.url.clone();
        url.set_query(None);
        url.set_fragment(None);
        // Neither fails on an address with a host.
        let _host_is_there = (url.set_username(""), url.set_password(None));
        url.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_secrets() {
        let shown = |text: &str| Address::parse(text).map(|address| address.shown());
        let signed = "https://user:pass@host:8080/a/disk.img?X-Amz-Signature=secret#x";
        assert_eq!(shown(signed).unwrap(), "https://host:8080/a/disk.img");
        assert_eq!(shown("s3://bucket/a/b.qcow2").unwrap(), "s3://bucket/a/b.qcow2");
        for wrong in ["ftp://host/x", "s3://bucket", "s3:///key", "https://host/", "nothing"] {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
        assert!(is_address("az://c/k") && !is_address("/a/b") && !is_address("nbd://host/x"));
    }
}
