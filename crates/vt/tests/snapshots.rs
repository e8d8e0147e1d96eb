//! Invisible state that a snapshot restores.
#![allow(clippy::unwrap_used, missing_docs)]

use vt::{Screen, Size};

/// Feeds `before`, takes a snapshot, and checks that `after` leads to the same screen on the
/// restored screen as on the original.
#[track_caller]
fn check(before: &str, after: &str) -> Screen {
    let size = Size { cols: 12, rows: 5 };
    let mut screen = Screen::new(size, 10);
    screen.feed(before.as_bytes());
    let snapshot = screen.snapshot();
    let mut fresh = Screen::new(size, 10);
    fresh.feed(&snapshot);
    screen.feed(after.as_bytes());
    fresh.feed(after.as_bytes());
    assert_eq!(fresh.cursor(), screen.cursor(), "{}", snapshot.escape_ascii());
    assert_eq!(
        fresh.snapshot().escape_ascii().to_string(),
        screen.snapshot().escape_ascii().to_string(),
        "{}",
        snapshot.escape_ascii()
    );
    fresh
}

#[test]
fn the_saved_cursor_of_the_inactive_buffer_is_restored() {
    let screen = check("\x1b[?47h\x1b[3;4H\x1b[31m\x1b7\x1b[?47l\x1b[Hab", "\x1b[?47h\x1b8x");
    assert_eq!((screen.cursor().row, screen.cursor().col), (2, 4));
    // The saved cursor of the active buffer is separate.
    check("\x1b[2;2H\x1b7\x1b[?47h\x1b[3;4H\x1b7\x1b[?47l\x1b[Hab", "\x1b8x\x1b[?47h\x1b8y");
}

#[test]
fn wrapped_lines_stay_wrapped() {
    let text = "abcdefghijklmnopqrstuvwxyz0123456789";
    for before in [
        format!("{text}\r\n{text}ABC\r\n{text}{text}\r\nend"),
        format!("{text}\x1b[31mred\x1b[m{text}\r\n{text}\r\n{text}"),
        format!("{text}中文{text}\r\nshort\r\n{text}{text}{text}"),
    ] {
        let mut screen = check(&before, "");
        screen.resize(Size { cols: 40, rows: 5 });
        let mut direct = Screen::new(Size { cols: 12, rows: 5 }, 10);
        direct.feed(before.as_bytes());
        direct.resize(Size { cols: 40, rows: 5 });
        assert_eq!(screen.text(100), direct.text(100));
    }
}

#[test]
fn a_narrower_screen_keeps_the_lines_at_its_bottom() {
    let resized = |scrollback, drawn: &str| {
        let mut screen = Screen::new(Size { cols: 10, rows: 4 }, scrollback);
        screen.feed(drawn.as_bytes());
        screen.resize(Size { cols: 5, rows: 4 });
        (screen.text(100), screen.cursor().row)
    };
    let full = "abcdefghij\x1b[3;1Hthree\x1b[4;1Hfour\x1b[2;1H";
    assert_eq!(resized(10, full), ("abcde\nfghij\n\nthree\nfour\n".to_owned(), 1));
    // Without scrollback the line at the top is the one that goes.
    assert_eq!(resized(0, full), ("fghij\n\nthree\nfour\n".to_owned(), 1));
    // Where the bottom is empty, all lines fit.
    let short = "abcdefghij\x1b[3;1Hthree\x1b[2;1H";
    assert_eq!(resized(0, short), ("abcde\nfghij\n\nthree\n".to_owned(), 2));
}

#[test]
fn attribute_colors_are_restored() {
    let mut screen = check("\x1b]5;0;#102030\x07x", "");
    let fed = screen.feed(b"\x1b]5;0;?\x07");
    assert_eq!(fed.replies, b"\x1b]5;0;rgb:1010/2020/3030\x1b\\");
}

#[test]
fn a_reported_directory_that_is_not_a_path_is_restored() {
    for reported in [";://vm", "relative/x", "file://host/a%20b/%1b"] {
        let before = format!("\x1b]7;{reported}\x07x");
        let mut screen = Screen::new(Size { cols: 12, rows: 5 }, 10);
        screen.feed(before.as_bytes());
        assert_eq!(check(&before, "").cwd(), screen.cwd(), "{reported}");
    }
}

#[test]
fn a_rectangle_change_does_not_split_wide_characters() {
    // DECCARA over the second half of one character and the first half of another.
    for change in ["\x1b[2*x\x1b[1;2;1;3;4$r", "\x1b[1;2;1;3;7$t", "\x1b[1;2;1;3;4$r"] {
        let screen = check(&format!("\u{5bbd}\u{5bad}\u{5bbd}{change}"), "");
        assert_eq!(screen.text(0), "\u{5bbd}\u{5bad}\u{5bbd}\n");
    }
}
