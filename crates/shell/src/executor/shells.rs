//! Starting the next shell, and redrawing its prompt.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;

use rustix::termios::tcgetwinsize;

use super::{Executor, create_paths};
use crate::bash;
use crate::dump::{DumpReader, Wakes};
use crate::effect::{Effect, Launch};
use crate::launch::{self, Attempt};
use crate::options::Errexit;
use crate::screen;
use crate::spec::At;

impl Executor {
    /// Writes the files of the next shell, into a new directory if the old one was removed.
    pub fn launch(&mut self, failures: u32, errexit: Errexit) -> io::Result<Launch> {
        self.shell.generation += 1;
        if !self.paths.exist() {
            let paths = create_paths(&self.setup)?;
            self.dump = DumpReader::create(&paths, &self.streams.epoll)?;
            self.paths = paths;
            self.streams.drop_spare();
        }
        self.dump.discard();
        self.dump.wake(Wakes::OnEveryWrite, &self.streams.epoll);
        let attempt = Attempt { failures, errexit, generation: self.shell.generation };
        launch::prepare(&self.setup, &self.paths, &self.snapshot.state, attempt)
    }

    /// Requests the start of the next shell, and shows a notice for each part of the state that it lacks.
    pub(super) fn announce(&self, launch: Launch, failures: u32, effects: &mut Vec<Effect>) {
        let state = &self.snapshot.state;
        if launch::is_bare(state, failures) {
            effects.push(Effect::Show(screen::BARE_SHELL_NOTICE.to_vec()));
        }
        let (wanted, cwd) = (state.get("cwd"), launch.cwd.as_os_str().as_bytes());
        if !wanted.is_empty() && cwd != wanted {
            effects.push(Effect::Show(screen::moved(wanted, cwd)));
        }
        effects.push(Effect::Respawn(launch));
    }

    /// Shows a changed prompt in the place of the old one, and restores the half-typed line before the bytes that were
    /// typed since.
    pub(super) fn end_redraw(
        &self,
        withheld: Vec<u8>,
        drawn: &[u8],
        at: At,
        effects: &mut Vec<Effect>,
    ) {
        let text = fs::read(self.paths.run.join("stash")).unwrap_or_default();
        let script = bash::unstash(&text);
        if script.is_none() && withheld == drawn && screen::is_unchanged(drawn) {
            return;
        }
        let columns = tcgetwinsize(at.master).map_or(80, |size| usize::from(size.ws_col));
        effects.push(Effect::Show(withheld));
        effects.push(Effect::Show(screen::without_old_prompt(drawn, columns)));
        let Some(script) = script else { return };
        if self.paths.write("unstash", &script).is_ok() {
            effects.push(Effect::Type(bash::UNSTASH.to_vec()));
        }
    }
}
