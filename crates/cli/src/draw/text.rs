//! Writes a graph as source text for other programs: Graphviz and Mermaid.

use std::fmt::Write;

use super::direction::LayoutDirection;
use super::{GraphSketch, NodeLook};
use crate::table::is_control_char;

/// Writes Graphviz source. All names and texts are in quotes, so that Graphviz accepts all names of the dialect.
pub(crate) fn dot(sketch: &GraphSketch) -> String {
    // Writing to a string never fails.
    let mut text =
        format!("digraph {} {{\n  node [shape=box, style=\"rounded,filled\"]\n", quoted(&sketch.name));
    if sketch.turn() != LayoutDirection::default() {
        let _ = writeln!(text, "  rankdir={}", sketch.turn().name());
    }
    for node in &sketch.nodes {
        let (fill, border) = node.look.colors();
        let _ = writeln!(
            text,
            "  {} [label={}, shape={}, fillcolor=\"{fill}\", color=\"{border}\"]",
            quoted(&node.id),
            quoted(&node.caption()),
            quoted(&node.shape)
        );
    }
    for edge in &sketch.edges {
        let label =
            if edge.label.is_empty() { String::new() } else { format!("label={}", quoted(&edge.label)) };
        let taken = if edge.taken > 0 { "penwidth=\"2.5\"" } else { "" };
        let parts: Vec<&str> = [label.as_str(), taken].into_iter().filter(|part| !part.is_empty()).collect();
        let (from, to) = (&sketch.nodes[edge.from].id, &sketch.nodes[edge.to].id);
        let _ = writeln!(text, "  {} -> {} [{}]", quoted(from), quoted(to), parts.join(", "));
    }
    text.push_str("}\n");
    text
}

/// Quotes a text for Graphviz.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], "\\n");
    let text: String = text.chars().map(|c| entity(c, "&#")).collect();
    format!("\"{text}\"")
}

/// Writes a control character as a numeric entity, which is drawn as this character. Otherwise a printed source could control the terminal.
pub(super) fn entity(c: char, begin: &str) -> String {
    if is_control_char(c) && !matches!(c, '\n' | '\t') {
        format!("{begin}{};", u32::from(c))
    } else {
        c.to_string()
    }
}

/// Writes Mermaid source. The nodes get numbers as names, because the documentation of Mermaid does not say which names are valid.
pub(crate) fn mermaid(sketch: &GraphSketch) -> String {
    // Mermaid calls this direction TD, and other programs call it TB.
    let direction = if sketch.turn() == LayoutDirection::Down { "TD" } else { sketch.turn().name() };
    let mut text = format!("flowchart {direction}\n");
    for (at, node) in sketch.nodes.iter().enumerate() {
        let (open, close) = match node.shape.as_str() {
            "Mdiamond" | "Msquare" => ("([", "])"),
            "diamond" => ("{", "}"),
            "hexagon" => ("{{", "}}"),
            _ => ("[", "]"),
        };
        let _ = writeln!(text, "  n{at}{open}\"{}\"{close}", escaped(&node.caption()));
    }
    let mut thick = Vec::new();
    for (at, edge) in sketch.edges.iter().enumerate() {
        let label =
            if edge.label.is_empty() { String::new() } else { format!("|\"{}\"|", escaped(&edge.label)) };
        let _ = writeln!(text, "  n{} -->{label} n{}", edge.from, edge.to);
        if edge.taken > 0 {
            thick.push(at.to_string());
        }
    }
    if !thick.is_empty() {
        let _ = writeln!(text, "  linkStyle {} stroke-width:3px", thick.join(","));
    }
    for look in [
        NodeLook::Done,
        NodeLook::Partial,
        NodeLook::Failed,
        NodeLook::Going,
        NodeLook::Waiting,
        NodeLook::Skipped,
    ] {
        let named = sketch.nodes.iter().enumerate().filter(|(_, node)| node.look == look);
        let named: Vec<String> = named.map(|(at, _)| format!("n{at}")).collect();
        if !named.is_empty() {
            let (fill, border) = look.colors();
            let name = format!("{look:?}").to_lowercase();
            let _ = writeln!(text, "  classDef {name} fill:{fill},stroke:{border}");
            let _ = writeln!(text, "  class {} {name}", named.join(","));
        }
    }
    text
}

/// Escapes a text that is in quotes in a Mermaid source.
fn escaped(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        match c {
            '"' => shown.push_str("#quot;"),
            '#' => shown.push_str("#35;"),
            '<' => shown.push_str("#lt;"),
            '>' => shown.push_str("#gt;"),
            '\n' => shown.push_str("<br/>"),
            c if c.is_control() => shown.push(' '),
            c => shown.push_str(&entity(c, "#")),
        }
    }
    shown
}
