//! Objects of ordinary web servers.

use std::ops::Range;

use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_RANGE, ETAG, HeaderMap, HeaderName, IF_MATCH, LAST_MODIFIED, RANGE,
};
use reqwest::{Client, StatusCode};
use url::Url;

use crate::Error;
use crate::address::Address;
use crate::version::{CONNECT, Failure, Part, SILENCE, Version};

/// An object behind an address.
pub(crate) struct HttpObject {
    /// As it may be shown.
    pub address: String,
    url: Url,
    client: Client,
}

impl HttpObject {
    pub fn new(address: &Address) -> Result<HttpObject, Error> {
        let shown = address.shown();
        let client = client(&shown)?;
        Ok(HttpObject { address: shown, url: address.url.clone(), client })
    }

    /// One try for a range.
    pub async fn get(&self, range: Range<u64>, known: Option<&Version>) -> Result<Part, Failure> {
        let mut request = self
            .client
            .get(self.url.clone())
            .header(RANGE, format!("bytes={}-{}", range.start, range.end - 1))
            // Ranges of what is compressed on the way would be others.
            .header(ACCEPT_ENCODING, "identity");
        if let Some(etag) = known.and_then(Version::strong) {
            request = request.header(IF_MATCH, etag);
        }
        let again = |error: reqwest::Error| Failure::Again(chain(&error.without_url()));
        let mut response = request.send().await.map_err(again)?;
        let (sent, size) = self.check(response.status(), response.headers(), &range, known)?;
        let headers = response.headers();
        let version =
            Version { size, etag: word(headers, ETAG), date: word(headers, LAST_MODIFIED) };
        let wanted = (sent.end - sent.start) as usize;
        let mut bytes = Vec::with_capacity(wanted.min((range.end - range.start) as usize));
        while let Some(chunk) = response.chunk().await.map_err(again)? {
            if bytes.len() + chunk.len() > wanted {
                let (asked, sent) = (show(&range), format!("more than {wanted} bytes"));
                let address = self.address.clone();
                return Err(Failure::Final(Error::Wrong { address, asked, sent }));
            }
            bytes.extend_from_slice(&chunk);
        }
        if bytes.len() < wanted {
            let what = format!("the connection ended after {} of {wanted} bytes", bytes.len());
            return Err(Failure::Again(what));
        }
        Ok(Part { version, bytes })
    }

    /// The range that an answer brings, and the size of the object.
    fn check(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        range: &Range<u64>,
        known: Option<&Version>,
    ) -> Result<(Range<u64>, u64), Failure> {
        let address = self.address.clone();
        let refused = |what| {
            Failure::Final(Error::Status {
                address: address.clone(),
                status: status.to_string(),
                what,
            })
        };
        match status {
            StatusCode::PARTIAL_CONTENT => {}
            StatusCode::OK => {
                let answer = status.to_string();
                return Err(Failure::Final(Error::NoRanges { address, answer }));
            }
            StatusCode::PRECONDITION_FAILED => {
                let what = match known.and_then(Version::strong) {
                    Some(etag) => format!("its ETag is not {etag} any more"),
                    None => "the server says so".to_owned(),
                };
                return Err(Failure::Final(Error::Changed { address, what }));
            }
            StatusCode::RANGE_NOT_SATISFIABLE if known.is_some() => {
                let what = format!("it has no bytes {} any more", show(range));
                return Err(Failure::Final(Error::Changed { address, what }));
            }
            StatusCode::RANGE_NOT_SATISFIABLE => return Err(refused(": the object is empty")),
            StatusCode::NOT_FOUND => return Err(refused(": there is no such object")),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Err(refused(": it wants credentials, or others"));
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
                return Err(Failure::Again(format!("the server answers {status}")));
            }
            other if other.is_server_error() => {
                return Err(Failure::Again(format!("the server answers {status}")));
            }
            _ => return Err(refused("")),
        }
        let text = word(headers, CONTENT_RANGE).unwrap_or_default();
        let parsed = content_range(&text);
        let fits = parsed
            .as_ref()
            .filter(|(sent, size)| sent.start == range.start && sent.end == range.end.min(*size));
        fits.cloned().ok_or_else(|| {
            let sent = match text.is_empty() {
                true => "no Content-Range".to_owned(),
                false => format!("`{text}`"),
            };
            Failure::Final(Error::Wrong { address, asked: show(range), sent })
        })
    }
}

/// Sends requests, with the patience of this crate; `shown` is the address in the error.
///
/// # Errors
/// This machine is not set up for it.
pub(crate) fn client(shown: &str) -> Result<Client, Error> {
    let client = Client::builder()
        .connect_timeout(CONNECT)
        .read_timeout(SILENCE)
        .user_agent(concat!("iopath/", env!("CARGO_PKG_VERSION")))
        .build();
    client.map_err(|error| Error::Setup { address: shown.to_owned(), what: chain(&error) })
}

fn show(range: &Range<u64>) -> String {
    format!("{}-{}", range.start, range.end - 1)
}

/// The value of a header, where it is there and is text.
pub(crate) fn word(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// `bytes 0-99/1000` as the range and the size.
fn content_range(text: &str) -> Option<(Range<u64>, u64)> {
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, size) = (first.parse().ok()?, last.parse::<u64>().ok()?, size.parse().ok()?);
    (first <= last && last < size).then(|| (first..last + 1, size))
}

/// An error with its causes, which say more than itself.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges_are_read_strictly() {
        assert_eq!(content_range("bytes 0-99/1000"), Some((0..100, 1000)));
        assert_eq!(content_range("bytes 999-999/1000"), Some((999..1000, 1000)));
        for wrong in ["", "bytes */1000", "bytes 0-99/*", "bytes 5-4/10", "bytes 0-10/10", "0-9/10"]
        {
            assert_eq!(content_range(wrong), None, "{wrong}");
        }
    }
}
