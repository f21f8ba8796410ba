//! The grammar of job files: sections, keys, comments, variables.

use super::error::{JobError, JobErrors, Span};

/// Mistakes that are collected before the reader gives up.
const ERRORS_MAX: usize = 20;
/// Depth of `include`.
const INCLUDE_MAX: u32 = 8;

/// What a job file may ask about its surroundings. The library itself asks nobody.
pub struct Surroundings<'a> {
    /// The value of an environment variable; nothing where it is not set.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The text of a file that is included.
    pub include: &'a dyn Fn(&str) -> Result<String, String>,
    /// `$ncpus`.
    pub cpus: u64,
    /// `$pagesize`, bytes.
    pub page_size: u64,
    /// `$mb_memory`, MiB.
    pub memory_mib: u64,
}

impl Default for Surroundings<'_> {
    /// No variable is set, nothing can be included; one processor, pages of 4096 bytes, no memory.
    fn default() -> Self {
        Surroundings {
            variable: &|_| None,
            include: &|_| Err("no file can be included here".into()),
            cpus: 1,
            page_size: 4096,
            memory_mib: 0,
        }
    }
}

/// `key=value` with its place. A bare key has an empty value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The key, as written.
    pub key: String,
    /// The value, variables replaced.
    pub value: String,
    /// The key's place.
    pub key_span: Span,
    /// The value's place; the key's where there is none.
    pub value_span: Span,
}

/// `[name]` and what follows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Section {
    /// The name.
    pub name: String,
    /// Where the section begins.
    pub span: Span,
    /// Its settings in order.
    pub settings: Vec<Setting>,
}

/// Reads a job file into its sections.
///
/// # Errors
/// All mistakes of the grammar, up to 20.
pub fn sections(file: &str, text: &str, around: &Surroundings) -> Result<Vec<Section>, JobErrors> {
    let mut reader = Reader { around, sections: Vec::new(), errors: Vec::new() };
    reader.read(file, text, 0);
    if reader.errors.is_empty() { Ok(reader.sections) } else { Err(JobErrors(reader.errors)) }
}

/// Reads `key=value` or `key`, as they stand on a command line without the dashes.
pub fn setting(text: &str, around: &Surroundings) -> Setting {
    let span = |start: usize, len: usize| Span {
        file: "command line".into(),
        line: 0,
        text: text.into(),
        start,
        len: len.max(1),
    };
    split_setting(text, 0, &span, around)
}

fn split_setting(
    line: &str,
    from: usize,
    span: &dyn Fn(usize, usize) -> Span,
    around: &Surroundings,
) -> Setting {
    let body = line[from..].trim_end();
    let Some(at) = body.find('=') else {
        let key_span = span(from, body.len());
        let value_span = key_span.clone();
        return Setting { key: body.into(), value: String::new(), key_span, value_span };
    };
    let (key, raw) = (body[..at].trim_end(), &body[at + 1..]);
    let value = raw.trim();
    let start = from + at + 1 + (raw.len() - raw.trim_start().len());
    Setting {
        key: key.into(),
        value: expand(value, around),
        key_span: span(from, key.len()),
        value_span: span(start.min(line.len()), value.len()),
    }
}

/// Replaces `${NAME}` and the known `$name`.
fn expand(value: &str, around: &Surroundings) -> String {
    let mut out = String::new();
    let mut rest = value;
    while let Some(at) = rest.find("${") {
        let Some(end) = rest[at..].find('}') else { break };
        out.push_str(&rest[..at]);
        out.push_str(&(around.variable)(&rest[at + 2..at + end]).unwrap_or_default());
        rest = &rest[at + end + 1..];
    }
    out.push_str(rest);
    for (name, number) in [
        ("$pagesize", around.page_size.to_string()),
        ("$mb_memory", format!("{}m", around.memory_mib)),
        ("$ncpus", around.cpus.to_string()),
    ] {
        if out.contains(name) {
            out = out.replace(name, &number);
        }
    }
    out
}

struct Reader<'a, 's> {
    around: &'a Surroundings<'s>,
    sections: Vec<Section>,
    errors: Vec<JobError>,
}

