//! A pseudo-terminal: its master and its slave side.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pty::OpenptFlags;
use rustix::termios::{Action, InputModes, OptionalActions, Winsize};

/// A pseudo-terminal. The host keeps the slave side open, too, so that the terminal survives a program that
/// closes it temporarily, or that exits and is replaced. Only the program's exit ends the terminal.
#[derive(Debug)]
pub struct Pty {
    /// The host's side, in non-blocking mode.
    pub master: OwnedFd,
    pub slave: OwnedFd,
}

impl Pty {
    /// Opens a pseudo-terminal with the given size.
    ///
    /// # Errors
    /// `NOSPC` when the kernel has no more pseudo-terminals, `MFILE` or `NFILE` when it has no more
    /// descriptors.
    pub fn open(cols: u16, rows: u16) -> Result<Self, Errno> {
        // `openpt` is not used, because it turns the kernel's ENOSPC into EAGAIN.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let master = rustix::fs::open("/dev/ptmx", flags, Mode::empty())?;
        rustix::pty::unlockpt(&master)?;
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
        rustix::io::ioctl_fionbio(&master, true)?;
        let mut modes = rustix::termios::tcgetattr(&slave)?;
        // Without this mode, erasing a multi-byte character in a cooked line leaves a part of it.
        modes.input_modes |= InputModes::IUTF8;
        rustix::termios::tcsetattr(&slave, OptionalActions::Now, &modes)?;
        let pty = Self { master, slave };
        pty.resize(cols, rows)?;
        Ok(pty)
    }

    /// Changes the size. The kernel sends SIGWINCH to the foreground processes.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn resize(&self, cols: u16, rows: u16) -> Result<(), Errno> {
        let size = Winsize { ws_col: cols, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&self.master, size)
    }

    /// Wakes programs that wait for room to write. Linux does not when it discards output for a key that signals, so that a
    /// program that ignores the signal would wait until a person types.
    pub fn wake_writers(&self) {
        for action in [Action::OOff, Action::OOn] {
            let _ = rustix::termios::tcflow(&self.slave, action);
        }
    }

    /// Returns whether the terminal stops its output when Ctrl-S is typed.
    #[must_use]
    pub fn has_flow_control(&self) -> bool {
        rustix::termios::tcgetattr(&self.slave)
            .is_ok_and(|modes| modes.input_modes.contains(InputModes::IXON))
    }
}
