//! Where a front end's text goes.

/// Takes the text that the real tool would print, as it arises. Each piece ends with a newline
/// unless the tool's own does not.
pub trait Sink {
    /// Text for standard output.
    fn out(&mut self, text: &str);
    /// Text for standard error.
    fn err(&mut self, text: &str);
    /// Text for the tool's log file.
    fn log(&mut self, text: &str);
}

/// Drops everything: who wants figures reads the report.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullSink;

impl Sink for NullSink {
    fn out(&mut self, _text: &str) {}
    fn err(&mut self, _text: &str) {}
    fn log(&mut self, _text: &str) {}
}

/// Keeps everything.
#[derive(Clone, Debug, Default)]
pub struct TextSink {
    /// What went to standard output.
    pub out: String,
    /// What went to standard error.
    pub err: String,
    /// What went to the log file.
    pub log: String,
}

impl Sink for TextSink {
    fn out(&mut self, text: &str) {
        self.out.push_str(text);
    }
    fn err(&mut self, text: &str) {
        self.err.push_str(text);
    }
    fn log(&mut self, text: &str) {
        self.log.push_str(text);
    }
}
