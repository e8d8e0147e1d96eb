//! Loads the screen of a terminal, and takes pictures of it.

use tokio::time::Instant;
use vt::Screen;

use super::request::{Format, Picture};
use super::{Owner, View};
use crate::terminal::{checkpoint, history};

impl Owner {
    /// Rebuilds the screen at `self.offset` from the checkpoint and the log.
    pub(super) async fn load_screen(&mut self) {
        let directory = self.directory.clone();
        let loaded = base::task::blocking(move || checkpoint::load(&directory)).await;
        let found = loaded.ok().flatten().filter(|found| found.offset <= self.offset);
        let (mut screen, from) = match found {
            Some(found) => {
                self.saved = Some(found.offset);
                (found.screen, found.offset)
            }
            None => (Screen::new(self.size, self.settings.scrollback), 0),
        };
        screen.set_checksum_reports(self.settings.checksum_reports);
        if let Err(error) = history::replay(&self.directory, from, self.offset, &mut screen).await {
            tracing::warn!(terminal = self.id, %error, "the log of a terminal cannot be read completely");
        }
        if screen.size() != self.size {
            screen.resize(self.size);
        }
        self.shared.note(|facts| screen.title().clone_into(&mut facts.title));
        self.view = View::Loaded(Box::new(screen));
    }

    pub(super) async fn picture(&mut self, format: Format, scrollback: Option<usize>) -> Picture {
        let began = Instant::now();
        if matches!(self.view, View::Unloaded) {
            Box::pin(self.load_screen()).await;
        }
        let View::Loaded(screen) = &self.view else { unreachable!("the screen was just loaded") };
        let lines = scrollback.unwrap_or(usize::MAX);
        let data = match format {
            Format::Ansi => screen.snapshot_with(lines),
            Format::Text => screen.text(scrollback.unwrap_or(0)).into_bytes(),
            Format::Html => screen.html(scrollback.unwrap_or(0)).into_bytes(),
        };
        self.settings.metrics.snapshot_seconds.observe(began.elapsed().as_secs_f64());
        self.settings.metrics.snapshot_bytes.observe(data.len() as f64);
        let cursor = screen.cursor();
        self.last_output = Instant::now();
        Picture {
            data: data.into(),
            offset: self.offset,
            position: self.shared.window.lock().head(),
            cols: self.size.cols,
            rows: self.size.rows,
            cursor: (cursor.col, cursor.row, cursor.visible),
            title: screen.title().to_owned(),
            alt_screen: screen.alt_screen(),
        }
    }
}
