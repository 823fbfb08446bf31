//! Tables for people: columns as wide as what stands in them.

use anstyle::{AnsiColor, Style};
use ferrata::RunStatus;
use unicode_width::UnicodeWidthStr;

/// A cell: its text, and how it looks.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// Makes a cell that looks so.
    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::styled(text, Style::new())
    }
}

/// A table with a line of names above it.
#[derive(Debug)]
pub(crate) struct Table {
    names: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Makes a table with these columns.
    pub(crate) fn new(names: impl IntoIterator<Item = &'static str>) -> Self {
        Self { names: names.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row of as many cells as there are columns.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Writes the table; columns in which nothing stands are left out.
    pub(crate) fn render(&self, color: bool) -> String {
        let widths: Vec<Option<usize>> = (0..self.names.len())
            .map(|at| {
                let cells = self.rows.iter().filter_map(|row| row.get(at));
                let widest = cells.map(|cell| clean(&cell.text).width()).max().filter(|&width| width > 0)?;
                Some(widest.max(self.names[at].width()))
            })
            .collect();
        let mut text = String::new();
        let bold = Style::new().bold();
        let names: Vec<Cell> = self.names.iter().map(|&name| Cell::styled(name, bold)).collect();
        for row in std::iter::once(&names).chain(&self.rows) {
            let shown: Vec<(&Cell, usize)> =
                row.iter().zip(&widths).filter_map(|(cell, width)| Some((cell, (*width)?))).collect();
            for (at, (cell, width)) in shown.iter().enumerate() {
                let content = clean(&cell.text);
                let pad = if at + 1 == shown.len() { 0 } else { width + 2 - content.width() };
                text.push_str(&paint(&content, cell.style, color));
                text.extend(std::iter::repeat_n(' ', pad));
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }
}

/// Writes a text in a style, if there is to be colour.
pub(crate) fn paint(text: &str, style: Style, color: bool) -> String {
    if color && style != Style::new() {
        format!("{}{text}{}", style.render(), style.render_reset())
    } else {
        text.to_owned()
    }
}

/// Returns a text as it may go to a terminal: on one line, and without what could steer the terminal.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns the word that a value has in JSON.
pub(crate) fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// Returns the look of a status.
pub(crate) fn of_status(status: RunStatus) -> Style {
    let color = match status {
        RunStatus::Completed => AnsiColor::Green,
        RunStatus::Failed => AnsiColor::Red,
        RunStatus::Interrupted | RunStatus::AwaitingInput => AnsiColor::Yellow,
        RunStatus::Cancelled => AnsiColor::BrightBlack,
        _ => AnsiColor::Cyan,
    };
    Style::new().fg_color(Some(color.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        let mut table = Table::new(["RUN", "EMPTY", "WHAT"]);
        table.row(["日本".into(), "".into(), "a".into()]);
        table.row(["long-id".into(), "".into(), "b\u{1b}[31m\nc".into()]);
        assert_eq!(table.render(false), "RUN      WHAT\n日本     a\nlong-id  b [31m c\n");
        assert!(table.render(true).contains("\u{1b}[1mRUN"));
    }
}
