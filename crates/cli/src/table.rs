//! Tables for people. A column is as wide as its content, and a table is at most as wide as the terminal.

use std::borrow::Cow;

use anstyle::{AnsiColor, Style};
use ferrata::RunStatus;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Number of blanks between two columns.
const GAP: usize = 2;

/// Minimum width of the last column, which contains free text. If it would become narrower, an optional column is omitted.
const LAST: usize = 16;

/// Minimum width of a column. Shorter names would be hard to distinguish.
const LEAST: usize = 8;

/// A cell of a table: its text and its style.
#[derive(Clone, Debug)]
pub(crate) struct TableCell {
    text: String,
    style: Style,
}

impl TableCell {
    /// Creates a cell with a style.
    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }
}

impl<T: Into<String>> From<T> for TableCell {
    fn from(text: T) -> Self {
        Self::styled(text, Style::new())
    }
}

/// A table with a header.
#[derive(Debug)]
pub(crate) struct Table {
    names: Vec<&'static str>,
    /// The columns that are omitted if space is short, in this order.
    spare: Vec<&'static str>,
    /// The columns that are shortened last.
    whole: Vec<&'static str>,
    rows: Vec<Vec<TableCell>>,
}

impl Table {
    /// Creates a table with these columns.
    pub(crate) fn new(names: impl IntoIterator<Item = &'static str>) -> Self {
        Self { names: names.into_iter().collect(), spare: Vec::new(), whole: Vec::new(), rows: Vec::new() }
    }

    /// Sets the columns that are omitted if space is short, in this order.
    pub(crate) fn omit_first(mut self, names: impl IntoIterator<Item = &'static str>) -> Self {
        self.spare = names.into_iter().collect();
        self
    }

    /// Sets the columns that are shortened only after all others have their minimum width. Use it for names that the user may type again, and for
    /// times.
    pub(crate) fn cut_last(mut self, names: impl IntoIterator<Item = &'static str>) -> Self {
        self.whole = names.into_iter().collect();
        self
    }

    /// Adds a row. The row must have one cell for each column.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = TableCell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Formats the table. If `room` is given, lines have at most `room` columns. Empty columns are omitted.
    pub(crate) fn render(&self, color: bool, room: Option<usize>) -> String {
        let widths = self.widths(room);
        let mut text = String::new();
        let bold = Style::new().bold();
        let names: Vec<TableCell> = self.names.iter().map(|&name| TableCell::styled(name, bold)).collect();
        for row in std::iter::once(&names).chain(&self.rows) {
            let shown: Vec<(&TableCell, usize)> =
                row.iter().zip(&widths).filter_map(|(cell, width)| Some((cell, (*width)?))).collect();
            for (at, (cell, width)) in shown.iter().enumerate() {
                let content = cut(&clean(&cell.text), *width);
                let pad = if at + 1 == shown.len() { 0 } else { width + GAP - content.width() };
                text.push_str(&paint(&content, cell.style, color));
                text.extend(std::iter::repeat_n(' ', pad));
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }

    /// Returns the width of each column; `None` for an omitted column.
    fn widths(&self, room: Option<usize>) -> Vec<Option<usize>> {
        let mut widths: Vec<Option<usize>> = (0..self.names.len())
            .map(|at| {
                let cells = self.rows.iter().filter_map(|row| row.get(at));
                let widest = cells.map(|cell| clean(&cell.text).width()).max().filter(|&width| width > 0)?;
                Some(widest.max(self.names[at].width()))
            })
            .collect();
        let Some(room) = room else { return widths };
        let all = |widths: &[Option<usize>]| {
            widths.iter().flatten().map(|width| width + GAP).sum::<usize>().saturating_sub(GAP)
        };
        for name in &self.spare {
            let last = widths.iter().rev().find_map(|width| *width).unwrap_or_default();
            if all(&widths).saturating_sub(last.saturating_sub(LAST)) <= room {
                break;
            }
            if let Some(at) = self.names.iter().position(|known| known == name) {
                widths[at] = None;
            }
        }
        // Shorten the free text first, and then the widest column.
        let mut over = all(&widths).saturating_sub(room);
        if let Some(last) = widths.iter_mut().rev().find_map(Option::as_mut) {
            let less = over.min(last.saturating_sub(LAST));
            *last -= less;
            over -= less;
        }
        for is_whole in [false, true] {
            while over > 0 {
                let names = self.names.iter().zip(&mut widths);
                let may = names.filter(|(name, _)| is_whole || !self.whole.contains(*name));
                let widest =
                    may.filter_map(|(_, width)| width.as_mut()).max().filter(|width| **width > LEAST);
                let Some(widest) = widest else { break };
                *widest -= 1;
                over -= 1;
            }
        }
        widths
    }
}

/// Returns the part of a text that fits into `room` columns. If the text is longer, the result ends in a mark.
fn cut(text: &str, room: usize) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    let mut taken = 0;
    let fits = |c: &char| {
        taken += c.width().unwrap_or_default();
        taken < room
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// Applies a style to a text if color is on.
pub(crate) fn paint(text: &str, style: Style, color: bool) -> String {
    if color && style != Style::new() {
        format!("{}{text}{}", style.render(), style.render_reset())
    } else {
        text.to_owned()
    }
}

/// Returns a text that is safe for a terminal: on one line, and without control characters.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if is_control_char(c) { ' ' } else { c }).collect()
}

/// Returns a text of several lines that is safe for a terminal.
pub(crate) fn clean_lines(text: &str) -> String {
    text.chars().map(|c| if is_control_char(c) && c != '\n' { ' ' } else { c }).collect()
}

/// Returns JSON that is safe for a terminal: control characters occur only in texts, and are escaped there.
pub(crate) fn clean_json(json: &str) -> String {
    let escaped = |c: char| match is_control_char(c) && c != '\n' {
        true => format!("\\u{:04x}", u32::from(c)),
        false => c.to_string(),
    };
    json.chars().map(escaped).collect()
}

/// Removes the remaining control characters from a text. Colors stay if they are on. This is the last check before the terminal, for a text that was
/// not cleaned before.
pub(crate) fn safe(text: &str, color: bool) -> Cow<'_, str> {
    if !text.contains(|c| is_control_char(c) && c != '\n') {
        return text.into();
    }
    let (mut safe, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(|c| is_control_char(c) && c != '\n') {
        let (before, from) = rest.split_at(at);
        safe.push_str(before);
        let painted = if color { color_length(from) } else { None };
        match painted {
            Some(length) => safe.push_str(&from[..length]),
            None => safe.push(' '),
        }
        let first = from.chars().next().map_or(0, char::len_utf8);
        rest = &from[painted.unwrap_or(first)..];
    }
    safe.push_str(rest);
    safe.into()
}

/// Returns the length of the color code at the beginning of a text. A code that hides text does not count as a color code.
fn color_length(text: &str) -> Option<usize> {
    let codes = text.strip_prefix("\u{1b}[")?;
    let end = codes.find('m')?;
    let is_color = |code: &str| matches!(code.parse(), Ok(0..=4 | 30..=39 | 90..=97));
    codes[..end].split(';').all(is_color).then_some(end + 3)
}

/// Returns whether a character could control a terminal, or change the order of other characters.
pub(crate) fn is_control_char(c: char) -> bool {
    let reorders = |c| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || reorders(c)
}

/// Returns the word that stands for a value in JSON.
pub(crate) fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// Returns the style for a status of a run.
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
        assert_eq!(table.render(false, None), "RUN      WHAT\n日本     a\nlong-id  b [31m c\n");
        assert!(table.render(true, None).contains("\u{1b}[1mRUN"));
    }

