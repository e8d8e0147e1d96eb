//! Recordings of real programs: at the end of each one the screen equals that of xterm.js, and a
//! snapshot or checkpoint at any point leads to the same screen.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::path::{Path, PathBuf};

use vt::{Screen, Size};

struct Recording {
    path: PathBuf,
    size: Size,
    bytes: Vec<u8>,
}

fn recordings() -> Vec<Recording> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "rec"));
    assert!(paths.len() > 50, "only {} recordings", paths.len());
    paths
        .into_iter()
        .map(|path| {
            let all = fs::read(&path).unwrap();
            let end = all.iter().position(|b| *b == b'\n').unwrap();
            let head = std::str::from_utf8(&all[..end]).unwrap();
            let (cols, rows) = head.split_once('x').unwrap();
            let size = Size { cols: cols.parse().unwrap(), rows: rows.parse().unwrap() };
            Recording { path, size, bytes: all[end + 1..].to_vec() }
        })
        .collect()
}

fn grid(screen: &Screen) -> String {
    let cursor = screen.cursor();
    let mut out = format!(
        "cursor {},{}{}\ntitle {}\nscreen {}\n",
        cursor.row,
        cursor.col,
        if cursor.visible { "" } else { " hidden" },
        screen.title(),
        if screen.alt_screen() { "alternate" } else { "normal" },
    );
    let scrollback = if screen.alt_screen() { 0 } else { screen.scrollback() };
    out.push_str(&format!("scrollback {scrollback}\n"));
    for (text, wrapped) in screen.lines(usize::MAX) {
        out.push(if wrapped { '+' } else { '|' });
        out.push_str(&text);
        out.push('\n');
    }
    out
}

#[test]
fn every_recording_ends_in_its_grid() {
    for Recording { path, size, bytes } in recordings() {
        let mut screen = Screen::new(size, 5000);
        screen.feed(&bytes);
        let expected = fs::read_to_string(path.with_extension("grid")).unwrap();
        assert_eq!(grid(&screen), expected, "{}", path.display());
    }
}

#[test]
fn a_snapshot_or_checkpoint_at_any_point_leads_to_the_same_screen() {
    for Recording { path, size, bytes } in recordings() {
        let mut screen = Screen::new(size, 5000);
        screen.feed(&bytes);
        let (expected, replies) = (screen.snapshot(), String::new());
        // A few offsets, distributed by the golden ratio.
        for i in 1..8usize {
            let cut = (i * 40503) % (bytes.len() + 1);
            let mut first = Screen::new(size, 5000);
            first.feed(&bytes[..cut]);
            for (method, mut second) in [
                ("snapshot", {
                    let mut fresh = Screen::new(size, 5000);
                    let fed = fresh.feed(&first.snapshot());
                    assert_eq!(String::from_utf8_lossy(&fed.replies), replies);
                    fresh
                }),
                ("checkpoint", Screen::restore(&first.checkpoint()).unwrap()),
            ] {
                second.feed(&bytes[cut..]);
                assert_eq!(
                    second.snapshot().escape_ascii().to_string(),
                    expected.escape_ascii().to_string(),
                    "{} at offset {cut}, by {method}",
                    path.display()
                );
            }
        }
    }
}
