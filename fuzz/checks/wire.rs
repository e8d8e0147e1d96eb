//! Any bytes on a host's socket, from either side: refused or understood, and what is understood is
//! written again as it came.

use wire::{Decoder, Event, Frame, Request};

fn same(frame: &Frame<'_>, encoded: &[u8]) {
    let mut decoder = Decoder::default();
    decoder.feed(encoded);
    assert_eq!(decoder.next_frame().expect("we wrote it"), Some(*frame));
}

pub fn check(data: &[u8]) {
    // The first byte says how the stream is cut.
    let Some((cut, data)) = data.split_first() else { return };
    let mut decoder = Decoder::default();
    for piece in data.chunks(usize::from(*cut).max(1)) {
        decoder.feed(piece);
        loop {
            let frame = match decoder.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(_) => return,
            };
            let mut out = Vec::new();
            if let Ok(Some(request)) = Request::decode(&frame) {
                request.encode(&mut out).expect("it came in a frame");
                same(&frame, &out);
            }
            out.clear();
            if let Ok(Some(event)) = Event::decode(&frame) {
                event.encode(&mut out).expect("it came in a frame");
                same(&frame, &out);
            }
        }
    }
}
