//! Memory and time stay bounded for any input.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::time::{Duration, Instant};

use vt::{Screen, Size};

const MB: usize = 1 << 20;

/// Returns the CPU time of this thread, so that a busy machine does not fail the test.
fn cpu_time(since: Instant) -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    match stat.split(' ').next().and_then(|nanos| nanos.parse().ok()) {
        Some(nanos) => Duration::from_nanos(nanos),
        None => since.elapsed(),
    }
}

/// Feeds `piece(i)` for `times` pieces and checks the memory of the screen.
fn check(name: &str, max_heap: usize, times: usize, piece: impl Fn(usize) -> Vec<u8>) -> Screen {
    let mut screen = Screen::new(Size { cols: 80, rows: 24 }, 5000);
    let start = Instant::now();
    let before = cpu_time(start);
    let mut bytes = Vec::new();
    for i in 0..times {
        bytes.extend(piece(i));
        if bytes.len() > 1 << 16 {
            screen.feed(&bytes);
            bytes.clear();
        }
    }
    screen.feed(&bytes);
    let (heap, time) = (screen.heap(), cpu_time(start) - before);
    assert!(heap < max_heap, "{name}: {heap} bytes");
    assert!(time < Duration::from_secs(60), "{name}: {time:?}");
    let snapshot = screen.snapshot();
    assert!(snapshot.len() < 64 * MB, "{name}: a snapshot of {} bytes", snapshot.len());
    Screen::restore(&screen.checkpoint()).unwrap();
    screen
}

#[test]
fn unterminated_strings_are_not_stored() {
    for start in [
        "\x1b]0;",
        "\x1b]52;c;",
        "\x1b]1337;File=:",
        "\x1bPq",
        "\x1bP$q",
        "\x1b_G",
        "\x1b^",
        "\x1bX",
    ] {
        let screen = check(start, MB, 2000, |i| {
            let mut piece = if i == 0 { start.as_bytes().to_vec() } else { Vec::new() };
            piece.extend([b'A'; 4096]);
            piece
        });
        assert_eq!(screen.title(), "", "{start:?}");
        // The parser is still inside the string, and a small snapshot preserves that.
        let mut next = Screen::new(screen.size(), 10);
        next.feed(&screen.snapshot());
        next.feed(b"more\x1b\\text");
        assert_eq!(next.text(0), "text\n", "{start:?}");
    }
}

#[test]
fn endless_parameters_are_truncated() {
    check(
        "parameters",
        MB,
        1_000_000,
        |i| if i == 0 { b"\x1b[1".to_vec() } else { b";1".to_vec() },
    );
    check("sub-parameters", MB, 1_000_000, |i| {
        if i == 0 { b"\x1b[4".to_vec() } else { b":1".to_vec() }
    });
    check("digits", MB, 1_000_000, |i| if i == 0 { b"\x1b[9".to_vec() } else { b"9".to_vec() });
    check(
        "intermediates",
        MB,
        1_000_000,
        |i| if i == 0 { b"\x1b[".to_vec() } else { b"!".to_vec() },
    );
}

#[test]
fn combining_marks_per_cell_are_limited() {
    let screen = check("marks", 4 * MB, 1_000_000, |i| {
        if i == 0 { b"e".to_vec() } else { "\u{301}".as_bytes().to_vec() }
    });
    assert!(screen.text(0).chars().count() < 100);
    check("marks everywhere", 64 * MB, 100_000, |i| {
        let mark = |n: usize| char::from_u32(0x300 + (n % 100) as u32).unwrap();
        let mut text = String::from("x");
        text.extend((0..40).map(|n| mark(i / (n + 1) + n)));
        text.into_bytes()
    });
}

#[test]
fn unused_styles_and_links_are_removed() {
    check("styles", 8 * MB, 1_000_000, |i| {
        let (r, g, b) = (i & 255, i >> 8 & 255, i >> 16 & 255);
        format!("\x1b[38;2;{r};{g};{b}mx").into_bytes()
    });
    check("links", 24 * MB, 300_000, |i| {
        format!("\x1b]8;;http://example.com/{i}\x07x").into_bytes()
    });
    check("links with ids", 24 * MB, 300_000, |i| {
        format!("\x1b]8;id={i};http://example.com/\x07x\r\n").into_bytes()
    });
}

#[test]
fn a_line_may_have_any_length() {
    check("one line", 2 * MB, 16 * 1024, |_| vec![b'x'; 4096]);
}

#[test]
fn small_queries_do_not_cause_large_replies() {
    let mut screen = Screen::new(Size { cols: 80, rows: 24 }, 100);
    let fed = screen.feed(&b"\x1b[c".repeat(100_000));
    assert!(fed.replies.len() <= 64 * 1024);
    let fed = screen.feed(&b"\x07".repeat(100_000));
    assert!(fed.events.len() <= 1024);
    let start = Instant::now();
    let before = cpu_time(start);
    screen.feed(&b"x\x1b[999999999b\x1b[999999999L\x1b[999999999S\x1b[999999999I".repeat(200));
    let time = cpu_time(start) - before;
    assert!(time < Duration::from_secs(30), "{time:?}");
}

#[test]
fn a_thousand_resizes_stay_within_bounds() {
    let mut screen = Screen::new(Size { cols: 80, rows: 24 }, 1000);
    for i in 0..1000u16 {
        screen.feed(format!("line {i} {}\r\n", "word ".repeat(usize::from(i % 40))).as_bytes());
        screen.resize(Size { cols: 2 + i * 7 % 300, rows: 1 + i * 13 % 90 });
    }
    for size in [(0, 0), (u16::MAX, u16::MAX), (1, 1), (80, 24)] {
        screen.resize(Size { cols: size.0, rows: size.1 });
    }
    assert!(screen.heap() < 64 * MB, "{}", screen.heap());
}
