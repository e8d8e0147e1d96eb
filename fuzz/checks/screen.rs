//! Any bytes, cut anywhere, resized between: the screen holds, does not care about
//! the cut, and its picture and its checkpoint lead back to it.

use vt::{Screen, Size};

pub fn check(data: &[u8]) {
    // The first bytes say the size, where to cut, and the size to change to.
    let [cols, rows, cut, new_cols, new_rows, bytes @ ..] = data else { return };
    let size = Size { cols: u16::from(*cols) % 60 + 2, rows: u16::from(*rows) % 20 + 1 };
    let cut = usize::from(*cut).min(bytes.len());

    let mut whole = Screen::new(size, 30);
    let replies = whole.feed(bytes).replies;
    let mut parts = Screen::new(size, 30);
    let mut answers = parts.feed(&bytes[..cut]).replies;
    answers.extend(parts.feed(&bytes[cut..]).replies);
    assert_eq!(replies, answers);
    assert_eq!(whole.checkpoint(), parts.checkpoint());

    let picture = whole.snapshot();
    let mut read = Screen::new(size, 30);
    assert!(read.feed(&picture).replies.is_empty(), "a picture asks nothing");
    assert_eq!(read.snapshot(), picture, "a picture of a picture is the picture");

    let restored = Screen::restore(&whole.checkpoint()).expect("our own checkpoint");
    assert_eq!(restored.snapshot(), picture);

    whole.resize(Size { cols: u16::from(*new_cols) % 60 + 2, rows: u16::from(*new_rows) % 20 + 1 });
    whole.feed(bytes);
    let _ = (whole.snapshot(), whole.text(100), whole.html(100), whole.checkpoint());
    let _ = Screen::restore(bytes);
}
