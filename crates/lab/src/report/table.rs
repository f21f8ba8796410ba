//! Tables as aligned text and as Markdown, from one model.

/// How a column is aligned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table of texts.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TextTable {
    pub(super) columns: Vec<(String, Align)>,
    pub(super) rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table without rows.
    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Align)>) -> TextTable {
        let columns = columns.into_iter().map(|(head, align)| (head.to_owned(), align)).collect();
        TextTable { columns, rows: Vec::new() }
    }

    /// Adds a row. Cells that are missing are empty, cells too many are dropped.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().take(self.columns.len()).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn widths(&self) -> Vec<usize> {
        let width = |text: &String| text.chars().count();
        let column = |index: usize| {
            let cells = self.rows.iter().map(|row| width(&row[index]));
            cells.chain([width(&self.columns[index].0)]).max().unwrap_or(0)
        };
        (0..self.columns.len()).map(column).collect()
    }

    /// Plain text, two blanks between columns, a rule below the head.
    pub fn text(&self) -> String {
        let widths = self.widths();
        let heads: Vec<String> = self.columns.iter().map(|column| column.0.clone()).collect();
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        let lines = [&heads, &rule].into_iter().chain(&self.rows);
        let line = |cells| self.line(cells, &widths, "", "  ");
        lines.map(|cells| line(cells).trim_end().to_owned() + "\n").collect()
    }

    /// A Markdown table, readable as text too.
    pub fn markdown(&self) -> String {
        let escape = |cells: &[String]| -> Vec<String> {
            cells.iter().map(|cell| cell.replace('|', "\\|")).collect()
        };
        let heads: Vec<String> = self.columns.iter().map(|column| column.0.clone()).collect();
        let table = TextTable {
            columns: self.columns.iter().map(|(h, a)| (h.replace('|', "\\|"), *a)).collect(),
            rows: self.rows.iter().map(|row| escape(row)).collect(),
        };
        let widths: Vec<usize> = table.widths().into_iter().map(|width| width.max(3)).collect();
        let rule = table.columns.iter().zip(&widths).map(|((_, align), width)| match align {
            Align::Left => "-".repeat(*width),
            Align::Right => format!("{}:", "-".repeat(width - 1)),
        });
        let rule: Vec<String> = rule.collect();
        let heads = escape(&heads);
        let lines = [&heads, &rule].into_iter().chain(&table.rows);
        lines.map(|cells| format!("| {} |\n", table.line(cells, &widths, " |", " "))).collect()
    }

    fn line(&self, cells: &[String], widths: &[usize], end: &str, gap: &str) -> String {
        let mut line = String::new();
        for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let pad = " ".repeat(width - cell.chars().count().min(*width));
            let last = index + 1 == cells.len();
            match self.columns[index].1 {
                Align::Right => line.extend([pad.as_str(), cell]),
                Align::Left if last && end.is_empty() => line.push_str(cell),
                Align::Left => line.extend([cell, pad.as_str()]),
            }
            if !last {
                line.extend([end, gap]);
            }
        }
        line
    }
}

/// Text in lines of at most `columns` characters, where its words allow it.
pub fn wrap(text: &str, columns: usize, indent: &str) -> String {
    let mut out = String::new();
    let mut line = indent.to_owned();
    for word in text.split_whitespace() {
        let width = line.chars().count() + 1 + word.chars().count();
        if line.trim().is_empty() {
            line.push_str(word);
        } else if width > columns {
            out.push_str(&line);
            out.push('\n');
            line = format!("{indent}{word}");
        } else {
            line.push(' ');
            line.push_str(word);
        }
    }
    out + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_in_both_renderings() {
        let mut table = TextTable::new([("name", Align::Left), ("n", Align::Right)]);
        table.row(["a".to_owned(), "1".to_owned()]);
        table.row(["b|c".to_owned(), "1000".to_owned()]);
        assert_eq!(table.text(), "name     n\n----  ----\na        1\nb|c   1000\n");
        let markdown = "| name |    n |\n| ---- | ---: |\n| a    |    1 |\n| b\\|c | 1000 |\n";
        assert_eq!(table.markdown(), markdown);
    }

    #[test]
    fn text_wraps_at_words() {
        assert_eq!(wrap("one two three", 9, "  "), "  one two\n  three\n");
    }
}
