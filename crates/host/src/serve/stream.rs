//! From the PTY to the log and to those attached.

use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use super::connection::SOFT;
use super::slots::Key;
use super::terminal::{Exit, Life, Place, Terminal, Watcher};
use super::timers::Due;
use super::{BUFFER, Host, SYNC_DELAY, Token, now_ms};
use crate::log::{Cursor, Item, Progress};
use crate::wire::{self, Event, RecordKind};

/// How much is read from one PTY in one turn.
const BUDGET: usize = 16 << 10;

/// A read shorter than this has most likely emptied the PTY: asking again would cost an echo more
/// than the next turn costs a flood.
const LIKELY_ALL: usize = 1 << 10;

/// The most that is read after a program's end. The kernel holds less than 20 KiB; what comes beyond
/// is from someone else who still has the terminal open, and could go on for ever.
const LAST_WORDS: usize = 128 << 10;

/// How much a watcher that is behind reads from the log before the next one has its turn.
const CATCH_UP: usize = 64 << 10;

/// How many such reads one turn of a connection does.
const CATCH_UP_READS: usize = 8;

impl Host {
    pub(super) fn terminal_ready(&mut self, key: Key, flags: EventFlags) {
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.read_terminal(key, BUDGET);
        }
        if flags.contains(EventFlags::OUT)
            && let Some(terminal) = self.terminals.get_mut(key)
        {
            terminal.type_on();
            self.await_input(key);
        }
    }

    /// Waits for the PTY to take input while some is left, and not otherwise.
    pub(super) fn await_input(&mut self, key: Key) {
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        let wanted = !terminal.input.pending.is_empty();
        if wanted == terminal.input.awaited {
            return;
        }
        terminal.input.awaited = wanted;
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::OUT, wanted);
        if let Some(pty) = terminal.pty() {
            let _ = epoll::modify(&self.epoll, &pty.master, Token::Terminal(key).data(), flags);
        }
    }

    /// Reads at most `budget` bytes; how many there were.
    fn read_terminal(&mut self, key: Key, budget: usize) -> usize {
        let Some(pty) = self.terminals.get(key).and_then(Terminal::pty) else { return 0 };
        let mut filled = 0;
        while filled < budget.min(BUFFER) {
            match rustix::io::read(&pty.master, &mut self.buffer[filled..]) {
                Ok(count) => {
                    filled += count;
                    if count < LIKELY_ALL && budget <= BUDGET {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        if filled > 0 {
            self.before_output(key, filled);
            self.publish(key, RecordKind::Output, filled);
        }
        filled
    }

    /// Shows bytes of our own on a terminal's screen, in the same offset space as output.
    pub(super) fn show(&mut self, key: Key, bytes: &[u8]) {
        for piece in bytes.chunks(BUFFER) {
            self.buffer[..piece.len()].copy_from_slice(piece);
            self.publish(key, RecordKind::Notice, piece.len());
        }
    }

    /// Logs what is in the buffer, then sends it to those who have everything before it.
    fn publish(&mut self, key: Key, kind: RecordKind, length: usize) {
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        let bytes = &self.buffer[..length];
        let time_ms = now_ms();
        terminal.output_ms = time_ms;
        self.counters.bytes_out += length as u64;
        let offset = terminal.log.append(kind, time_ms, bytes);
        let mut written = Vec::new();
        for watcher in &mut terminal.watchers {
            if !matches!(watcher.place, Place::Head) {
                continue;
            }
            let Some(connection) = self.connections.get_mut(watcher.connection) else { continue };
            if connection.has_room() {
                let buffer = connection.buffer();
                let _ = wire::put_output(buffer, &terminal.id, offset, time_ms, bytes);
            } else {
                watcher.place = Place::Behind(Cursor::new(offset));
                connection.behind.push_back(key);
            }
            written.push(watcher.connection);
        }
        self.note_written(key);
        for connection in written {
            self.flush(connection);
        }
    }

    /// Sees to it that what was logged is synced in time.
    pub(super) fn note_written(&mut self, key: Key) {
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        if terminal.log.is_due()
            && let Some(job) = terminal.log.sync()
        {
            self.syncer.submit(job);
        }
        if terminal.log.is_dirty() && !terminal.awaits_sync {
            terminal.awaits_sync = true;
            self.dirty.push(key);
            self.timers.arm(Due::Sync, SYNC_DELAY);
        }
    }

    /// Gives a terminal another size, tells its program, the log and those attached.
    pub(super) fn resize(&mut self, key: Key, cols: u16, rows: u16) -> Result<(), Errno> {
        let Some(terminal) = self.terminals.get_mut(key) else { return Ok(()) };
        if (terminal.cols, terminal.rows) == (cols, rows) {
            return Ok(());
        }
        // What the program wrote at the old size belongs before the resize.
        self.read_terminal(key, BUDGET);
        let Some(terminal) = self.terminals.get_mut(key) else { return Ok(()) };
        if let Some(pty) = terminal.pty() {
            pty.resize(cols, rows)?;
        }
        (terminal.cols, terminal.rows) = (cols, rows);
        let time_ms = now_ms();
        let offset = terminal.log.resize(time_ms, cols, rows);
        let event = Event::Resized { terminal: terminal.id.clone(), offset, cols, rows, time_ms };
        let mut written = Vec::new();
        for watcher in &mut terminal.watchers {
            // One that is behind finds it in the log.
            if matches!(watcher.place, Place::Head)
                && let Some(connection) = self.connections.get_mut(watcher.connection)
            {
                connection.push(&event);
                written.push(watcher.connection);
            }
        }
        self.note_written(key);
        for connection in written {
            self.flush(connection);
        }
        Ok(())
    }

    /// Sets a connection's cursor on a terminal.
    pub(super) fn attach(&mut self, connection: Key, key: Key, from: u64) {
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        terminal.watchers.retain(|watcher| watcher.connection != connection);
        let place = Place::Behind(Cursor::new(from));
        terminal.watchers.push(Watcher { connection, place });
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.behind.retain(|behind| *behind != key);
            connection.behind.push_back(key);
        }
    }

    /// Takes a connection's cursor off a terminal.
    pub(super) fn detach(&mut self, connection: Key, key: Key) {
        if let Some(terminal) = self.terminals.get_mut(key) {
            terminal.watchers.retain(|watcher| watcher.connection != connection);
        }
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.behind.retain(|behind| *behind != key);
        }
    }

    /// Lets a connection's terminals catch up from their logs, in turn, as far as there is room.
    pub(super) fn pump(&mut self, connection: Key) {
        for _ in 0..CATCH_UP_READS {
            let Some(behind) = self.connections.get_mut(connection) else { return };
            if !behind.has_room() {
                return;
            }
            let Some(key) = behind.behind.pop_front() else { return };
            if self.catch_up(connection, key) == Progress::More
                && let Some(behind) = self.connections.get_mut(connection)
            {
                behind.behind.push_back(key);
            }
        }
    }

    /// One read of the log for one watcher.
    fn catch_up(&mut self, key: Key, terminal: Key) -> Progress {
        let Some(terminal) = self.terminals.get_mut(terminal) else { return Progress::End };
        let Some(connection) = self.connections.get_mut(key) else { return Progress::End };
        let watcher = terminal.watchers.iter_mut().find(|watcher| watcher.connection == key);
        let Some(watcher) = watcher else { return Progress::End };
        let Place::Behind(cursor) = &mut watcher.place else { return Progress::End };
        let id = &terminal.id;
        let out = connection.buffer();
        let start = out.len();
        let mut send = |item: Item<'_>| {
            let _ = put(out, id, item);
        };
        let limit = CATCH_UP.min(SOFT);
        let progress = cursor.advance(terminal.log.dir(), &mut self.scratch, limit, &mut send);
        if progress.is_ok_and(|progress| progress == Progress::More) {
            return Progress::More;
        }
        // Everything readable was read. What the log has not got, for its disk was full or it cannot
        // be read, is told as missing.
        if cursor.offset() < terminal.log.end() {
            send(Item::Gap { from: cursor.offset(), to: terminal.log.end() });
        }
        watcher.place = Place::Head;
        debug_assert!(connection.buffer().len() >= start);
        if let Life::Exited(exit) = terminal.life {
            watcher.place = Place::Told;
            connection.push(&exited(terminal, exit));
        }
        Progress::End
    }

    /// The program ended: what it said last is read, then its end is told.
    pub(super) fn program_ended(&mut self, key: Key, exit: Exit) {
        let mut left = LAST_WORDS;
        while left > 0 {
            let count = self.read_terminal(key, BUFFER.min(left));
            if count == 0 {
                break;
            }
            left = left.saturating_sub(count);
        }
        if !self.shell_ended(key, exit) {
            self.terminal_ended(key, exit);
        }
    }

    /// Closes the PTY of a terminal whose program has ended for good, and tells those attached.
    pub(super) fn terminal_ended(&mut self, key: Key, exit: Exit) {
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        if let Some(pty) = terminal.pty() {
            let _ = epoll::delete(&self.epoll, &pty.master);
        }
        // Closes the PTY: whoever still has it open is told by a hang-up, as when a window closes.
        terminal.life = Life::Exited(exit);
        terminal.input.pending.clear();
        if let Some(job) = terminal.log.sync() {
            self.syncer.submit(job);
        }
        let event = exited(terminal, exit);
        let mut told = Vec::new();
        for watcher in &mut terminal.watchers {
            if matches!(watcher.place, Place::Head) {
                watcher.place = Place::Told;
                told.push(watcher.connection);
            }
        }
        for connection in told {
            if let Some(connection) = self.connections.get_mut(connection) {
                connection.push(&event);
            }
            self.flush(connection);
        }
    }
}

fn exited(terminal: &Terminal, exit: Exit) -> Event {
    Event::Exited {
        terminal: terminal.id.clone(),
        offset: terminal.log.end(),
        code: exit.code,
        signal: exit.signal,
    }
}

/// Writes what was read from a log as the frame that would have been sent at the time.
fn put(out: &mut Vec<u8>, terminal: &str, item: Item<'_>) -> Result<(), wire::TooLarge> {
    match item {
        Item::Record { kind: RecordKind::Resize, offset, time_ms, data } => {
            let &[c0, c1, r0, r1] = data else { return Ok(()) };
            let (cols, rows) = (u16::from_le_bytes([c0, c1]), u16::from_le_bytes([r0, r1]));
            let terminal = terminal.to_owned();
            Event::Resized { terminal, offset, cols, rows, time_ms }.encode(out)
        }
        Item::Record { offset, time_ms, data, .. } => {
            wire::put_output(out, terminal, offset, time_ms, data)
        }
        Item::Gap { from, to } => {
            Event::Gap { terminal: terminal.to_owned(), from, to }.encode(out)
        }
    }
}
