//! Reports of experiments that are programs: they bring their own tables, as Markdown.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::markup::{self, Block};
use super::table::{Align, TextTable};
use super::{COLUMNS, DocumentReport, SCHEMA, svg};
use crate::programs::Program;

/// What a program found, as it is kept in JSON: it can be shown again without running anything.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ProgramReport {
    /// Version of the format.
    pub schema: u32,
    /// Name of the experiment.
    pub experiment: String,
    /// What it repeats.
    pub document: DocumentReport,
    /// Where its figures come from.
    pub basis: String,
    /// The command that repeats everything.
    pub command: String,
    /// Of what must hold, how much does and does not; none where it has no bands.
    pub holds: Option<[usize; 2]>,
    /// Headings, paragraphs, lists and tables.
    pub markdown: String,
    /// The figures, as the program names them.
    #[serde(flatten)]
    pub figures: Map<String, Value>,
}

impl ProgramReport {
    /// The report of a program's findings.
    pub fn new(
        program: &Program,
        command: String,
        holds: Option<[usize; 2]>,
        markdown: String,
        figures: Value,
    ) -> ProgramReport {
        let document = DocumentReport {
            title: program.title.to_owned(),
            author: program.author.to_owned(),
            date: program.date.to_owned(),
            summary: String::new(),
        };
        let mut figures = match figures {
            Value::Object(figures) => figures,
            other => Map::from_iter([("figures".to_owned(), other)]),
        };
        figures.retain(|name, _| !["experiment", "basis"].contains(&name.as_str()));
        let (experiment, basis) = (program.name.to_owned(), program.basis.to_owned());
        let schema = SCHEMA;
        ProgramReport { schema, experiment, document, basis, command, holds, markdown, figures }
    }

    /// Is this JSON such a report?
    pub fn is_one(value: &Value) -> bool {
        value["markdown"].is_string()
    }

    /// For a terminal: plain text, tables as wide as they are.
    pub fn text(&self) -> String {
        format!("{}\nAgain: {}\n", markup::text(&self.markdown, COLUMNS), self.command)
    }

    /// For programs.
    pub fn json(&self) -> Value {
        serde_json::to_value(self).expect("a report is JSON")
    }

    /// How much of what must hold does, in words.
    pub(super) fn standing(&self) -> String {
        match self.holds {
            Some([inside, outside]) => format!("{inside} of {}", inside + outside),
            None => "–".to_owned(),
        }
    }

    /// What the page's template gets of it: `body` is HTML.
    pub(super) fn page(&self) -> Value {
        json!({
            "experiment": self.experiment, "document": self.document, "basis": self.basis,
            "command": self.command, "standing": self.standing(), "body": body(&self.markdown),
        })
    }
}

/// Every heading of the first two levels begins a card.
fn body(markdown: &str) -> String {
    let mut out = String::from("<div class=\"card\">\n");
    let mut empty = true;
    for block in markup::blocks(markdown) {
        match block {
            Block::Heading(level, text) => {
                if level <= 2 && !empty {
                    out.push_str("</div>\n<div class=\"card\">\n");
                }
                let level = level.clamp(2, 3);
                out.push_str(&format!("<h{level}>{}</h{level}>\n", inline(&text)));
            }
            Block::Text(text) => {
                out.push_str(&format!("<p class=\"note\">{}</p>\n", inline(&text)));
            }
            Block::Item(text) => out.push_str(&format!("<p>• {}</p>\n", inline(&text))),
            Block::Table(rows) => out.push_str(&table(&rows)),
        }
        empty = false;
    }
    out.push_str("</div>\n");
    out
}

