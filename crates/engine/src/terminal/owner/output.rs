//! Applies the output of a terminal's program to its screen and its window.

use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;
use vt::Size;
use wire::Request;

use super::request::Runtime;
use super::{Batch, Owner, View};
use crate::terminal::window::WatchEvent;

impl Owner {
    pub(super) async fn take(&mut self, batch: &mut Batch) {
        if matches!(self.view, View::Unloaded) {
            Box::pin(self.load_screen()).await;
        }
        let mut replies = Vec::new();
        for event in batch.drain(..) {
            self.apply(*event, &mut replies);
        }
        let now = Instant::now();
        self.last_output = now;
        self.dirty_since.get_or_insert(now);
        let offset = self.offset;
        self.shared.note(|facts| {
            facts.offset = offset;
            facts.last_activity_at = Timestamp::now();
        });
        self.announce();
        if let Some(link) = &self.link {
            if !replies.is_empty() {
                let terminal = self.id.clone();
                link.post(|seq| Request::Input {
                    seq,
                    terminal,
                    write_id: String::new(),
                    data: replies,
                });
            }
            if link.is_behind(&self.id)
                && self.output.as_ref().is_some_and(mpsc::Receiver::is_empty)
            {
                let _ = Box::pin(link.attach(&self.id, self.offset)).await;
            }
        }
    }

    /// Applies one event from the host. Replies to terminal queries are collected in `replies`.
    fn apply(&mut self, event: wire::Event, replies: &mut Vec<u8>) {
        match event {
            wire::Event::Output { offset, bytes, .. } => {
                let mut bytes = Bytes::from(bytes);
                if offset > self.offset {
                    // The host reports lost bytes as a gap. This output was sent before the host received
                    // our attach at `self.offset`, and is sent again in order.
                    return;
                }
                let known = self.offset.saturating_sub(offset);
                if known >= bytes.len() as u64 {
                    return;
                }
                bytes = bytes.slice(known as usize..);
                if let View::Loaded(screen) = &mut self.view {
                    let fed = screen.feed(&bytes);
                    replies.extend_from_slice(&fed.replies);
                    let title = fed.events.into_iter().rev().find_map(|event| match event {
                        vt::ScreenEvent::Title(title) => Some(title),
                        _ => None,
                    });
                    if let Some(title) = title {
                        self.shared.note(|facts| facts.title.clone_from(&title));
                        self.shared.push(WatchEvent::Title(title));
                    }
                }
                let at = self.offset;
                self.offset += bytes.len() as u64;
                self.shared.push(WatchEvent::Output { offset: at, bytes });
            }
            wire::Event::Resized { cols, rows, .. } => {
                if (Size { cols, rows }) != self.size {
                    self.size = Size { cols, rows };
                    if let View::Loaded(screen) = &mut self.view {
                        screen.resize(self.size);
                    }
                    self.shared.note(|facts| (facts.cols, facts.rows) = (cols, rows));
                    self.shared.push(WatchEvent::Resize { cols, rows });
                }
            }
            wire::Event::Gap { to, .. } => {
                if to > self.offset {
                    self.skip(to);
                }
            }
            wire::Event::Exited { code, signal, .. } => {
                let exit = ((signal == 0).then_some(code), (signal != 0).then_some(signal));
                self.shared.note(|facts| (facts.exit, facts.live) = (Some(exit), false));
                self.shared.push(WatchEvent::Exit { code: exit.0, signal: exit.1 });
            }
            other => tracing::warn!(terminal = self.id, ?other, "not part of a terminal's output"),
        }
    }

    fn skip(&mut self, to: u64) {
        self.shared.push(WatchEvent::Gap { from: self.offset, to });
        self.offset = to;
    }

    pub(super) fn begin(&mut self, runtime: Runtime) {
        if runtime.offset > self.offset {
            // Printed while the server was disconnected: the next picture is built from the log.
            self.view = View::Unloaded;
            self.skip_silently(runtime.offset);
        }
        self.size = Size { cols: runtime.cols, rows: runtime.rows };
        if let View::Loaded(screen) = &mut self.view {
            screen.resize(self.size);
        }
        let offset = self.offset;
        self.shared.note(|facts| {
            (facts.cols, facts.rows) = (runtime.cols, runtime.rows);
            (facts.live, facts.exit, facts.offset) = (true, None, offset);
        });
        self.link = Some(runtime.link);
        self.output = Some(runtime.output);
    }

    /// Moves the end without an event: connected watchers get a new picture.
    fn skip_silently(&mut self, to: u64) {
        let mut window = self.shared.window.lock();
        window.restart(to);
        drop(window);
        self.offset = to;
        self.announce();
    }

    pub(super) fn lose(&mut self, why: &str) {
        if let Some(link) = self.link.take() {
            link.unlisten(&self.id);
        }
        self.output = None;
        let exited = self.shared.facts().exit.is_some();
        self.shared.note(|facts| facts.live = false);
        if !exited {
            self.shared.push(WatchEvent::Notice(why.to_owned()));
            self.announce();
        }
    }
}
