//! The person's own terminal: raw while attached, as it was afterwards.

use std::io::{self, IsTerminal, Write};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Turns off what a program may have left on: mouse, paste and focus reports, key protocols, the
/// other screen, hidden cursor, colours, scroll region.
const TIDY: &[u8] =
    b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?1015l\
\x1b[?2004l\x1b[?2026l\x1b[?1l\x1b>\x1b[<u\x1b[>4;0m\x1b[r\x1b[?1049l\x1b[?6l\x1b[?7h\x1b[?25h\
\x1b[0 q\x1b[m\x0f";

/// Raw mode until dropped. Without a terminal on standard input it does nothing.
pub(super) struct Raw {
    before: Option<Termios>,
}

impl Raw {
    pub(super) fn enter() -> io::Result<Raw> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(Raw { before: None });
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        Ok(Raw { before: Some(before) })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            let mut out = io::stdout().lock();
            // Nothing is left to do if the terminal is gone.
            let _ = out.write_all(TIDY).and_then(|()| out.flush());
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &before);
        }
    }
}

/// Columns and rows of the person's terminal.
pub(super) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}
