//! The recent output of a terminal, in memory, bounded.
//!
//! One owner pushes; any number of watchers read at their own pace by sequence number. A
//! watcher that asks for something that has been dropped is told so and gets a new picture:
//! the window never waits for anybody.

use std::collections::VecDeque;

use bytes::Bytes;

/// What a watcher may be told, in the order in which it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Bytes the terminal printed; `offset` is that of the first of them.
    Output { offset: u64, bytes: Bytes },
    /// The terminal has another size from here on.
    Resize { cols: u16, rows: u16 },
    /// Bytes `from..to` were dropped before anybody could read them.
    Gap { from: u64, to: u64 },
    /// The program set the window title.
    Title(String),
    /// Something the server has to say, for people.
    Notice(String),
    /// Who may type changed; `None` when nobody holds the keyboard.
    Driver(Option<String>),
    /// The program is gone.
    Exit { code: Option<i32>, signal: Option<i32> },
}

/// A bounded run of [`Event`]s with the offset at which it ends.
#[derive(Debug)]
pub struct Window {
    events: VecDeque<Event>,
    /// Sequence number of the first event held.
    first: u64,
    /// Offset of the first byte held, which is `end` when no output is held.
    start: u64,
    end: u64,
    bytes: usize,
    limit: usize,
}

/// The answer to a watcher that asks for what comes at its place.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// These events, and the place after them.
    Events(Vec<Event>, u64),
    /// Nothing yet.
    Wait,
    /// The place has been dropped: take a new picture.
    Lost,
}

/// Events other than output weigh this much, so that a storm of them is bounded too.
const EVENT_WEIGHT: usize = 64;

impl Window {
    /// An empty window that ends at `offset` and holds at most `limit` bytes.
    pub fn new(offset: u64, limit: usize) -> Window {
        Window { events: VecDeque::new(), first: 0, start: offset, end: offset, bytes: 0, limit }
    }