impl Reader<'_, '_> {
    fn read(&mut self, file: &str, text: &str, depth: u32) {
        for (number, line) in text.lines().enumerate() {
            if self.errors.len() >= ERRORS_MAX {
                return;
            }
            let span = |start: usize, len: usize| Span {
                file: file.into(),
                line: number as u32 + 1,
                text: line.into(),
                start,
                len: len.max(1),
            };
            let start = line.len() - line.trim_start().len();
            let body = line.trim();
            if body.is_empty() || body.starts_with([';', '#']) {
                continue;
            }
            if body.starts_with('[') {
                self.section(body, span(start, body.len()), depth);
            } else if let Some(name) = body.strip_prefix("include ") {
                self.include(name.trim(), span(start, body.len()), depth);
            } else {
                self.line(line, start, &span);
            }
        }
    }

    fn fail(&mut self, span: Span, message: impl Into<String>) {
        self.errors.push(JobError { span, message: message.into(), hint: None });
    }

    fn section(&mut self, body: &str, span: Span, depth: u32) {
        let Some(name) = body.strip_prefix('[').and_then(|name| name.strip_suffix(']')) else {
            return self.fail(span, format!("`{body}` does not end with `]`"));
        };
        if depth > 0 {
            return self.fail(span, "an included file has no sections of its own");
        }
        if name.is_empty() {
            return self.fail(span, "a section needs a name");
        }
        self.sections.push(Section { name: name.into(), span, settings: Vec::new() });
    }

    fn include(&mut self, name: &str, span: Span, depth: u32) {
        if depth >= INCLUDE_MAX {
            return self.fail(span, format!("include: `{name}` is more than {INCLUDE_MAX} deep"));
        }
        match (self.around.include)(name) {
            Ok(text) => self.read(name, &text, depth + 1),
            Err(reason) => self.fail(span, format!("include: `{name}`: {reason}")),
        }
    }

    fn line(&mut self, line: &str, start: usize, span: &dyn Fn(usize, usize) -> Span) {
        let setting = split_setting(line, start, span, self.around);
        if setting.key.is_empty() {
            return self.fail(span(start, 1), "a value without a key");
        }
        match self.sections.last_mut() {
            Some(section) => section.settings.push(setting),
            None => self.fail(setting.key_span, "stands before the first section `[name]`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_keys_comments_and_variables() {
        let around = Surroundings {
            variable: &|name| (name == "SIZE").then(|| "8m".to_string()),
            include: &|name| match name {
                "more.fio" => Ok("iodepth=4\n".to_string()),
                _ => Err("no such file".into()),
            },
            ..Surroundings::default()
        };
        let text = "; note\n[global]\n  bs = 4k \n\n# note\n[a]\nsize=${SIZE}\ntime_based\n\
                    include more.fio\nfilename=x${NONE}y\nbsrange=$pagesize-8k\n";
        let sections = sections("t", text, &around).unwrap();
        assert_eq!(sections.len(), 2);
        let pairs: Vec<(&str, &str)> =
            sections[1].settings.iter().map(|s| (s.key.as_str(), s.value.as_str())).collect();
        let expected = [
            ("size", "8m"),
            ("time_based", ""),
            ("iodepth", "4"),
            ("filename", "xy"),
            ("bsrange", "4096-8k"),
        ];
        assert_eq!(pairs, expected);
        let bs = &sections[0].settings[0];
        assert_eq!((bs.key.as_str(), bs.value.as_str(), bs.value_span.start), ("bs", "4k", 7));
    }

    #[test]
    fn mistakes_are_collected_with_their_lines() {
        let text = "bs=4k\n[a\n[]\n=3\n[ok]\ninclude nowhere\n";
        let errors = sections("t.fio", text, &Surroundings::default()).unwrap_err();
        let lines: Vec<u32> = errors.0.iter().map(|error| error.span.line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 6]);
        assert!(errors.to_string().starts_with("t.fio:1:1: stands before"));
    }

    #[test]
    fn a_file_that_includes_itself_ends() {
        let around =
            Surroundings { include: &|_| Ok("include me\n".into()), ..Surroundings::default() };
        let errors = sections("me", "[a]\ninclude me\n", &around).unwrap_err();
        assert!(errors.to_string().contains("deep"));
    }
}
