//! An object of S3 is replaced by a new content: parts that did not change are copied by the store,
//! the others are sent, and the object becomes the new one at once, if it is still the old one.
//!
//! Source: Amazon, "Amazon Simple Storage Service API Reference" (CreateMultipartUpload,
//! UploadPart, UploadPartCopy, CompleteMultipartUpload, AbortMultipartUpload), and "Checking object
//! integrity" in its user guide: the ETag of an object of several parts.

use std::io;
use std::ops::Range;

use md5::{Digest, Md5};
use reqwest::Method;
use reqwest::header::{ETAG, HeaderName, IF_MATCH};

use crate::Error;
use crate::address::Address;
use crate::http::word;
use crate::kept;
use crate::s3::{Client, between};

/// Least bytes of a part that is sent: at least the 5 MiB that S3 asks for.
const PART: u64 = 8 << 20;
/// Parts of an object.
const PARTS: u64 = 10_000;
/// Most bytes of a part that the store copies; S3 takes 5 GiB.
const COPY: u64 = 1 << 30;
/// Where a part is copied from, and the version that it must have.
const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");
const COPY_IF_MATCH: HeaderName = HeaderName::from_static("x-amz-copy-source-if-match");
const COPY_RANGE: HeaderName = HeaderName::from_static("x-amz-copy-source-range");

/// The new content of an object.
pub trait Content {
    /// Its bytes.
    fn size(&self) -> u64;

    /// Whether some byte of a range may be another one than in the object.
    ///
    /// # Errors
    /// It cannot be said.
    fn differs(&self, range: Range<u64>) -> io::Result<bool>;

    /// Fills `buf` from byte `offset` on.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// So many bytes more are in the store.
    ///
    /// # Errors
    /// The work is to end here; the object stays as it was.
    fn done(&mut self, bytes: u64) -> io::Result<()>;
}

/// What replacing an object took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replaced {
    /// Bytes that were sent.
    pub sent: u64,
    /// Bytes that the store copied.
    pub copied: u64,
}

/// A part of the new object.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Part {
    range: Range<u64>,
    is_sent: bool,
}

/// How an object is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replacing {
    /// No credentials are looked for.
    pub anonymous: bool,
    /// The object gets metadata, tags and an access list as every new one, not those that it has.
    pub new_properties: bool,
}

/// Replaces an object of `s3://`, whose version is `etag`, by `content`. Waits in the calling
/// thread.
///
/// # Errors
/// Another kind of address; the object is not that version any more; the store refuses, or the
/// content cannot be read. Then the object is as it was, unless the error says that nobody knows.
pub fn replace(
    address: &str,
    etag: &str,
    content: &mut dyn Content,
    how: Replacing,
) -> Result<Replaced, Error> {
    let address = Address::parse(address)?;
    if address.url.scheme() != "s3" {
        let what = "is not replaced in parts; s3:// is".to_owned();
        return Err(Error::Address { address: address.shown(), what });
    }
    let client = Client::new(&address, how.anonymous)?;
    let parts = plan(content).map_err(|error| unread(&client, error))?;
    let kept = if how.new_properties { Vec::new() } else { kept::of(&client)? };
    let begun = client.send(Method::POST, "uploads=", &kept, Vec::new())?;
    let id = between(&begun.body, "UploadId").ok_or_else(|| client.strange(&begun))?;
    let upload = Upload { client: &client, id, etag, from: address };
    let result = upload.fill(&parts, content);
    if result.is_err() {
        let query = format!("uploadId={}", upload.id);
        let _the_store_forgets_it_by_itself = client.send(Method::DELETE, &query, &[], Vec::new());
    }
    result
}

fn unread(client: &Client, error: io::Error) -> Error {
    Error::Setup { address: client.shown.clone(), what: error.to_string() }
}

/// Cuts the content into parts: those that differ, and runs of those that do not. A part that is
/// copied is no smaller than one that is sent, but for the last one.
fn plan(content: &dyn Content) -> io::Result<Vec<Part>> {
    let size = content.size();
    let unit = PART.max(size.div_ceil(PARTS).next_multiple_of(1 << 20));
    let mut parts: Vec<Part> = Vec::new();
    for start in (0..size).step_by(unit as usize) {
        let range = start..(start + unit).min(size);
        // S3 copies parts of objects that are larger than 5 MiB.
        let is_sent = size <= PART || content.differs(range.clone())?;
        match parts.last_mut() {
            Some(last) if !is_sent && !last.is_sent && range.end - last.range.start <= COPY => {
                last.range.end = range.end;
            }
            _ => parts.push(Part { range, is_sent }),
        }
    }
    Ok(parts)
}

/// An upload that was begun.
struct Upload<'a> {
    client: &'a Client,
    id: String,
    etag: &'a str,
    from: Address,
}