    /// The place after the last event.
    pub fn head(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// The offsets of the first byte held and after the last.
    pub fn bounds(&self) -> (u64, u64) {
        (self.start, self.end)
    }

    /// Drops everything and goes on at another offset; every watcher is lost.
    pub fn restart(&mut self, offset: u64) {
        self.clear();
        self.first += 1;
        (self.start, self.end) = (offset, offset);
    }

    /// Appends an event and drops the oldest ones beyond the limit.
    pub fn push(&mut self, event: Event) {
        match &event {
            Event::Output { offset, bytes } => {
                debug_assert_eq!(*offset, self.end, "output is contiguous");
                self.end = offset + bytes.len() as u64;
            }
            Event::Gap { to, .. } => self.end = *to,
            Event::Resize { .. }
            | Event::Title(_)
            | Event::Notice(_)
            | Event::Driver(_)
            | Event::Exit { .. } => {}
        }
        self.bytes += weight(&event);
        self.events.push_back(event);
        while self.bytes > self.limit {
            self.drop_first();
        }
    }

    /// Drops everything held; watchers behind the head are lost.
    pub fn clear(&mut self) {
        while !self.events.is_empty() {
            self.drop_first();
        }
        self.events.shrink_to_fit();
    }

    /// Up to about `most` bytes of events at `place`.
    pub fn read(&self, place: u64, most: usize) -> Next {
        if place < self.first {
            return Next::Lost;
        }
        let skip = (place - self.first) as usize;
        let mut size = 0;
        let events: Vec<Event> = self
            .events
            .iter()
            .skip(skip)
            .take_while(|event| {
                let fits = size == 0 || size + weight(event) <= most;
                size += weight(event);
                fits
            })
            .cloned()
            .collect();
        if events.is_empty() {
            return Next::Wait;
        }
        let next = place + events.len() as u64;
        Next::Events(events, next)
    }

    /// The missed events from byte `offset` on, and the place after them, if all are held.
    pub fn since(&self, offset: u64) -> Option<(Vec<Event>, u64)> {
        if offset < self.start || offset > self.end {
            return None;
        }
        let mut position = self.start;
        let mut missed = Vec::new();
        for event in &self.events {
            match event {
                Event::Output { offset: at, bytes } => {
                    position = at + bytes.len() as u64;
                    if position > offset {
                        let skip = offset.saturating_sub(*at) as usize;
                        let bytes = bytes.slice(skip..);
                        missed.push(Event::Output { offset: at + skip as u64, bytes });
                    }
                }
                Event::Gap { to, .. } => {
                    position = *to;
                    if position > offset {
                        missed.push(event.clone());
                    }
                }
                // At the very offset it is not known whether the client saw it; saying a
                // size or a title twice does no harm.
                Event::Resize { .. }
                | Event::Title(_)
                | Event::Notice(_)
                | Event::Driver(_)
                | Event::Exit { .. } => {
                    if position >= offset {
                        missed.push(event.clone());
                    }
                }
            }
        }
        Some((missed, self.head()))
    }

    fn drop_first(&mut self) {
        if let Some(event) = self.events.pop_front() {
            self.bytes -= weight(&event);
            self.first += 1;
            match event {
                Event::Output { offset, bytes } => self.start = offset + bytes.len() as u64,
                Event::Gap { to, .. } => self.start = to,
                Event::Resize { .. }
                | Event::Title(_)
                | Event::Notice(_)
                | Event::Driver(_)
                | Event::Exit { .. } => {}
            }
        }
    }
}

fn weight(event: &Event) -> usize {
    match event {
        Event::Output { bytes, .. } => EVENT_WEIGHT + bytes.len(),
        Event::Title(text) | Event::Notice(text) => EVENT_WEIGHT + text.len(),
        Event::Resize { .. } | Event::Gap { .. } | Event::Driver(_) | Event::Exit { .. } => {
            EVENT_WEIGHT
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn output(offset: u64, text: &'static str) -> Event {
        Event::Output { offset, bytes: Bytes::from_static(text.as_bytes()) }
    }

    #[test]
    fn a_watcher_that_falls_out_of_the_window_is_told() {
        let mut window = Window::new(0, 3 * EVENT_WEIGHT);
        let place = window.head();
        window.push(output(0, "one"));
        window.push(output(3, "two"));
        assert_eq!(
            window.read(place, 1 << 20),
            Next::Events(vec![output(0, "one"), output(3, "two")], 2)
        );
        window.push(output(6, "three"));
        assert_eq!(window.read(place, 1 << 20), Next::Lost);
        assert_eq!(window.read(3, 1 << 20), Next::Wait);
    }

    #[test]
    fn resuming_inside_an_event_gives_exactly_the_missed_bytes() {
        let mut window = Window::new(10, 1 << 20);
        window.push(output(10, "hello "));
        window.push(Event::Resize { cols: 100, rows: 30 });
        window.push(output(16, "world"));
        let missed =
            vec![output(12, "llo "), Event::Resize { cols: 100, rows: 30 }, output(16, "world")];
        assert_eq!(window.since(12), Some((missed, 3)));
        assert_eq!(window.since(9), None);
        assert_eq!(window.since(22), None);
    }

    proptest! {
        #[test]
        fn what_was_read_and_what_was_missed_make_the_whole(
            lengths in prop::collection::vec(1usize..40, 1..60),
            limit in 200usize..4000,
            cut in 0u64..2400,
        ) {
            let mut window = Window::new(0, limit);
            let mut whole = Vec::new();
            for (index, length) in lengths.iter().enumerate() {
                let chunk = vec![index as u8; *length];
                window.push(Event::Output { offset: whole.len() as u64, bytes: chunk.clone().into() });
                whole.extend(chunk);
            }
            prop_assert!(window.bytes <= limit);
            if let Some((missed, _)) = window.since(cut) {
                let mut seen = whole[..cut as usize].to_vec();
                for event in missed {
                    if let Event::Output { offset, bytes } = event {
                        prop_assert_eq!(offset, seen.len() as u64);
                        seen.extend_from_slice(&bytes);
                    }
                }
                prop_assert_eq!(seen, whole);
            } else {
                prop_assert!(cut > window.end || cut < window.start);
            }
        }
    }
}