/// A table as HTML.
pub(super) fn table(table: &TextTable) -> String {
    // Words stand left, figures right.
    let words = |cell: &str| cell.chars().filter(|c| c.is_alphabetic()).count() > 3;
    let left = |index: usize| {
        let cells = table.rows.iter().filter_map(|row| row.get(index));
        let all = cells.clone().count();
        table.columns.get(index).is_some_and(|head| head.1 == Align::Left)
            && cells.clone().any(|cell| words(cell))
            || 2 * cells.filter(|cell| words(cell)).count() > all
            || index == 0
    };
    let class = |index| if left(index) { " class=\"left\"" } else { "" };
    let cell = |element: &str, index: usize, text: &str| {
        format!("<{element}{}>{}</{element}>", class(index), marked(text))
    };
    // Rows without a head of their own lie beside that of the one above them.
    let goes_on = |row: &Vec<String>| row.first().is_some_and(String::is_empty);
    let row = |(number, row): (usize, &Vec<String>)| {
        let below = table.rows[number + 1..].iter().take_while(|row| goes_on(row)).count();
        let head = match row.first() {
            Some(head) if below > 0 && !goes_on(row) => {
                let span = below + 1;
                format!("<td class=\"left\" rowspan=\"{span}\">{}</td>", marked(head))
            }
            Some(head) if !goes_on(row) || number == 0 => cell("td", 0, head),
            _ => String::new(),
        };
        let cells = row.iter().enumerate().skip(1);
        let cells: String = cells.map(|(index, text)| cell("td", index, text)).collect();
        let class = if goes_on(row) { " class=\"more\"" } else { "" };
        format!("<tr{class}>{head}{cells}</tr>\n")
    };
    let heads = table.columns.iter().enumerate();
    let heads: String = heads.map(|(index, head)| cell("th", index, &head.0)).collect();
    format!(
        "<div class=\"scroll\"><table class=\"plain\">\n<thead><tr>{heads}</tr></thead><tbody>\n\
         {}</tbody></table></div>\n",
        table.rows.iter().enumerate().map(row).collect::<String>()
    )
}

/// Words that say where a figure lies get the colour and the sign that they have elsewhere.
fn marked(text: &str) -> String {
    let chip = |class: &str, sign: &str| {
        format!("<span class=\"chip {class}\">{sign} {}</span>", text.to_lowercase())
    };
    match text {
        "holds" | "inside" | "same sign" => chip("inside", "✓"),
        "DOES NOT HOLD" | "OUTSIDE" | "other sign" | "NO" => chip("outside", "✗"),
        "calibrated" => chip("calibrated", "◆"),
        _ => inline(text),
    }
}

/// Text with the letters that HTML reserves replaced, and code between back quotes.
fn inline(text: &str) -> String {
    let text = svg::escape(text);
    let parts = text.split('`').enumerate().map(|(index, part)| match index % 2 {
        0 => part.to_owned(),
        _ => format!("<code>{part}</code>"),
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::PROGRAMS;

    #[test]
    fn headings_paragraphs_and_tables_become_elements_and_reserved_letters_are_replaced() {
        let markdown = "# name\n\n## a `b`\n\nfirst <line>\nsecond\n\n\
                        | x | y | |\n| --- | --: | --- |\n| 1 | & | OUTSIDE |\n\n## c\n";
        let html = body(markdown);
        assert!(html.contains("<h2>a <code>b</code></h2>\n"), "{html}");
        assert!(html.contains("<p class=\"note\">first &lt;line&gt; second</p>"), "{html}");
        let cells = "<tr><td class=\"left\">1</td><td>&amp;</td><td class=\"left\">\
                     <span class=\"chip outside\">✗ outside</span></td></tr>";
        assert!(html.contains(cells) && !html.contains("---"), "{html}");
        assert_eq!(html.matches("<div class=\"card\">").count(), 3, "{html}");
    }

    #[test]
    fn rows_without_a_head_lie_beside_the_one_above_them() {
        let html = body("| a | n |\n| --- | --: |\n| one | 1 |\n| | 2 |\n| two | 3 |\n");
        let one = "<tr><td class=\"left\" rowspan=\"2\">one</td><td>1</td></tr>\n";
        assert!(html.contains(&format!("{one}<tr class=\"more\"><td>2</td></tr>\n")), "{html}");
        assert!(html.contains("<tr><td class=\"left\">two</td><td>3</td></tr>"), "{html}");
    }

    #[test]
    fn a_report_comes_back_from_its_json() {
        let figures = json!({ "experiment": "x", "rows": [1, 2] });
        let markdown = "## T\n\n| a | b |\n| --- | --: |\n| c | 1 |\n".to_owned();
        let command = "iopath lab run bh-lru".to_owned();
        let report = ProgramReport::new(&PROGRAMS[0], command, Some([3, 1]), markdown, figures);
        let value = report.json();
        assert!(ProgramReport::is_one(&value));
        assert_eq!((&value["experiment"], &value["rows"][1]), (&"bh-lru".into(), &2.into()));
        assert_eq!(serde_json::from_value::<ProgramReport>(value).unwrap(), report);
        assert_eq!(report.text(), "T\n\na  b\n-  -\nc  1\n\nAgain: iopath lab run bh-lru\n");
        assert_eq!(report.standing(), "3 of 4");
    }
}
