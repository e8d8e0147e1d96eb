//! The path of output: from the PTY to the log and to the attached connections.

use std::time::Duration;

use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use super::connection::SOFT_LIMIT_BYTES;
use super::slots::Key;
use super::terminal::{HostTerminal, ProcessExit, ProgramState, TerminalWatcher, WatchState};
use super::timers::Due;
use super::token::EventToken;
use super::{Host, READ_BUFFER_BYTES, SYNC_DELAY};
use crate::log::{LogCursor, LogItem, ReadProgress};
use shell::now_ms;
use wire::{Event, RecordKind};

/// How many bytes of one PTY are read in one iteration of the loop.
const READ_BUDGET_BYTES: usize = 16 << 10;

/// A read shorter than this has probably emptied the PTY. Another read would delay an echo by more than the
/// next iteration delays a flood.
const SHORT_READ_BYTES: usize = 1 << 10;

/// How long after a key that may have discarded output programs that wait to write are woken.
const WRITERS_DELAY: Duration = Duration::from_millis(250);

/// The maximum number of bytes that are read after a program's exit. The kernel buffers less than 20 KiB;
/// further bytes come from other processes that still have the terminal open, and may never end.
const MAX_FINAL_BYTES: usize = 128 << 10;

/// How many bytes are read from the log for a watcher that is behind before the next one is served.
const CATCH_UP_BYTES: usize = 64 << 10;

/// How many of these reads are done for a connection in one iteration of the loop.
const CATCH_UP_READS: usize = 8;

