//! JSON export of the screen, for the command line and for tests.

use std::fmt::Write;

use crate::screen::{MouseEncoding, MouseMode, Screen};

/// Returns a JSON object with size, cursor, title, modes and lines (scrollback first).
pub fn screen_json(screen: &Screen) -> String {
    let mut out = String::from("{");
    let size = screen.size();
    let cursor = screen.cursor();
    let _ = write!(
        out,
        "\"cols\":{},\"rows\":{},\"cursor\":{{\"row\":{},\"col\":{},\"visible\":{}}},",
        size.cols, size.rows, cursor.row, cursor.col, cursor.visible
    );
    out.push_str("\"title\":");
    string(screen.title(), &mut out);
    out.push_str(",\"cwd\":");
    string(screen.cwd(), &mut out);
    let _ = write!(out, ",\"alt_screen\":{},\"modes\":{{", screen.alt_screen());
    let modes = screen.modes();
    for (name, on) in [
        ("application_cursor", modes.app_cursor),
        ("application_keypad", modes.app_keypad),
        ("bracketed_paste", modes.bracketed_paste),
        ("insert", modes.insert),
        ("origin", modes.origin),
        ("reverse_wrap", modes.reverse_wrap),
        ("send_focus", modes.send_focus),
        ("synchronized", modes.synchronized),
        ("wrap", modes.wrap),
        ("reverse_video", modes.reverse_video),
        ("line_feed", modes.line_feed),
    ] {
        let _ = write!(out, "\"{name}\":{on},");
    }
    let mouse = match modes.mouse {
        MouseMode::None => "none",
        MouseMode::X10 => "x10",
        MouseMode::Vt200 => "vt200",
        MouseMode::Drag => "drag",
        MouseMode::Any => "any",
    };
    let encoding = match modes.mouse_encoding {
        MouseEncoding::Default => "default",
        MouseEncoding::Sgr => "sgr",
        MouseEncoding::SgrPixels => "sgr_pixels",
    };
    let _ = write!(out, "\"mouse\":\"{mouse}\",\"mouse_encoding\":\"{encoding}\"}},");
    let scrollback = screen.buf.scrollback.len();
    let _ = write!(out, "\"scrollback\":{scrollback},\"lines\":[");
    for (i, (text, wrapped)) in screen.lines(usize::MAX).into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str("{\"text\":");
        string(&text, &mut out);
        let _ = write!(out, ",\"wrapped\":{wrapped}}}");
    }
    out.push_str("]}\n");
    out
}

fn string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
