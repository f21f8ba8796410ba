//! What was found as one HTML page: figures, stories, and a picture of the log for each finding.

use minijinja::Environment;
use minijinja::value::Serde;
use serde::Serialize;

use device::Event;

use crate::explore::{Exploration, Outcome};
use crate::log::{Header, Log, Note};
use crate::story::Story;

/// Columns of a picture.
const WIDTH: usize = 960;
/// Entries that a picture shows around a cut, at most.
const AROUND: usize = 240;

/// One sign of a picture.
#[derive(Serialize)]
struct Sign {
    x: usize,
    width: usize,
    class: &'static str,
    title: String,
}

/// One finding with its picture.
#[derive(Serialize)]
struct Shown<'a> {
    story: &'a Story,
    text: String,
    signs: Vec<Sign>,
    cut: usize,
}

/// All of it.
#[derive(Serialize)]
struct Page<'a> {
    header: &'a Header,
    entries: usize,
    width: usize,
    disk: String,
    seed: u64,
    outcome: &'a Outcome,
    findings: Vec<Shown<'a>>,
}

const PAGE: &str = include_str!("report.html");

/// The page.
pub fn html(log: &Log, how: &Exploration, outcome: &Outcome, stories: &[Story]) -> String {
    let mut pages = Environment::new();
    pages.set_auto_escape_callback(|_| minijinja::AutoEscape::Html);
    pages.add_template("report.html", PAGE).expect("the page of this crate is sound");
    let page = pages.get_template("report.html").expect("it was added above");
    let findings: Vec<Shown> = stories.iter().map(|story| show(log, story)).collect();
    let page = page.render(Serde(Page {
        header: log.header(),
        entries: log.len(),
        width: WIDTH,
        disk: how.disk.to_string(),
        seed: how.seed,
        outcome,
        findings,
    }));
    page.unwrap_or_else(|error| format!("<pre>{error}</pre>"))
}

fn show<'a>(log: &Log, story: &'a Story) -> Shown<'a> {
    let entries = &log.writes().entries;
    let first = story.writes.iter().map(|write| write.entry).min().unwrap_or(story.upto);
    let start = first.min(story.upto).saturating_sub(AROUND / 4);
    let end = (start + AROUND).max(story.upto + 8).min(entries.len());
    let step = (WIDTH / (end - start).max(1)).clamp(1, 24);
    let call = |index: usize| {
        let named = story.before.iter().find(|(entry, _)| *entry == index);
        named.map_or_else(|| "a call".to_owned(), |(_, text)| text.clone())
    };
    let sign = |index: usize| {
        let fate = story.writes.iter().find(|write| write.entry == index);
        let (class, title) = match (&entries[index].event, fate) {
            (_, Some(write)) => (write.fate, format!("{}: {}", write.fate, write.what)),
            (Event::Flush, _) => ("flush", "flush".to_owned()),
            (Event::Write { fua: true, .. }, _) => ("fua", "FUA write".to_owned()),
            (Event::Write { sector, .. }, _) => ("write", format!("write at sector {sector}")),
            (Event::Zero { .. }, _) => ("zero", "zeroes".to_owned()),
            (Event::Mark(number), _) => match log.notes().get(*number as usize) {
                Some(Note::Mark(text)) => ("mark", format!("mark \"{text}\"")),
                Some(Note::Call(_)) => ("call", call(index)),
                None => ("mark", String::new()),
            },
        };
        Sign { x: (index - start) * step, width: step.max(2) - 1, class, title }
    };
    let signs = (start..end).map(sign).collect();
    Shown { story, text: story.to_string(), signs, cut: (story.upto - start) * step }
}
