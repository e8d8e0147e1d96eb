//! What a person types.

use host::wire::{Code, Shell};

use super::super::Tell;
use super::super::kept::Kind;
use super::super::line::Key;
use super::super::program::lines;
use super::super::terminal::Spec;
use super::Host;
use model::CommandId;

/// Write ids that are remembered.
const WRITES: usize = 256;
/// Lines that may be typed ahead.
const AHEAD: usize = 64;

impl Host {
    pub(super) fn input(&mut self, id: &str, write_id: String, data: &[u8]) -> Result<(), Code> {
        let terminal = self.terminal(id)?;
        if terminal.exit.is_some() {
            return Err(Code::Exited);
        }
        if terminal.writes.contains(&write_id) {
            return Err(Code::AlreadyApplied);
        }
        if let Some(screen) = terminal.on_screen() {
            // What does not fit was not applied.
            screen.try_send(Tell::Input(data.to_vec())).map_err(|_| Code::InputFull)?;
        }
        if !write_id.is_empty() {
            terminal.writes.push_back(write_id);
            if terminal.writes.len() > WRITES {
                terminal.writes.pop_front();
            }
        }
        if terminal.on_screen().is_some() {
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

    pub(super) fn key(&mut self, id: &str, key: Key) {
        let Some(terminal) = self.terminals.get_mut(id) else { return };
        let busy = terminal.running.is_some();
        match key {
            // What is typed while something runs is shown behind the next prompt.
            Key::Show(_) if busy => {}
            Key::Show(text) => self.show(id, text.as_bytes()),
            Key::Line(text) if busy => {
                if terminal.typed.len() < AHEAD {
                    terminal.typed.push_back(text);
                }
            }
            Key::Line(text) => self.typed(id, text),
            Key::Interrupt => {
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
            Key::End => {}
        }
    }

    /// A person has typed a line.
    pub(super) fn typed(&mut self, id: &str, text: String) {
        let Some(terminal) = self.terminals.get_mut(id) else { return };
        if text.trim().is_empty() {
            self.show(id, b"\r\n");
            return self.prompt(id);
        }
        let spec = Spec::own(CommandId::fresh().to_string(), text.into_bytes());
        terminal.ask(Kind::Typed, spec);
        self.advance(id);
    }
}
