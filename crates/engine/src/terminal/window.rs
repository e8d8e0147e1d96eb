//! The recent output of a terminal, in memory, bounded.
//!
//! One owner pushes; any number of watchers read at their own speed by sequence number. A watcher whose
//! position was dropped gets `Next::Lost` and takes a new picture: the window never waits for a watcher.

use std::collections::VecDeque;

use bytes::Bytes;

/// An event for watchers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// Bytes the terminal printed; `offset` is that of the first of them.
    Output { offset: u64, bytes: Bytes },
    /// The terminal has another size from here on.
    Resize { cols: u16, rows: u16 },
    /// Bytes `from..to` were lost.
    Gap { from: u64, to: u64 },
    /// The program set the window title.
    Title(String),
    /// A message of the server for the user.
    Notice(String),
    /// The driver changed; `None` if there is none.
    Driver(Option<String>),
    /// The program ended.
    Exit { code: Option<i32>, signal: Option<i32> },
}

/// A bounded run of [`WatchEvent`]s with the offset at which it ends.
#[derive(Debug)]
pub struct Window {
    events: VecDeque<WatchEvent>,
    /// Sequence number of the first event held.
    first: u64,
    /// Offset of the first byte held, which is `end` when no output is held.
    start: u64,
    end: u64,
    bytes: usize,
    limit: usize,
}

/// The result of reading at a position.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// The events, and the position after them.
    Events(Vec<WatchEvent>, u64),
    /// There is no event at this position yet.
    Wait,
    /// The position was dropped: take a new picture.
    Lost,
}

/// Events other than output weigh this much, so that a storm of them is bounded too.
const EVENT_WEIGHT: usize = 64;

impl Window {
    /// Creates an empty window that ends at `offset` and holds at most `limit` bytes.
    pub fn new(offset: u64, limit: usize) -> Window {
        Window { events: VecDeque::new(), first: 0, start: offset, end: offset, bytes: 0, limit }
    }

