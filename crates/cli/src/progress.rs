//! The progress of transfers and slow requests, on standard error.

use std::{
    io::{IsTerminal, Write},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::raw;

/// The delay between two updates.
const UPDATE_INTERVAL: Duration = Duration::from_millis(100);
/// The time after which a request is shown as slow.
const SPINNER_DELAY: Duration = Duration::from_secs(1);
const SPINNER_FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// Awaits a request. While it is slow, a line on the user's terminal counts the seconds.
pub(super) async fn with_spinner<T>(request: impl Future<Output = T>) -> T {
    if !std::io::stderr().is_terminal() || raw::is_raw() {
        return request.await;
    }
    let began = tokio::time::Instant::now();
    let mut request = std::pin::pin!(request);
    let mut updates = tokio::time::interval_at(began + SPINNER_DELAY, UPDATE_INTERVAL);
    for frame in SPINNER_FRAMES.into_iter().cycle() {
        tokio::select! {
            answer = &mut request => {
                if began.elapsed() >= SPINNER_DELAY {
                    eprint!("\r\x1b[K");
                }
                return answer;
            }
            _ = updates.tick() => {
                eprint!("\r\x1b[K{frame} waiting for the server, {} s", began.elapsed().as_secs());
                let _ = std::io::stderr().flush();
            }
        }
    }
    request.await
}

/// Shows how much was transferred. Clones share one count.
#[derive(Clone)]
pub(super) struct TransferProgress(Arc<Mutex<Transferred>>);

struct Transferred {
    what: &'static str,
    bytes: u64,
    /// The total, if it is known.
    of: Option<u64>,
    shown: Instant,
    is_terminal: bool,
}

impl TransferProgress {
    pub(super) fn new(what: &'static str, of: Option<u64>) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let shown = Instant::now();
        Self(Arc::new(Mutex::new(Transferred { what, bytes: 0, of, shown, is_terminal })))
    }

    pub(super) fn add(&self, count: usize) {
        let mut transferred = self.0.lock();
        transferred.bytes += count as u64;
        if transferred.is_terminal && transferred.shown.elapsed() >= UPDATE_INTERVAL {
            transferred.shown = Instant::now();
            transferred.show();
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.lock().bytes
    }

    /// Shows the final count.
    pub(super) fn end(&self) {
        self.0.lock().show();
        eprintln!();
    }
}

impl Transferred {
    fn show(&self) {
        let of = self.of.map(|of| format!(" of {:.1}", mebibytes(of))).unwrap_or_default();
        let start = if self.is_terminal { "\r" } else { "" };
        eprint!("{start}{} {:.1}{of} MiB", self.what, mebibytes(self.bytes));
        let _ = std::io::stderr().flush();
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
