//! The Markdown that programs write, read back in blocks: for the page and for a terminal.

use super::table::{Align, TextTable, wrap};

/// A piece of a report.
#[derive(Clone, PartialEq, Debug)]
pub enum Block {
    /// A heading of a level, from 1.
    Heading(usize, String),
    /// A table.
    Table(TextTable),
    /// One entry of a list.
    Item(String),
    /// A paragraph.
    Text(String),
}

/// The blocks of a text.
pub fn blocks(markdown: &str) -> Vec<Block> {
    let mut out = Vec::new();
    let mut lines = markdown.lines().peekable();
    let goes_on = |line: &&str| !line.trim().is_empty() && !line.starts_with(['|', '#', '-']);
    while let Some(line) = lines.next() {
        let level = line.chars().take_while(|&letter| letter == '#').count();
        if line.trim().is_empty() {
            continue;
        } else if level > 0 {
            out.push(Block::Heading(level, line[level..].trim().to_owned()));
        } else if line.starts_with('|') {
            let mut rest = Vec::new();
            while let Some(line) = lines.next_if(|line| line.starts_with('|')) {
                rest.push(line);
            }
            out.push(Block::Table(table(line, &rest)));
        } else {
            let item = line.strip_prefix("- ");
            let mut text = item.unwrap_or(line).trim().to_owned();
            while let Some(line) = lines.next_if(goes_on) {
                text.push(' ');
                text.push_str(line.trim());
            }
            out.push(if item.is_some() { Block::Item(text) } else { Block::Text(text) });
        }
    }
    out
}

fn table(head: &str, rest: &[&str]) -> TextTable {
    let is_rule = |line: &&str| line.chars().all(|letter| "|-: ".contains(letter));
    let (rule, rows) = match rest.split_first() {
        Some((first, rows)) if is_rule(first) => (cells(first), rows),
        _ => (Vec::new(), rest),
    };
    let align = |index: usize| match rule.get(index).is_some_and(|rule| rule.ends_with(':')) {
        true => Align::Right,
        false => Align::Left,
    };
    let heads = cells(head);
    let heads = heads.iter().enumerate().map(|(index, head)| (head.as_str(), align(index)));
    let mut table = TextTable::new(heads);
    rows.iter().for_each(|line| table.row(cells(line)));
    table
}

/// The cells of a line; `\|` is no border.
fn cells(line: &str) -> Vec<String> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let line = line.strip_suffix('|').unwrap_or(line);
    let mut cells = vec![String::new()];
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        let cell = cells.last_mut().expect("there is always one");
        match letter {
            '\\' if letters.next_if_eq(&'|').is_some() => cell.push('|'),
            '|' => cells.push(String::new()),
            other => cell.push(other),
        }
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

/// For a terminal: text in lines of at most `columns`, tables as wide as they are.
pub fn text(markdown: &str, columns: usize) -> String {
    let mut out = String::new();
    let mut in_list = false;
    for block in blocks(markdown) {
        let item = matches!(block, Block::Item(_));
        let goes_on = item && in_list;
        if !(out.is_empty() || goes_on) {
            out.push('\n');
        }
        in_list = item;
        match block {
            Block::Heading(_, text) => out.push_str(&format!("{text}\n")),
            Block::Text(text) => out.push_str(&wrap(&text, columns, "")),
            Block::Item(text) => {
                let lines = wrap(&text, columns, "  ");
                out.push_str(&lines.replacen("  ", "- ", 1));
            }
            Block::Table(table) => out.push_str(&table.text()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "# a\n\none\ntwo\n\n- first\n- second\n  goes on\n\n\
                          | x | y\\|z |\n| --- | --: |\n| 1 | 22 |\n";

    #[test]
    fn a_text_is_read_in_blocks() {
        let mut table = TextTable::new([("x", Align::Left), ("y|z", Align::Right)]);
        table.row(["1".to_owned(), "22".to_owned()]);
        let expected = [
            Block::Heading(1, "a".into()),
            Block::Text("one two".into()),
            Block::Item("first".into()),
            Block::Item("second goes on".into()),
            Block::Table(table),
        ];
        assert_eq!(blocks(SOURCE), expected);
    }

    #[test]
    fn a_terminal_sees_aligned_tables_and_no_marks() {
        let expected = "a\n\none two\n\n- first\n- second goes on\n\nx  y|z\n-  ---\n1   22\n";
        assert_eq!(text(SOURCE, 80), expected);
    }
}
