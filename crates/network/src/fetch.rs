//! Fetches one range of an object: tries again if that can help, and compares the object with the
//! version that was opened.

use std::ops::Range;
use std::time::Duration;

use crate::Error;
use crate::http::HttpObject;
use crate::store::StoreObject;
use crate::version::{Failure, Part, SILENCE, Version};

/// How often a range is asked for.
const TRIES: u32 = 6;
/// Wait before the second try; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// A range may take [`SILENCE`] and a second for so many bytes; slower servers are given up.
const SLOWEST: u64 = 64 << 10;

/// An object on a server.
pub(crate) enum Object {
    Http(HttpObject),
    Store(StoreObject),
}

impl Object {
    /// The address as it may be shown.
    pub fn address(&self) -> &str {
        match self {
            Object::Http(object) => &object.address,
            Object::Store(object) => &object.address,
        }
    }

    /// Fetches a range. Of the version `known`, exactly; where that is not known, as much of the
    /// range as there is.
    ///
    /// # Errors
    /// The last one, where nothing helped.
    pub async fn fetch(&self, range: Range<u64>, known: Option<&Version>) -> Result<Part, Error> {
        let (mut wait, mut last) = (FIRST_WAIT, String::new());
        let limit = SILENCE + Duration::from_secs((range.end - range.start) / SLOWEST);
        for number in 0..TRIES {
            if number > 0 {
                tokio::time::sleep(wait).await;
                wait *= 2;
            }
            let once = self.once(range.clone(), known);
            match tokio::time::timeout(limit, once).await {
                Ok(Ok(part)) => return self.verify(part, range, known),
                Ok(Err(Failure::Final(error))) => return Err(error),
                Ok(Err(Failure::Again(what))) => last = what,
                Err(_) => last = format!("a range took more than {} s", limit.as_secs()),
            }
        }
        let address = self.address().to_owned();
        Err(Error::Connection { address, what: last, tries: TRIES })
    }

    async fn once(&self, range: Range<u64>, known: Option<&Version>) -> Result<Part, Failure> {
        match self {
            Object::Http(object) => object.get(range, known).await,
            Object::Store(object) => object.get(range, known).await,
        }
    }

    /// Compares an answer with what was asked for.
    fn verify(
        &self,
        part: Part,
        range: Range<u64>,
        known: Option<&Version>,
    ) -> Result<Part, Error> {
        let address = || self.address().to_owned();
        if let Some(what) = known.and_then(|known| known.differs(&part.version)) {
            return Err(Error::Changed { address: address(), what });
        }
        let wanted = range.end.min(part.version.size).saturating_sub(range.start);
        if part.bytes.len() as u64 != wanted {
            let asked = format!("{wanted} bytes from {}", range.start);
            let sent = format!("{} bytes", part.bytes.len());
            return Err(Error::Wrong { address: address(), asked, sent });
        }
        Ok(part)
    }
}
