//! Export of the screen as plain text and as HTML.

use std::fmt::Write;

use crate::Screen;
use crate::grid::cell::{Cell, Clusters, Glyph};
use crate::grid::row::Row;
use crate::grid::scrollback::Names;
use crate::screen::default_color;
use crate::style::*;

impl Screen {
    /// Returns the text of the screen, preceded by up to `scrollback_lines` lines of scrollback,
    /// one line per row, without trailing blanks and trailing blank lines.
    pub fn text(&self, scrollback_lines: usize) -> String {
        let mut out = String::new();
        self.each_row(scrollback_lines, |row, names| {
            row_text(row, self.cols, names.clusters, &mut out);
            out.push('\n');
        });
        out.truncate(out.trim_end_matches('\n').len());
        if !out.is_empty() {
            out.push('\n');
        }
        out
    }

    /// Returns the rows as text, including blank ones, each with its wrapped flag.
    pub fn lines(&self, scrollback_lines: usize) -> Vec<(String, bool)> {
        let mut lines = Vec::new();
        self.each_row(scrollback_lines, |row, names| {
            let mut text = String::new();
            row_text(row, self.cols, names.clusters, &mut text);
            lines.push((text, row.wrapped));
        });
        lines
    }

    /// Returns the rows as HTML: one `pre`, with a `span` for each run of cells of one style.
    pub fn html(&self, scrollback_lines: usize) -> String {
        let mut out = String::from("<pre class=\"terminal\">");
        let mut rows = Vec::new();
        self.each_row(scrollback_lines, |row, names| {
            let mut line = String::new();
            self.row_html(row, names, &mut line);
            rows.push(line);
        });
        while rows.last().is_some_and(String::is_empty) {
            rows.pop();
        }
        for row in rows {
            out.push_str(&row);
            out.push('\n');
        }
        out.push_str("</pre>\n");
        out
    }

    /// Visits the rows of the scrollback (of the normal buffer only), then those of the screen.
    fn each_row(&self, scrollback: usize, mut see: impl FnMut(&Row, Names<'_>)) {
        let (mut styles, mut clusters) = (self.styles.clone(), self.clusters.clone());
        for line in self.buf.scrollback.last(scrollback) {
            let row = line.row(&mut styles, &mut clusters);
            see(&row, Names { styles: &styles, clusters: &clusters });
        }
        for row in &self.buf.rows {
            see(row, Names { styles: &self.styles, clusters: &self.clusters });
        }
    }

    fn row_html(&self, row: &Row, names: Names<'_>, out: &mut String) {
        let end = row.cells().iter().take(self.cols).rposition(|cell| *cell != Cell::NULL);
        let cells = &row.cells()[..end.map_or(0, |i| i + 1)];
        for run in cells.chunk_by(|a, b| a.style == b.style) {
            let style = names.styles.get(run[0].style);
            let css = self.css(&style);
            let link = self.links.get(style.link).map(|link| &link.uri).filter(|uri| is_web(uri));
            if let Some(uri) = link {
                out.push_str("<a rel=\"noopener noreferrer\" href=\"");
                escape(uri, out);
                out.push_str("\">");
            }
            if !css.is_empty() {
                let _ = write!(out, "<span style=\"{css}\">");
            }
            let mut text = String::new();
            cells_text(run, names.clusters, &mut text);
            escape(&text, out);
            if !css.is_empty() {
                out.push_str("</span>");
            }
            if link.is_some() {
                out.push_str("</a>");
            }
        }
    }

    fn css(&self, style: &Style) -> String {
        let mut css = String::new();
        let (mut fg, mut bg) = (self.rgb(style.fg), self.rgb(style.bg));
        if style.fg & INVERSE != 0 {
            let special = |which: usize| self.colors.as_ref().and_then(|c| c.special[which]);
            let (default_fg, default_bg) =
                (special(0).unwrap_or(0xff_ffff), special(1).unwrap_or(0));
            (fg, bg) = (Some(bg.unwrap_or(default_bg)), Some(fg.unwrap_or(default_fg)));
        }
        if let Some(rgb) = fg {
            let _ = write!(css, "color:#{rgb:06x};");
        }
        if let Some(rgb) = bg {
            let _ = write!(css, "background:#{rgb:06x};");
        }
        for (on, rule) in [
            (style.fg & BOLD != 0, "font-weight:bold;"),
            (style.bg & DIM != 0, "opacity:.5;"),
            (style.bg & ITALIC != 0, "font-style:italic;"),
            (style.fg & INVISIBLE != 0, "visibility:hidden;"),
        ] {
            if on {
                css.push_str(rule);
            }
        }
        let mut lines = Vec::new();
        if style.fg & UNDERLINE != 0 {
            lines.push(match style.underline_style() {
                2 => "underline double",
                3 => "underline wavy",
                4 => "underline dotted",
                5 => "underline dashed",
                _ => "underline",
            });
        }
        if style.fg & STRIKE != 0 {
            lines.push("line-through");
        }
        if style.bg & OVERLINE != 0 {
            lines.push("overline");
        }
        if !lines.is_empty() {
            let _ = write!(css, "text-decoration:{};", lines.join(" "));
        }
        css
    }

    /// Returns the RGB value of a color word, or `None` for the default color.
    fn rgb(&self, word: u32) -> Option<u32> {
        match word & MODE {
            P16 | P256 => {
                let index = (word & 255) as usize;
                let set = self.colors.as_ref().and_then(|colors| colors.palette[index]);
                Some(set.unwrap_or_else(|| default_color(index)))
            }
            RGB => Some(word & 0xff_ffff),
            _ => None,
        }
    }
}

/// Whether the target is safe to click.
fn is_web(uri: &str) -> bool {
    let lower = uri.get(..8).unwrap_or(uri).to_ascii_lowercase();
    lower.starts_with("http://") || lower.starts_with("https://")
}

fn row_text(row: &Row, cols: usize, clusters: &Clusters, out: &mut String) {
    let length = row.trimmed_len().min(cols).min(row.cells().len());
    let start = out.len();
    cells_text(&row.cells()[..length], clusters, out);
    out.truncate(start + out[start..].trim_end_matches(' ').len());
}

fn cells_text(cells: &[Cell], clusters: &Clusters, out: &mut String) {
    let mut skip = false;
    for cell in cells {
        if std::mem::take(&mut skip) {
            continue;
        }
        match cell.glyph() {
            Glyph::None => out.push(' '),
            Glyph::Char(code) => out.extend(char::from_u32(code)),
            Glyph::Cluster(number) => out.push_str(clusters.get(number)),
        }
        skip = cell.width() == 2;
    }
}

fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
}
