//! A person at a terminal: runs `stead` on a PTY, types and reads.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use crate::{Home, program, wait_for};

/// A program on a pseudo-terminal.
pub struct Person {
    keyboard: File,
    child: Child,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Person {
    /// Runs `stead` with these arguments on a terminal of 80 by 24.
    pub fn run(home: &Home, arguments: &[&str]) -> Person {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = || OpenOptions::new().read(true).write(true).open(&name).unwrap();
        set_size(&master, 80, 24);
        // setsid makes it the controlling terminal, so that a new size is signalled.
        let child = Command::new("setsid")
            .args(["--ctty", "--wait"])
            .arg(program())
            .args(arguments)
            .env("STEAD_HOME", home.path())
            .env_remove("STEAD_URL")
            .stdin(Stdio::from(slave()))
            .stdout(Stdio::from(slave()))
            .stderr(Stdio::from(slave()))
            .spawn()
            .unwrap();
        let keyboard = File::from(master);
        let (mut screen, seen) = (keyboard.try_clone().unwrap(), Arc::new(Mutex::default()));
        let sink: Arc<Mutex<Vec<u8>>> = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut buffer = [0; 16 * 1024];
            while let Ok(count @ 1..) = screen.read(&mut buffer) {
                sink.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Person { keyboard, child, seen }
    }

    pub fn type_text(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    pub fn resize(&self, cols: u16, rows: u16) {
        set_size(&self.keyboard, cols, rows);
    }

    /// The output so far.
    pub fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    /// Waits until the output contains a text.
    #[track_caller]
    pub fn sees(&self, text: &str) {
        wait_for(text, || {
            let seen = self.seen();
            if seen.contains(text) { Ok(()) } else { Err(seen) }
        });
    }

    /// Waits for the end of the program; returns its exit code.
    #[track_caller]
    pub fn ends(&mut self) -> Option<i32> {
        let (child, seen) = (&mut self.child, &self.seen);
        let status = wait_for("the program to end", || {
            let seen = || String::from_utf8_lossy(&seen.lock().unwrap()).into_owned();
            child.try_wait().unwrap().ok_or_else(seen)
        });
        status.code()
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set_size(terminal: &impl std::os::fd::AsFd, cols: u16, rows: u16) {
    let size = Winsize { ws_col: cols, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).unwrap();
}
