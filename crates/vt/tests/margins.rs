//! Side margins (DECLRMM). xterm.js does not support them, so they follow the VT420.
#![allow(clippy::unwrap_used, missing_docs)]

use vt::{Screen, Size};

/// Columns 2 to 5 and rows 2 to 5 of a screen of 8 by 7.
const REGION: &str = "\x1b[2;5r\x1b[?69h\x1b[2;5s";

fn screen(input: &str) -> Screen {
    let mut screen = Screen::new(Size { cols: 8, rows: 7 }, 0);
    screen.feed(REGION.as_bytes());
    screen.feed(input.as_bytes());
    screen
}

#[track_caller]
fn check_cursor(input: &str, row: u16, col: u16) {
    let cursor = screen(input).cursor();
    assert_eq!((cursor.row + 1, cursor.col + 1), (row, col), "{input:?}");
}

#[test]
fn next_line_outside_the_margins_does_not_scroll() {
    for start in ["\x1b[5;7H", "\x1b[5;1H"] {
        let screen = screen(&format!("\x1b[5;3Hx{start}\x1bE"));
        assert_eq!(screen.text(0), "\n\n\n\n  x\n", "{start:?}");
    }
    check_cursor("\x1b[5;7H\x1bE", 5, 2);
    check_cursor("\x1b[4;7H\x1bE", 5, 2);
    check_cursor("\x1b[5;1H\x1bE", 5, 1);
}

#[test]
fn in_origin_mode_positions_are_relative_to_the_margins() {
    check_cursor("\x1b[?6h", 2, 2);
    check_cursor("\x1b[?6h\x1b[2;2H", 3, 3);
    check_cursor("\x1b[?6h\x1b[2;2H\x1b[e", 4, 3);
    check_cursor("\x1b[?6h\x1b[2;2H\x1b[a", 3, 4);
    check_cursor("\x1b[?6h\x1b[2;2H\x1b[G", 3, 2);
    check_cursor("\x1b[?6h\x1b[2;2H\x1b[d", 2, 3);
    check_cursor("\x1b[?6h\x1b[9;9H", 5, 5);
    check_cursor("\x1b[?6h\x1b[2;2H\x1b[9A", 2, 3);
}

#[test]
fn backspace_wraps_back_between_the_margins() {
    check_cursor("\x1b[?45h\x1b[3;2H\x08", 2, 5);
    check_cursor("\x1b[?45h\x1b[3;1H\x08", 2, 5);
    check_cursor("\x1b[?45h\x1b[2;2H\x08", 2, 2);
    check_cursor("\x1b[?45h\x1b[?7l\x1b[3;2H\x08", 3, 2);
    check_cursor("\x1b[3;2H\x08", 3, 2);
}

#[test]
fn protection_that_xterm_js_does_not_support_is_ignored() {
    // SPA and EPA: a browser erases the text between them.
    let screen = screen("a\x1bVb\x1bWc\x1b[1;1H\x1b[?2J");
    assert_eq!(screen.text(0), "");
}