impl Upload<'_> {
    fn fill(&self, parts: &[Part], content: &mut dyn Content) -> Result<Replaced, Error> {
        let client = self.client;
        let mut replaced = Replaced::default();
        let mut list = String::from("<CompleteMultipartUpload>");
        let mut tags = Vec::new();
        for (number, part) in (1..).zip(parts) {
            let len = part.range.end - part.range.start;
            let query = format!("partNumber={number}&uploadId={}", self.id);
            let tag = match part.is_sent {
                true => {
                    let mut bytes = vec![0; len as usize];
                    let read = content.read(part.range.start, &mut bytes);
                    read.map_err(|error| unread(client, error))?;
                    replaced.sent += len;
                    self.sent(&query, bytes)?
                }
                false => {
                    replaced.copied += len;
                    self.copied(&query, &part.range)?
                }
            };
            tags.push(tag.clone());
            list.push_str(&format!(
                "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"
            ));
            content.done(len).map_err(|error| unread(client, error))?;
        }
        list.push_str("</CompleteMultipartUpload>");
        // A store that does not look at the condition below has a moment left, no more.
        self.is_still_the_same()?;
        let query = format!("uploadId={}", self.id);
        let condition = [(IF_MATCH, self.etag.to_owned())];
        let done = client.send(Method::POST, &query, &condition, list.into_bytes());
        let done = done.and_then(|done| match between(&done.body, "Error") {
            // The answer begins before the store has done it.
            Some(_) => Err(client.strange(&done)),
            None => Ok(()),
        });
        match done {
            Ok(()) => Ok(replaced),
            Err(error) => self.in_spite_of(error, &tags).map(|()| replaced),
        }
    }

    /// The last request failed: an answer may have been lost, after which the store says to a
    /// second request that it knows no such upload, or that the object is another one.
    fn in_spite_of(&self, error: Error, tags: &[String]) -> Result<(), Error> {
        let Err(now) = self.is_still_the_same() else { return Err(error) };
        let Error::Changed { what, .. } = &now else {
            let what = format!("{error}; whether the object is replaced is unknown: {now}");
            return Err(Error::Setup { address: self.client.shown.clone(), what });
        };
        let ours = joined(tags).is_some_and(|tag| what.ends_with(&format!("now {tag}")));
        if ours { Ok(()) } else { Err(now) }
    }

    fn is_still_the_same(&self) -> Result<(), Error> {
        let answer = self.client.send(Method::HEAD, "", &[], Vec::new())?;
        let tag = word(&answer.headers, ETAG);
        if tag.as_deref() == Some(self.etag) {
            return Ok(());
        }
        let tag = tag.as_deref().unwrap_or("none");
        let what = format!("its ETag was {}, now {tag}", self.etag);
        Err(Error::Changed { address: self.client.shown.clone(), what })
    }

    fn sent(&self, query: &str, bytes: Vec<u8>) -> Result<String, Error> {
        let answer = self.client.send(Method::PUT, query, &[], bytes)?;
        let tag = word(&answer.headers, ETAG);
        tag.map(|tag| quoted(&tag)).ok_or_else(|| self.client.strange(&answer))
    }

    fn copied(&self, query: &str, range: &Range<u64>) -> Result<String, Error> {
        let headers = [
            (COPY_SOURCE, format!("/{}/{}", self.from.bucket(), self.from.key())),
            (COPY_IF_MATCH, self.etag.to_owned()),
            (COPY_RANGE, format!("bytes={}-{}", range.start, range.end - 1)),
        ];
        let answer = self.client.send(Method::PUT, query, &headers, Vec::new())?;
        let tag = between(&answer.body, "ETag");
        tag.ok_or_else(|| self.client.strange(&answer))
    }
}

/// The ETag of an object of parts that have these: the MD5 of theirs, and how many they are. None
/// where theirs are no MD5, as with keys of the user.
fn joined(tags: &[String]) -> Option<String> {
    let mut sum = Md5::new();
    for tag in tags {
        let digits = tag.replace("&quot;", "").replace("&#34;", "").replace('"', "");
        let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect::<Option<_>>()?;
        (bytes.len() == 16).then(|| sum.update(&bytes))?;
    }
    let digits: String = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("\"{digits}-{}\"", tags.len()))
}

/// An ETag as the text of an element.
fn quoted(tag: &str) -> String {
    tag.replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Changed(u64, Vec<u64>);

    impl Content for Changed {
        fn size(&self) -> u64 {
            self.0
        }

        fn differs(&self, range: Range<u64>) -> io::Result<bool> {
            Ok(self.1.iter().any(|at| range.contains(at)))
        }

        fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
            Ok(())
        }

        fn done(&mut self, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn parts_cover_the_object_and_keep_the_limits_of_s3() {
        for (size, changed) in [
            (1, vec![]),
            (PART, vec![0]),
            (10 * PART + 5, vec![3 * PART, 3 * PART + 1, 10 * PART]),
            (5 << 30, vec![1 << 30]),
            (5 << 40, vec![]),
        ] {
            let parts = plan(&Changed(size, changed.clone())).unwrap();
            assert!(parts.len() as u64 <= PARTS);
            assert_eq!((parts[0].range.start, parts[parts.len() - 1].range.end), (0, size));
            for pair in parts.windows(2) {
                assert_eq!(pair[0].range.end, pair[1].range.start);
                assert!(pair[0].range.end - pair[0].range.start >= 5 << 20);
            }
            for at in changed {
                let part = parts.iter().find(|part| part.range.contains(&at)).unwrap();
                assert!(part.is_sent);
            }
            let longest = parts.iter().map(|part| part.range.end - part.range.start).max();
            assert!(longest <= Some(5 << 30));
        }
    }
}
