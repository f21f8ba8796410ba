//! Files of options as `mkfs.xfs -c options=FILE` reads them: sections of words.

use super::{MkfsOptions, OptionError};

/// The sections, and the letters of the options that they stand for.
const SECTIONS: [(&str, char); 8] = [
    ("block", 'b'),
    ("data", 'd'),
    ("inode", 'i'),
    ("log", 'l'),
    ("metadata", 'm'),
    ("naming", 'n'),
    ("realtime", 'r'),
    ("sector", 's'),
];

/// What is wrong with a file of options.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfError {
    /// A line that is neither a section nor `key=value`, or stands before the first section.
    #[error("line {line}: `{text}` is neither a [section] nor key=value below one")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What it says.
        text: String,
    },
    /// A section that is not known.
    #[error("line {line}: there is no section [{name}]")]
    Section {
        /// Its number, from 1.
        line: usize,
        /// The section's name.
        name: String,
    },
    /// A word that cannot be used.
    #[error("line {line}: {error}")]
    Word {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        error: OptionError,
    },
}

impl MkfsOptions {
    /// Takes the words of a file of options. Lines that begin with `#` or `;` are passed over.
    ///
    /// # Errors
    /// The first line that cannot be used.
    pub fn edit_file(&mut self, text: &str) -> Result<(), ConfError> {
        let mut section = None;
        for (index, whole) in text.lines().enumerate() {
            let (line, whole) = (index + 1, whole.trim());
            if whole.is_empty() || whole.starts_with(['#', ';']) {
                continue;
            }
            let name = whole.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            if let Some(name) = name {
                let known = SECTIONS.iter().find(|row| row.0 == name.trim());
                let wrong = || ConfError::Section { line, name: name.trim().to_string() };
                section = Some(known.ok_or_else(wrong)?.1);
                continue;
            }
            let wrong = || ConfError::Line { line, text: whole.to_string() };
            let (key, value) = whole.split_once('=').ok_or_else(wrong)?;
            let letter = section.ok_or_else(wrong)?;
            // What follows a `;` behind a space says nothing.
            let value = value.split(" ;").next().unwrap_or_default();
            let word = format!("{}={}", key.trim(), value.trim());
            self.edit(letter, &word).map_err(|error| ConfError::Word { line, error })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_say_what_the_command_line_says() {
        let mut options = MkfsOptions::default();
        let text =
            "# for a kernel\n[metadata]\nbigtime = 0 ; old\n rmapbt=1\n\n[inode]\nsize=1024\n";
        options.edit_file(text).expect("known");
        assert!(!options.bigtime && options.rmapbt);
        assert_eq!(options.inode_size, 1024);
        for (text, message) in [
            ("size=1\n", "line 1: `size=1` is neither"),
            ("[inode]\nsize\n", "line 2: `size` is neither"),
            ("[quota]\n", "line 1: there is no section [quota]"),
            ("[inode]\nsize=x\n", "line 2: -i size=x: not a number"),
        ] {
            let error = MkfsOptions::default().edit_file(text).expect_err("refused").to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
