//! The records that shells create for their drivers: watched by inotify, or polled.

use std::mem::MaybeUninit;
use std::time::Duration;

use rustix::event::epoll::{self, EventFlags};
use rustix::fs::inotify;
use rustix::io::Errno;

use super::Host;
use super::slots::Key;
use super::timers::Due;
use super::token::EventToken;

/// How often the records of a shell are polled if it has no inotify watch.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

impl Host {
    /// Watches the records of a terminal's shell, or polls them if the kernel grants no inotify instance
    /// or watch. Watching a directory twice has no effect.
    pub(super) fn watch_records(&mut self, key: Key) {
        match self.add_watch(key) {
            Ok(()) => self.exec.polled.remove(&key),
            Err(_) => self.exec.polled.insert(key),
        };
    }

    fn add_watch(&mut self, key: Key) -> Result<(), Errno> {
        let driver = self.terminals.get(key).and_then(|found| found.driver.as_ref());
        let Some(driver) = driver else { return Ok(()) };
        let records = match self.exec.records.take() {
            Some(records) => records,
            None => {
                let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
                let records = inotify::init(flags)?;
                epoll::add(&self.epoll, &records, EventToken::Records.data(), EventFlags::IN)?;
                records
            }
        };
        let records = self.exec.records.insert(records);
        let flags = inotify::WatchFlags::CREATE | inotify::WatchFlags::ONLYDIR;
        let directory = inotify::add_watch(records, driver.ctl_dir(), flags)?;
        self.exec.directories.insert(directory, key);
        Ok(())
    }

    /// Reads the records of a terminal's shell.
    pub(super) fn poll_records(&mut self, key: Key) {
        let driver = self.terminals.get(key).and_then(|found| found.driver.as_ref());
        for name in driver.map(|driver| driver.records()).unwrap_or_default() {
            self.drive(key, |driver, at, effects| driver.ctl(&name, at, effects));
        }
    }

    /// Reads the records of all terminals that have no watch.
    pub(super) fn poll_all_records(&mut self) {
        for key in self.exec.polled.clone() {
            self.poll_records(key);
            self.poll_later(key);
        }
    }

    /// Schedules the next poll, if a terminal without a watch awaits a record.
    pub(super) fn poll_later(&mut self, key: Key) {
        let driver = self.terminals.get(key).and_then(|found| found.driver.as_ref());
        if self.exec.polled.contains(&key) && driver.is_some_and(|driver| driver.awaits_record()) {
            self.timers.arm(Due::Records, POLL_INTERVAL);
        }
    }

    /// Reads the records that inotify reports.
    pub(super) fn read_records(&mut self) {
        let Some(records) = &self.exec.records else { return };
        let mut found = Vec::new();
        let mut space = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(records, &mut space);
        while let Ok(event) = reader.next() {
            let name = event.file_name().and_then(|name| name.to_str().ok()).map(str::to_owned);
            found.extend(name.map(|name| (event.wd(), name)));
            // The reader would make another system call after its last event, which is rarely needed.
            if reader.is_buffer_empty() {
                break;
            }
        }
        for (directory, name) in found {
            if let Some(key) = self.exec.directories.get(&directory).copied() {
                self.drive(key, |driver, at, effects| driver.ctl(&name, at, effects));
            }
        }
    }
}