    #[test]
    fn a_table_fits_its_room() {
        let mut table = Table::new(["NODE", "TOOK", "AT", "DETAILS"]).omit_first(["AT", "TOOK"]);
        table.row([
            "send@1".into(),
            "12ms".into(),
            "3m00s ago".into(),
            "the bank is closed until monday".into(),
        ]);
        table.row(["日本日本@1".into(), "1.2s".into(), "2m59s ago".into(), "→ send".into()]);
        let whole = table.render(false, None);
        assert_eq!(table.render(false, Some(80)), whole, "no text is cut if there is space");
        for room in 4..80 {
            let shown = table.render(room % 2 == 0, Some(room));
            let plain = |line: &str| line.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "").width();
            let widest = shown.lines().map(plain).max().unwrap_or_default();
            assert!(widest <= room.max(LEAST * 2 + GAP), "{room}: {shown}");
        }
        let narrow =
            "NODE        TOOK  DETAILS\nsend@1      12ms  the bank is close…\n日本日本@1  1.2s  → send\n";
        assert_eq!(table.render(false, Some(36)), narrow);
        let narrower = "NODE        DETAILS\nsend@1      the bank is close…\n日本日本@1  → send\n";
        assert_eq!(table.render(false, Some(30)), narrower);
    }

    #[test]
    fn output_filter_passes_only_colors() {
        let painted = "\u{1b}[1;31mred\u{1b}[0m\nplain";
        assert_eq!(safe(painted, true), painted);
        assert_eq!(safe(painted, false), " [1;31mred [0m\nplain");
        for hostile in [
            "\u{1b}[8mhidden",
            "\u{1b}]0;x\u{7}",
            "\u{1b}[2J",
            "\u{1b}",
            "\u{1b}[",
            "\u{9b}31m",
            "\u{202e}\r\u{85}",
        ] {
            let shown = safe(hostile, true);
            assert!(!shown.contains(is_control_char), "{shown:?}");
            assert_eq!(shown.chars().count(), hostile.chars().count());
        }
    }

    #[test]
    fn terminal_control_characters_are_removed_or_escaped() {
        let hostile = "a\u{1b}[2Jb\u{9b}31mc\u{202e}d\u{2066}e\u{7f}\u{200f}\u{61c}é日";
        for shown in [clean(hostile), clean_lines(hostile)] {
            assert_eq!(shown, "a [2Jb 31mc d e   é日");
        }
        assert_eq!(clean_lines("a\nb\r\u{85}"), "a\nb  ");
        let json = clean_json(&serde_json::to_string_pretty(&serde_json::json!({ "k": hostile })).unwrap());
        assert!(!json.contains(|c| is_control_char(c) && c != '\n'), "{json:?}");
        let back: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(back["k"], hostile);
    }
}
