//! A table that is made, between two marks in a page that is written.

use anyhow::{Context, Result};

/// Where such a table stands.
pub struct Marked {
    /// The page, from the project's root.
    pub page: &'static str,
    /// What stands before the table and behind it.
    pub marks: [&'static str; 2],
}

impl Marked {
    /// The table that is there.
    pub fn table(&self) -> Result<String> {
        let text = self.text()?;
        let (_, table, _) = self.parts(&text)?;
        Ok(table.to_owned())
    }

    /// Puts another table there.
    pub fn replace(&self, table: &str) -> Result<()> {
        let [begin, end] = self.marks;
        let text = self.text()?;
        let (before, _, after) = self.parts(&text)?;
        let text = format!("{before}{begin}\n\n{table}\n{end}{after}");
        std::fs::write(self.page, text).with_context(|| self.page.to_owned())
    }

    fn text(&self) -> Result<String> {
        std::fs::read_to_string(self.page).with_context(|| self.page.to_owned())
    }

    fn parts<'t>(&self, text: &'t str) -> Result<(&'t str, &'t str, &'t str)> {
        let [begin, end] = self.marks;
        let parts = text.split_once(begin).and_then(|(before, rest)| {
            let (table, after) = rest.split_once(end)?;
            Some((before, table, after))
        });
        parts.with_context(|| format!("{}: no {begin} before {end}", self.page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_taken_apart() {
        let marked = Marked { page: "page", marks: ["<!-- a -->", "<!-- b -->"] };
        let (before, table, after) = marked.parts("x <!-- a --> | 1 | <!-- b --> y").expect("both");
        assert_eq!((before, table, after), ("x ", " | 1 | ", " y"));
        assert!(marked.parts("nothing").is_err());
        assert!(marked.parts("<!-- b --> <!-- a -->").is_err(), "the wrong way round");
    }
}
