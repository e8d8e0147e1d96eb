//! Gives sessions access to the shells of a thread.

use std::pin::Pin;

use super::terminals::Terminals;
use crate::session::Runtimes;
use model::ThreadId;

impl Runtimes for Terminals {
    fn in_use(&self, thread: &ThreadId) -> bool {
        self.thread_in_use(thread)
    }

    fn end<'a>(&'a self, thread: &'a ThreadId) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            let terminals = match self.0.store.thread_terminals(thread).await {
                Ok(terminals) => terminals,
                Err(error) => {
                    tracing::warn!(%thread, %error, "cannot list the terminals to end");
                    return;
                }
            };
            for terminal in terminals {
                let id = terminal.terminal_id;
                if let Err(error) = Terminals::end(self, &id).await {
                    tracing::warn!(terminal = %id, %error, "cannot end a terminal's shell");
                }
            }
        })
    }
}
