//! What is wrong with a profile, and where.

/// A profile cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProfileError {
    /// Neither the name of a built-in profile nor a file that can be read.
    #[error("there is no machine `{name}` ({why}); built in are: {known}")]
    NotFound {
        /// What was asked for.
        name: String,
        /// Why it is no file either.
        why: String,
        /// The names of the built-in profiles.
        known: String,
    },
    /// The file is not TOML.
    #[error("{file}:{line}: {message}")]
    Syntax {
        /// Name of the file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What the parser says.
        message: String,
    },
    /// A value is not what belongs there.
    #[error("{file}:{line}: `{key}` is {value}; {accepted}")]
    Value {
        /// Name of the file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// The key with its section.
        key: String,
        /// The value as it stands in the file, or "missing".
        value: String,
        /// What would be accepted.
        accepted: String,
    },
    /// The machine is well described, but cannot do what is asked of it.
    #[error("machine `{machine}`: {what}")]
    Unfit {
        /// Name of the machine.
        machine: String,
        /// What does not fit, with the numbers.
        what: String,
    },
}
