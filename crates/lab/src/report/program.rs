//! Reports of experiments that are programs: they bring their own tables, as Markdown.

use serde_json::{Value, json};

/// What a program found.
#[derive(Clone, Debug)]
pub struct ProgramReport {
    /// Name of the experiment.
    pub experiment: &'static str,
    /// What it repeats: title, author, date.
    pub document: String,
    /// The command that repeats everything.
    pub command: String,
    /// Headings, paragraphs, lists and tables.
    pub markdown: String,
}

impl ProgramReport {
    /// What the page's template gets of it: `body` is HTML.
    pub(super) fn page(&self) -> Value {
        json!({
            "experiment": self.experiment, "document": self.document, "command": self.command,
            "body": body(&self.markdown),
        })
    }
}

/// Every heading of the second level begins a card; the first level's is the page's.
fn body(markdown: &str) -> String {
    let mut out = String::from("<div class=\"card\">\n");
    let mut lines = markdown.lines().peekable();
    let mut empty = true;
    while let Some(line) = lines.next() {
        if line.starts_with("# ") || line.trim().is_empty() {
            continue;
        }
        if let Some(heading) = line.strip_prefix("## ") {
            if !empty {
                out.push_str("</div>\n<div class=\"card\">\n");
            }
            out.push_str(&format!("<h2>{}</h2>\n", inline(heading)));
        } else if let Some(heading) = line.strip_prefix("### ") {
            out.push_str(&format!("<h3>{}</h3>\n", inline(heading)));
        } else if line.starts_with('|') {
            out.push_str("<div class=\"scroll\"><table>\n<thead>");
            out.push_str(&row(line, "th"));
            out.push_str("</thead><tbody>\n");
            while let Some(line) = lines.next_if(|line| line.starts_with('|')) {
                if !is_rule(line) {
                    out.push_str(&row(line, "td"));
                }
            }
            out.push_str("</tbody></table></div>\n");
        } else if let Some(item) = line.strip_prefix("- ") {
            out.push_str(&format!("<p>• {}</p>\n", inline(item)));
        } else {
            let mut text = line.to_owned();
            let goes_on = |line: &&str| {
                !line.trim().is_empty() && !line.starts_with(['|', '#']) && !line.starts_with("- ")
            };
            while let Some(line) = lines.next_if(goes_on) {
                text.push(' ');
                text.push_str(line);
            }
            out.push_str(&format!("<p class=\"note\">{}</p>\n", inline(&text)));
        }
        empty = false;
    }
    out.push_str("</div>\n");
    out
}

/// The line between the head of a table and its rows.
fn is_rule(line: &str) -> bool {
    line.chars().all(|letter| matches!(letter, '|' | '-' | ':' | ' '))
}

fn row(line: &str, element: &str) -> String {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let line = line.strip_suffix('|').unwrap_or(line);
    let cells = line.split('|').enumerate().map(|(index, cell)| {
        let cell = cell.trim();
        // Words stand left, figures right.
        let words = cell.chars().filter(|c| c.is_alphabetic()).count() > 3;
        let class = if index == 0 || words { " class=\"left\"" } else { "" };
        format!("<{element}{class}>{}</{element}>", inline(cell))
    });
    format!("<tr>{}</tr>\n", cells.collect::<String>())
}

/// Text with the letters that HTML reserves replaced, and code between back quotes.
fn inline(text: &str) -> String {
    let text = super::svg::escape(text);
    let parts = text.split('`').enumerate().map(|(index, part)| match index % 2 {
        0 => part.to_owned(),
        _ => format!("<code>{part}</code>"),
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_paragraphs_and_tables_become_elements_and_reserved_letters_are_replaced() {
        let markdown = "# name\n\n## a `b`\n\nfirst <line>\nsecond\n\n\
                        | x | y |\n| --- | --: |\n| 1 | & |\n\n## c\n";
        let html = body(markdown);
        assert!(!html.contains("name") && html.contains("<h2>a <code>b</code></h2>\n"), "{html}");
        assert!(html.contains("<p class=\"note\">first &lt;line&gt; second</p>"), "{html}");
        let cells = "<tr><td class=\"left\">1</td><td>&amp;</td></tr>";
        assert!(html.contains(cells) && !html.contains("---"), "{html}");
        assert_eq!(html.matches("<div class=\"card\">").count(), 2, "{html}");
    }
}
