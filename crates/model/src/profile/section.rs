//! Reading one table of a profile: every key by name, every unknown key refused.

use super::ProfileError;
use crate::quantity::Quantity;
use std::cell::RefCell;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One value of a profile as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// Section and key, as `device.write_latency`.
    pub key: String,
    /// The value as it stands in the file.
    pub value: String,
    /// Where the number comes from.
    pub source: Option<String>,
}

/// The text of a profile, for messages.
pub(crate) struct Text<'t> {
    pub file: &'t str,
    pub text: &'t str,
}

impl Text<'_> {
    pub fn line(&self, at: usize) -> usize {
        self.text[..at.min(self.text.len())].matches('\n').count() + 1
    }

    fn slice(&self, span: Range<usize>) -> &str {
        self.text.get(span).unwrap_or_default()
    }
}

/// One table that is being read.
pub(crate) struct Section<'t> {
    text: &'t Text<'t>,
    path: String,
    at: usize,
    table: &'t DeTable<'t>,
    asked: RefCell<Vec<&'static str>>,
    taken: RefCell<Vec<Parameter>>,
}

impl<'t> Section<'t> {
    pub fn new(text: &'t Text<'t>, path: &str, at: usize, table: &'t DeTable<'t>) -> Self {
        let (asked, taken) = (RefCell::default(), RefCell::default());
        Section { text, path: path.to_owned(), at, table, asked, taken }
    }

    fn find(&self, key: &'static str) -> Option<&'t Spanned<DeValue<'t>>> {
        let mut asked = self.asked.borrow_mut();
        if !asked.contains(&key) {
            asked.push(key);
        }
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    fn path(&self, key: &str) -> String {
        match self.path.is_empty() {
            true => key.to_owned(),
            false => format!("{}.{key}", self.path),
        }
    }

    /// The error that says that a key does not hold what belongs there.
    pub fn wrong(&self, key: &str, accepted: impl Into<String>) -> ProfileError {
        let found = self.table.iter().find(|(name, _)| name.get_ref() == key);
        let (at, value) = match found {
            Some((_, value)) => {
                (value.span().start, self.text.slice(value.span()).replace('\n', " "))
            }
            None => (self.at, "missing".to_owned()),
        };
        ProfileError::Value {
            file: self.text.file.to_owned(),
            line: self.text.line(at),
            key: self.path(key),
            value,
            accepted: accepted.into(),
        }
    }

    /// The value of a key, if it is there: `key = VALUE`, or with its source
    /// `key = { value = VALUE, source = "where from" }`.
    pub fn get<T: Quantity>(&self, key: &'static str) -> Result<Option<T>, ProfileError> {
        let Some(entry) = self.find(key) else { return Ok(None) };
        let (value, source) = match entry.get_ref() {
            DeValue::Table(table) => self.with_source(key, table)?,
            _ => (entry, None),
        };
        let quantity = T::read(value.get_ref()).ok_or_else(|| self.wrong(key, T::ACCEPTED))?;
        let written = self.text.slice(value.span()).trim_matches('"').to_owned();
        let parameter = Parameter { key: self.path(key), value: written, source };
        self.taken.borrow_mut().push(parameter);
        Ok(Some(quantity))
    }

    #[allow(clippy::type_complexity, reason = "used once, right above")]
    fn with_source(
        &self,
        key: &'static str,
        table: &'t DeTable<'t>,
    ) -> Result<(&'t Spanned<DeValue<'t>>, Option<String>), ProfileError> {
        let field = |name: &str| table.iter().find(|(key, _)| key.get_ref() == name);
        let known = |(name, _): &(&Spanned<_>, &Spanned<_>)| {
            let name: &std::borrow::Cow<'_, str> = name.get_ref();
            name == "value" || name == "source"
        };
        let (Some((_, value)), true) = (field("value"), table.iter().all(|pair| known(&pair)))
        else {
            return Err(self.wrong(key, "give { value = .., source = \"where it is from\" }"));
        };
        let source = match field("source") {
            None => None,
            Some((_, source)) => {
                let text = String::read(source.get_ref());
                Some(text.ok_or_else(|| self.wrong(key, "its source must be a text"))?)
            }
        };
        Ok((value, source))
    }

    /// The value of a key that must be there.
    pub fn need<T: Quantity>(&self, key: &'static str) -> Result<T, ProfileError> {
        self.get(key)?.ok_or_else(|| self.wrong(key, T::ACCEPTED))
    }

    /// The value of a key, or `default` where it is missing.
    pub fn or<T: Quantity>(&self, key: &'static str, default: T) -> Result<T, ProfileError> {
        Ok(self.get(key)?.unwrap_or(default))
    }

    /// A whole number that must be there and in `range`.
    pub fn count(
        &self,
        key: &'static str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<u64, ProfileError> {
        let number: u64 = self.need(key)?;
        let (low, high) = (range.start(), range.end());
        match range.contains(&number) {
            true => Ok(number),
            false => Err(self.wrong(key, format!("give a whole number from {low} to {high}"))),
        }
    }

    /// A whole number in `range`, or `default` where it is missing.
    pub fn count_or(
        &self,
        key: &'static str,
        range: std::ops::RangeInclusive<u64>,
        default: u64,
    ) -> Result<u64, ProfileError> {
        match self.find(key) {
            Some(_) => self.count(key, range),
            None => Ok(default),
        }
    }

    /// A sub-table.
    pub fn section(&self, key: &'static str) -> Result<Option<Section<'t>>, ProfileError> {
        let Some(entry) = self.find(key) else { return Ok(None) };
        match entry.get_ref() {
            DeValue::Table(table) => {
                let path = self.path(key);
                Ok(Some(Section::new(self.text, &path, entry.span().start, table)))
            }
            _ => Err(self.wrong(key, format!("write a section [{}]", self.path(key)))),
        }
    }

    /// Refuses keys that nobody asked for; hands out what was read.
    pub fn finish(self) -> Result<Vec<Parameter>, ProfileError> {
        self.refuse_strangers()?;
        Ok(self.taken.take())
    }

    /// Refuses keys that nobody asked for by now.
    pub fn refuse_strangers(&self) -> Result<(), ProfileError> {
        let asked = self.asked.borrow();
        let stranger = self.table.iter().map(|(name, _)| name).find(|name| {
            let name: &str = name.get_ref();
            !asked.contains(&name)
        });
        match stranger {
            None => Ok(()),
            Some(name) => Err(ProfileError::Value {
                file: self.text.file.to_owned(),
                line: self.text.line(name.span().start),
                key: self.path(name.get_ref()),
                value: "not known here".to_owned(),
                accepted: format!("known are: {}", asked.join(", ")),
            }),
        }
    }
}
