//! One version of an object, and the result of one attempt to read a part of it.

use std::time::Duration;

use crate::Error;

/// Longest silence of a server before an answer and inside of one.
pub(crate) const SILENCE: Duration = Duration::from_secs(20);
/// Longest time for a connection.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);
/// What makes an object this object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Version {
    pub size: u64,
    pub etag: Option<String>,
    /// Last-Modified, as it was sent.
    pub date: Option<String>,
}

impl Version {
    /// The ETag, where it says that the bytes are the same.
    pub fn strong(&self) -> Option<&str> {
        self.etag.as_deref().filter(|etag| !etag.starts_with("W/"))
    }

    /// What differs in an answer, in words.
    pub fn differs(&self, now: &Version) -> Option<String> {
        if self.size != now.size {
            return Some(format!("it had {} bytes, now {}", self.size, now.size));
        }
        let shown = |tag: &Option<String>| tag.clone().unwrap_or_else(|| "none".to_owned());
        if self.etag != now.etag {
            return Some(format!("its ETag was {}, now {}", shown(&self.etag), shown(&now.etag)));
        }
        let dates = self.strong().is_none() && self.date != now.date;
        dates.then(|| format!("it was of {}, now {}", shown(&self.date), shown(&now.date)))
    }
}

/// A part of an object, as it came.
pub(crate) struct Part {
    pub version: Version,
    pub bytes: Vec<u8>,
}

/// Why a try failed.
pub(crate) enum Failure {
    /// Another try may help.
    Again(String),
    /// Nothing helps.
    Final(Error),
}
