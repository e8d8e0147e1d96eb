//! Sending the output of commands to the connections that watch them.

use super::Host;
use super::slots::Key;
use wire::{Event, MAX_DATA, Stream};

impl Host {
    /// Sends the output of a command to its watchers as far as their connections have room.
    pub(super) fn pump_command(&mut self, key: Key, command: &str) {
        let Some(watches) = self.exec.watches.get_mut(command) else { return };
        let Some(driver) = self.terminals.get(key).and_then(|found| found.driver.as_ref()) else {
            return;
        };
        let mut written = Vec::new();
        for watch in watches {
            let Some(connection) = self.connections.get_mut(watch.connection) else { continue };
            written.push(watch.connection);
            for (nth, stream) in [Stream::Stdout, Stream::Stderr].into_iter().enumerate() {
                while connection.has_room() {
                    let read = driver.commands().read(command, nth, watch.next[nth], MAX_DATA);
                    let Some(Ok((piece, _))) = read else { break };
                    if piece.bytes.is_empty() {
                        break;
                    }
                    watch.next[nth] = piece.next;
                    let command = command.to_owned();
                    let (offset, bytes) = (piece.offset, piece.bytes);
                    connection.push(&Event::CommandOutput { command, stream, offset, bytes });
                }
            }
            let has_room = connection.has_room();
            let behind = &mut connection.commands_behind;
            if !has_room && !behind.iter().any(|known| known == command) {
                behind.push_back(command.to_owned());
            }
        }
        for connection in written {
            self.flush(connection);
        }
    }

    /// Sends the command output for which a connection had no room before.
    pub(super) fn catch_up_commands(&mut self, connection: Key) {
        loop {
            let Some(found) = self.connections.get_mut(connection) else { return };
            if !found.has_room() {
                return;
            }
            let Some(command) = found.commands_behind.pop_front() else { return };
            if let Ok(key) = self.find_command(&command) {
                self.pump_command(key, &command);
            }
        }
    }

    /// Sends a connection the events of a command that precede its request.
    pub(super) fn send_past_events(&mut self, key: Key, connection: Key, command: &str) {
        let mut last = Vec::new();
        if let Some(terminal) = self.terminals.get(key)
            && let Some(driver) = &terminal.driver
        {
            let (id, offset) = (terminal.id.clone(), terminal.log.end());
            let events = driver.commands().reported(command, id, offset);
            if let (Some(found), Some(started)) =
                (self.connections.get_mut(connection), events.started)
            {
                found.push(&started);
            }
            last.extend(events.ended);
        }
        self.pump_command(key, command);
        if let Some(found) = self.connections.get_mut(connection) {
            for event in &last {
                found.push(event);
            }
        }
        self.flush(connection);
    }
}
