//! Why an object cannot be read.

/// Why an object cannot be opened or read. Every message begins with its address, without secrets.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The text is no address.
    #[error("{address}: {what}")]
    Address {
        /// What was given.
        address: String,
        /// What is wrong with it.
        what: String,
    },
    /// The server says no.
    #[error("{address}: the server answers {status}{what}")]
    Status {
        /// The object.
        address: String,
        /// Status of HTTP with its words.
        status: String,
        /// What that means here, behind a colon; may be empty.
        what: &'static str,
    },
    /// The server sends whole objects only.
    #[error(
        "{address}: the server does not send parts of an object (a request for a range was \
         answered with {answer}); fetch the whole of it first"
    )]
    NoRanges {
        /// The object.
        address: String,
        /// Its answer.
        answer: String,
    },
    /// The server sent something else than was asked for.
    #[error("{address}: a wrong answer: asked for {asked}, the server sent {sent}")]
    Wrong {
        /// The object.
        address: String,
        /// The range that was asked for.
        asked: String,
        /// What came.
        sent: String,
    },
    /// The object is not the one that was opened.
    #[error("{address}: the object changed while it was read: {what}; open it again")]
    Changed {
        /// The object.
        address: String,
        /// What differs.
        what: String,
    },
    /// The connection failed again and again.
    #[error("{address}: {what}, {tries} times; given up")]
    Connection {
        /// The object.
        address: String,
        /// What happened the last time.
        what: String,
        /// How often it was tried.
        tries: u32,
    },
    /// The service or this machine is not set up for it.
    #[error("{address}: {what}")]
    Setup {
        /// The object.
        address: String,
        /// What is missing.
        what: String,
    },
}

impl Error {
    /// Whether the server says that there is no such object.
    pub fn is_missing(&self) -> bool {
        matches!(self, Error::Status { status, .. } if status.starts_with("404"))
    }
}
