//! A small client of a host, over the stream of a provider.

use std::{path::Path, time::Duration};

use model::TerminalId;
use provider::Connection;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};
use wire::{Decoder, Event, ReplyCode, Request, Shell};

use harness::WAIT_TIMEOUT;

/// A program that prints something every few milliseconds.
pub const TICKING: &[&str] = &["/bin/sh", "-c", "while :; do printf .; sleep 0.01; done"];

pub struct Link {
    stream: Connection,
    decoder: Decoder,
    seq: u32,
}

impl Link {
    pub async fn new(stream: Connection) -> Link {
        let mut link = Link { stream, decoder: Decoder::default(), seq: 0 };
        let hello = link.next(WAIT_TIMEOUT).await.expect("the host sends the first frame");
        assert!(matches!(hello, Event::Hello { .. }), "{hello:?}");
        link.send(&Request::Hello { version: wire::VERSION, features: wire::FEATURES }).await;
        link
    }

    /// Opens a terminal with a program that prints something every few milliseconds, and attaches.
    pub async fn open_ticking(&mut self, home: &Path) {
        let terminal = self.open(home, TICKING).await;
        self.attach(&terminal).await;
    }

    /// Attaches, and waits for the first output.
    pub async fn attach(&mut self, terminal: &TerminalId) {
        let seq = self.seq();
        self.send(&Request::Attach { seq, terminal: terminal.to_string(), from: 0 }).await;
        self.ticks().await;
    }

    /// Opens a terminal with a directory in this home.
    pub async fn open(&mut self, home: &Path, argv: &[&str]) -> TerminalId {
        let terminal = TerminalId::fresh();
        let dir = home.join("terminals").join(terminal.as_str());
        std::fs::create_dir_all(&dir).unwrap();
        self.open_at(&terminal, &dir, argv).await;
        terminal
    }

    /// Opens a terminal with this directory, as the host sees it.
    pub async fn open_at(&mut self, terminal: &TerminalId, dir: &Path, argv: &[&str]) {
        let seq = self.seq();
        self.send(&Request::Open {
            seq,
            terminal: terminal.to_string(),
            argv: argv.iter().map(|part| part.as_bytes().to_vec()).collect(),
            cwd: b"/".to_vec(),
            env: vec![(b"PATH".to_vec(), b"/usr/bin:/bin".to_vec())],
            cols: 80,
            rows: 24,
            dir: dir.as_os_str().as_encoded_bytes().to_vec(),
            log_limit: 1 << 20,
            base_offset: 0,
            shell: Shell::Plain,
            state: vec![],
            notice: vec![],
        })
        .await;
        loop {
            let event = self.next(WAIT_TIMEOUT).await.expect("an answer");
            if event.answers() == Some(seq) {
                let fine = matches!(event, Event::Reply { code: ReplyCode::Ok, .. });
                assert!(fine, "{event:?}");
                return;
            }
        }
    }

    /// Waits for the next output.
    pub async fn ticks(&mut self) {
        loop {
            let event = self.next(WAIT_TIMEOUT).await.expect("output");
            if matches!(event, Event::Output { .. }) {
                return;
            }
        }
    }

    /// Waits until there is no output for 300 ms. Returns `false` if the output does not stop.
    pub async fn falls_silent(&mut self) -> bool {
        for _ in 0..1000 {
            match self.next(Duration::from_millis(300)).await {
                Some(_) => {}
                None => return true,
            }
        }
        false
    }

    pub async fn send(&mut self, request: &Request) {
        let mut bytes = Vec::new();
        request.encode(&mut bytes).unwrap();
        self.stream.write_all(&bytes).await.unwrap();
    }

    pub fn seq(&mut self) -> u32 {
        self.seq += 1;
        self.seq
    }

    /// Returns the next event, or `None` after the timeout.
    pub async fn next(&mut self, limit: Duration) -> Option<Event> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            while let Some(frame) = self.decoder.next_frame().unwrap() {
                if let Some(event) = Event::decode(&frame).unwrap() {
                    return Some(event);
                }
            }
            let count = timeout(limit, self.stream.read(&mut buffer)).await.ok()?.unwrap();
            assert!(count > 0, "the host closed the stream");
            self.decoder.feed(&buffer[..count]);
        }
    }
}
