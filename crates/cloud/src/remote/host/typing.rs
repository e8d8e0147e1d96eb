//! Keyboard input.

use wire::{ReplyCode, Shell};

use super::super::instance::PtyInput;
use super::super::line::LineEvent;
use super::super::program::lines;
use super::super::saved::CommandKind;
use super::super::terminal::CommandSpec;
use super::RemoteHost;
use model::CommandId;

/// How many write ids are remembered.
const MAX_WRITE_IDS: usize = 256;
/// How many lines may be typed ahead.
const MAX_TYPED_AHEAD: usize = 64;

impl RemoteHost {
    pub(super) fn input(
        &mut self,
        id: &str,
        write_id: String,
        data: &[u8],
    ) -> Result<(), ReplyCode> {
        let terminal = self.terminal(id)?;
        if terminal.exit.is_some() {
            return Err(ReplyCode::Exited);
        }
        if terminal.writes.contains(&write_id) {
            return Err(ReplyCode::AlreadyApplied);
        }
        if let Some(pty) = terminal.pty_input() {
            // A full queue means that the input was not applied.
            pty.try_send(PtyInput::Data(data.to_vec())).map_err(|_| ReplyCode::InputFull)?;
        }
        if !write_id.is_empty() {
            terminal.writes.push_back(write_id);
            if terminal.writes.len() > MAX_WRITE_IDS {
                terminal.writes.pop_front();
            }
        }
        if terminal.pty_input().is_some() {
            return Ok(());
        }
        if matches!(terminal.opened.shell, Shell::Plain | Shell::Other(_)) {
            let running = terminal.running.clone();
            if let Some(command) = running {
                let write = CommandId::fresh().to_string();
                let _ = self.feed(0, 0, &command, &write, &lines(data), false);
            }
            return Ok(());
        }
        for key in terminal.line.take(data) {
            self.key(id, key);
        }
        Ok(())
    }

    pub(super) fn key(&mut self, id: &str, key: LineEvent) {
        let Some(terminal) = self.terminals.get_mut(id) else { return };
        let busy = terminal.running.is_some();
        match key {
            // Keys typed while a command runs are echoed after the next prompt.
            LineEvent::Show(_) if busy => {}
            LineEvent::Show(text) => self.show(id, text.as_bytes()),
            LineEvent::Line(text) if busy => {
                if terminal.typed.len() < MAX_TYPED_AHEAD {
                    terminal.typed.push_back(text);
                }
            }
            LineEvent::Line(text) => self.typed(id, text),
            LineEvent::Interrupt => {
                terminal.typed.clear();
                let running = terminal.running.clone();
                self.show(id, b"^C");
                match running {
                    Some(command) => {
                        let _ = self.signal(0, 0, id, &command, 2);
                    }
                    None => {
                        self.show(id, b"\r\n");
                        self.prompt(id);
                    }
                }
            }
            LineEvent::End => {}
        }
    }

    pub(super) fn typed(&mut self, id: &str, text: String) {
        let Some(terminal) = self.terminals.get_mut(id) else { return };
        if text.trim().is_empty() {
            self.show(id, b"\r\n");
            return self.prompt(id);
        }
        let spec = CommandSpec::own(CommandId::fresh().to_string(), text.into_bytes());
        terminal.ask(CommandKind::Typed, spec);
        self.advance(id);
    }
}