impl Host {
    pub(super) fn terminal_ready(&mut self, key: Key, flags: EventFlags) {
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.read_terminal(key, READ_BUDGET_BYTES);
        }
        if flags.contains(EventFlags::OUT)
            && let Some(terminal) = self.terminals.get_mut(key)
        {
            terminal.write_pending();
            self.await_input(key);
        }
    }

    /// Waits for the PTY to become writable as long as input is left.
    pub(super) fn await_input(&mut self, key: Key) {
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        if terminal.input.wakes > 0 {
            self.timers.arm(Due::Writers, WRITERS_DELAY);
        }
        let wanted = !terminal.input.pending.is_empty();
        if wanted == terminal.input.awaited {
            return;
        }
        terminal.input.awaited = wanted;
        let mut flags = EventFlags::IN;
        flags.set(EventFlags::OUT, wanted);
        if let Some(pty) = terminal.pty() {
            let _ =
                epoll::modify(&self.epoll, &pty.master, EventToken::Terminal(key).data(), flags);
        }
    }

    /// Wakes programs that wait to write where a key may have discarded output.
    pub(super) fn wake_writers(&mut self) {
        for key in self.terminals.keys() {
            if self.terminals.get_mut(key).is_some_and(HostTerminal::wake_writers) {
                self.timers.arm(Due::Writers, WRITERS_DELAY);
            }
        }
    }

    /// Reads at most `budget` bytes of output. Returns how many bytes were read.
    fn read_terminal(&mut self, key: Key, budget: usize) -> usize {
        let Some(pty) = self.terminals.get(key).and_then(HostTerminal::pty) else { return 0 };
        let mut filled = 0;
        // The driver may add what it held back.
        let room = READ_BUFFER_BYTES - shell::MAX_HELD_BYTES;
        while filled < budget.min(room) {
            match rustix::io::read(&pty.master, &mut self.buffer[filled..room]) {
                Ok(count) => {
                    filled += count;
                    if count < SHORT_READ_BYTES && budget <= READ_BUDGET_BYTES {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        if filled > 0 {
            let kept = self.before_output(key, filled);
            self.publish(key, RecordKind::Output, kept);
        }
        filled
    }

    /// Shows a notice on a terminal's screen, in the same offset space as output.
    pub(super) fn show(&mut self, key: Key, bytes: &[u8]) {
        for piece in bytes.chunks(READ_BUFFER_BYTES) {
            self.buffer[..piece.len()].copy_from_slice(piece);
            self.publish(key, RecordKind::Notice, piece.len());
        }
    }

    /// Logs the buffer, then sends it to the watchers that are up to date.
    fn publish(&mut self, key: Key, kind: RecordKind, length: usize) {
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        let bytes = &self.buffer[..length];
        let time_ms = now_ms();
        terminal.output_ms = time_ms;
        self.counters.bytes_out += length as u64;
        let offset = terminal.log.append(kind, time_ms, bytes);
        let mut written = Vec::new();
        for watcher in &mut terminal.watchers {
            if !matches!(watcher.state, WatchState::Head) {
                continue;
            }
            let Some(connection) = self.connections.get_mut(watcher.connection) else { continue };
            if connection.has_room() {
                let buffer = connection.buffer();
                let _ = wire::put_output(buffer, &terminal.id, offset, time_ms, bytes);
            } else {
                watcher.state = WatchState::Behind(LogCursor::new(offset));
                connection.terminals_behind.push_back(key);
            }
            written.push(watcher.connection);
        }
        self.note_written(key);
        for connection in written {
            self.flush(connection);
        }
    }

    /// Schedules a sync of the log.
    pub(super) fn note_written(&mut self, key: Key) {
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        if terminal.log.is_sync_due()
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

    /// Resizes a terminal. Its program, the log and the watchers are notified.
    pub(super) fn resize(&mut self, key: Key, cols: u16, rows: u16) -> Result<(), Errno> {
        let Some(terminal) = self.terminals.get_mut(key) else { return Ok(()) };
        if (terminal.cols, terminal.rows) == (cols, rows) {
            return Ok(());
        }
        // Output that the program wrote at the old size belongs before the resize.
        self.read_terminal(key, READ_BUDGET_BYTES);
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
            // A watcher that is behind finds the resize in the log.
            if matches!(watcher.state, WatchState::Head)
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

    /// Attaches a connection to a terminal, or moves its cursor.
    pub(super) fn attach(&mut self, connection: Key, key: Key, from: u64) {
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        terminal.watchers.retain(|watcher| watcher.connection != connection);
        let state = WatchState::Behind(LogCursor::new(from));
        terminal.watchers.push(TerminalWatcher { connection, state });
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.terminals_behind.retain(|behind| *behind != key);
            connection.terminals_behind.push_back(key);
        }
    }

    /// Detaches a connection from a terminal.
    pub(super) fn detach(&mut self, connection: Key, key: Key) {
        if let Some(terminal) = self.terminals.get_mut(key) {
            terminal.watchers.retain(|watcher| watcher.connection != connection);
        }
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.terminals_behind.retain(|behind| *behind != key);
        }
    }

    /// Sends logged output to a connection that is behind, one terminal after another, while there is room.
    pub(super) fn pump(&mut self, connection: Key) {
        for _ in 0..CATCH_UP_READS {
            let Some(found) = self.connections.get_mut(connection) else { return };
            if !found.has_room() {
                return;
            }
            let Some(key) = found.terminals_behind.pop_front() else { return };
            if self.catch_up(connection, key) == ReadProgress::More
                && let Some(found) = self.connections.get_mut(connection)
            {
                found.terminals_behind.push_back(key);
            }
        }
    }

    /// Reads the log once for one watcher.
    fn catch_up(&mut self, key: Key, terminal: Key) -> ReadProgress {
        let Some(terminal) = self.terminals.get_mut(terminal) else { return ReadProgress::End };
        let Some(connection) = self.connections.get_mut(key) else { return ReadProgress::End };
        let watcher = terminal.watchers.iter_mut().find(|watcher| watcher.connection == key);
        let Some(watcher) = watcher else { return ReadProgress::End };
        let WatchState::Behind(cursor) = &mut watcher.state else { return ReadProgress::End };
        let id = &terminal.id;
        let out = connection.buffer();
        let start = out.len();
        let mut send = |item: LogItem<'_>| {
            let _ = put(out, id, item);
        };
        let limit = CATCH_UP_BYTES.min(SOFT_LIMIT_BYTES);
        let progress = cursor.advance(terminal.log.dir(), &mut self.scratch, limit, &mut send);
        if progress.is_ok_and(|progress| progress == ReadProgress::More) {
            return ReadProgress::More;
        }
        // Everything readable was read. The rest is reported as a gap: the disk was full, or the log
        // cannot be read.
        if cursor.offset() < terminal.log.end() {
            send(LogItem::Gap { from: cursor.offset(), to: terminal.log.end() });
        }
        watcher.state = WatchState::Head;
        debug_assert!(connection.buffer().len() >= start);
        if let ProgramState::Exited(exit) = terminal.program {
            watcher.state = WatchState::Ended;
            connection.push(&exited(terminal, exit));
        }
        ReadProgress::End
    }

    /// Handles a program's exit: its last output is read, then the exit is reported.
    pub(super) fn program_ended(&mut self, key: Key, exit: ProcessExit) {
        let mut left = MAX_FINAL_BYTES;
        while left > 0 {
            let count = self.read_terminal(key, READ_BUFFER_BYTES.min(left));
            if count == 0 {
                break;
            }
            left = left.saturating_sub(count);
        }
        if !self.shell_ended(key, exit) {
            self.terminal_ended(key, exit);
        }
    }

    /// Closes the PTY of a terminal whose program has exited and is not replaced, and notifies the watchers.
    pub(super) fn terminal_ended(&mut self, key: Key, exit: ProcessExit) {
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        if let Some(pty) = terminal.pty() {
            let _ = epoll::delete(&self.epoll, &pty.master);
        }
        // Closes the PTY: processes that still have it open get a hang-up, as when a window closes.
        terminal.program = ProgramState::Exited(exit);
        terminal.input.pending.clear();
        if let Some(job) = terminal.log.sync() {
            self.syncer.submit(job);
        }
        let event = exited(terminal, exit);
        let mut notified = Vec::new();
        for watcher in &mut terminal.watchers {
            if matches!(watcher.state, WatchState::Head) {
                watcher.state = WatchState::Ended;
                notified.push(watcher.connection);
            }
        }
        for connection in notified {
            if let Some(connection) = self.connections.get_mut(connection) {
                connection.push(&event);
            }
            self.flush(connection);
        }
    }
}

fn exited(terminal: &HostTerminal, exit: ProcessExit) -> Event {
    Event::Exited {
        terminal: terminal.id.clone(),
        offset: terminal.log.end(),
        code: exit.code,
        signal: exit.signal,
    }
}

/// Encodes a log record as the same frame that was sent when it was recorded.
fn put(out: &mut Vec<u8>, terminal: &str, item: LogItem<'_>) -> Result<(), wire::TooLarge> {
    match item {
        LogItem::Record { kind: RecordKind::Resize, offset, time_ms, data } => {
            let &[c0, c1, r0, r1] = data else { return Ok(()) };
            let (cols, rows) = (u16::from_le_bytes([c0, c1]), u16::from_le_bytes([r0, r1]));
            let terminal = terminal.to_owned();
            Event::Resized { terminal, offset, cols, rows, time_ms }.encode(out)
        }
        LogItem::Record { offset, time_ms, data, .. } => {
            wire::put_output(out, terminal, offset, time_ms, data)
        }
        LogItem::Gap { from, to } => {
            Event::Gap { terminal: terminal.to_owned(), from, to }.encode(out)
        }
    }
}