    /// Returns the position after the last event.
    pub fn head(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Returns the offset of the first byte held, and the one after the last.
    pub fn bounds(&self) -> (u64, u64) {
        (self.start, self.end)
    }

    /// Drops everything and continues at another offset; every watcher is lost.
    pub fn restart(&mut self, offset: u64) {
        self.clear();
        self.first += 1;
        (self.start, self.end) = (offset, offset);
    }

    /// Appends an event and drops the oldest ones beyond the limit.
    pub fn push(&mut self, event: WatchEvent) {
        match &event {
            WatchEvent::Output { offset, bytes } => {
                debug_assert_eq!(*offset, self.end, "output is contiguous");
                self.end = offset + bytes.len() as u64;
            }
            WatchEvent::Gap { to, .. } => self.end = *to,
            WatchEvent::Resize { .. }
            | WatchEvent::Title(_)
            | WatchEvent::Notice(_)
            | WatchEvent::Driver(_)
            | WatchEvent::Exit { .. } => {}
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

    /// Returns about `max_bytes` of events at `position`.
    pub fn read(&self, position: u64, max_bytes: usize) -> Next {
        if position < self.first {
            return Next::Lost;
        }
        let skip = (position - self.first) as usize;
        let mut size = 0;
        let events: Vec<WatchEvent> = self
            .events
            .iter()
            .skip(skip)
            .take_while(|event| {
                let fits = size == 0 || size + weight(event) <= max_bytes;
                size += weight(event);
                fits
            })
            .cloned()
            .collect();
        if events.is_empty() {
            return Next::Wait;
        }
        let next = position + events.len() as u64;
        Next::Events(events, next)
    }

    /// Returns the events from byte `offset` on and the position after them, if all are held.
    pub fn since(&self, offset: u64) -> Option<(Vec<WatchEvent>, u64)> {
        if offset < self.start || offset > self.end {
            return None;
        }
        let mut position = self.start;
        let mut missed = Vec::new();
        for event in &self.events {
            match event {
                WatchEvent::Output { offset: at, bytes } => {
                    position = at + bytes.len() as u64;
                    if position > offset {
                        let skip = offset.saturating_sub(*at) as usize;
                        let bytes = bytes.slice(skip..);
                        missed.push(WatchEvent::Output { offset: at + skip as u64, bytes });
                    }
                }
                WatchEvent::Gap { to, .. } => {
                    position = *to;
                    if position > offset {
                        missed.push(event.clone());
                    }
                }
                // At exactly this offset it is unknown whether the client saw it; repeating a size or a
                // title is harmless.
                WatchEvent::Resize { .. }
                | WatchEvent::Title(_)
                | WatchEvent::Notice(_)
                | WatchEvent::Driver(_)
                | WatchEvent::Exit { .. } => {
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
                WatchEvent::Output { offset, bytes } => self.start = offset + bytes.len() as u64,
                WatchEvent::Gap { to, .. } => self.start = to,
                WatchEvent::Resize { .. }
                | WatchEvent::Title(_)
                | WatchEvent::Notice(_)
                | WatchEvent::Driver(_)
                | WatchEvent::Exit { .. } => {}
            }
        }
    }
}

fn weight(event: &WatchEvent) -> usize {
    match event {
        WatchEvent::Output { bytes, .. } => EVENT_WEIGHT + bytes.len(),
        WatchEvent::Title(text) | WatchEvent::Notice(text) => EVENT_WEIGHT + text.len(),
        WatchEvent::Resize { .. }
        | WatchEvent::Gap { .. }
        | WatchEvent::Driver(_)
        | WatchEvent::Exit { .. } => EVENT_WEIGHT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn output(offset: u64, text: &'static str) -> WatchEvent {
        WatchEvent::Output { offset, bytes: Bytes::from_static(text.as_bytes()) }
    }

    #[test]
    fn a_watcher_that_falls_out_of_the_window_is_lost() {
        let mut window = Window::new(0, 3 * EVENT_WEIGHT);
        let position = window.head();
        window.push(output(0, "one"));
        window.push(output(3, "two"));
        assert_eq!(
            window.read(position, 1 << 20),
            Next::Events(vec![output(0, "one"), output(3, "two")], 2)
        );
        window.push(output(6, "three"));
        assert_eq!(window.read(position, 1 << 20), Next::Lost);
        assert_eq!(window.read(3, 1 << 20), Next::Wait);
    }

    #[test]
    fn resuming_inside_an_event_gives_exactly_the_missed_bytes() {
        let mut window = Window::new(10, 1 << 20);
        window.push(output(10, "hello "));
        window.push(WatchEvent::Resize { cols: 100, rows: 30 });
        window.push(output(16, "world"));
        let missed = vec![
            output(12, "llo "),
            WatchEvent::Resize { cols: 100, rows: 30 },
            output(16, "world"),
        ];
        assert_eq!(window.since(12), Some((missed, 3)));
        assert_eq!(window.since(9), None);
        assert_eq!(window.since(22), None);
    }

    proptest! {
        #[test]
        fn the_bytes_before_and_after_a_resume_are_the_whole_output(
            lengths in prop::collection::vec(1usize..40, 1..60),
            limit in 200usize..4000,
            cut in 0u64..2400,
        ) {
            let mut window = Window::new(0, limit);
            let mut whole = Vec::new();
            for (index, length) in lengths.iter().enumerate() {
                let chunk = vec![index as u8; *length];
                window.push(WatchEvent::Output { offset: whole.len() as u64, bytes: chunk.clone().into() });
                whole.extend(chunk);
            }
            prop_assert!(window.bytes <= limit);
            if let Some((missed, _)) = window.since(cut) {
                let mut seen = whole[..cut as usize].to_vec();
                for event in missed {
                    if let WatchEvent::Output { offset, bytes } = event {
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
