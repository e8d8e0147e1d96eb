//! The local provider behind a bad line: replies get lost, come late, or are errors, and requests
//! arrive twice.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use model::{Instance, LeaseId};
use provider::{
    Capabilities, Created, Found, HostConnection, Intent, Local, Metrics, Observed, Provider,
    ProviderError, Reply,
};
use tokio::time::sleep;

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing bad.
    None,
    /// It never arrives; an error is heard.
    Unheard,
    /// It is done, but the answer gets lost.
    AnswerLost,
    /// It is done, and the answer comes late.
    Late,
    /// It arrives twice at once.
    Doubled,
    /// Refused for now, with a time to wait.
    TooMany,
    /// The other side fails.
    ServerError,
}

impl Fault {
    pub const ALL: [Fault; 7] = [
        Fault::None,
        Fault::Unheard,
        Fault::AnswerLost,
        Fault::Late,
        Fault::Doubled,
        Fault::TooMany,
        Fault::ServerError,
    ];
}

#[derive(Debug)]
pub struct Faulty {
    inner: Local,
    plan: Vec<Fault>,
    asked: AtomicU32,
}

impl Faulty {
    /// Faults in this order, over and over.
    pub fn new(inner: Local, plan: Vec<Fault>) -> Faulty {
        Faulty { inner, plan, asked: AtomicU32::new(0) }
    }

    fn reply<'a, T: Send + 'a>(
        &'a self,
        act: impl Fn() -> Reply<'a, T> + Send + 'a,
    ) -> Reply<'a, T> {
        let turn = self.asked.fetch_add(1, Ordering::SeqCst) as usize;
        let fault = self.plan[turn % self.plan.len()];
        let lost = || ProviderError::failed("hear an answer", "the line went dead");
        Box::pin(async move {
            match fault {
                Fault::None => act().await,
                Fault::Unheard => Err(lost()),
                Fault::AnswerLost => {
                    let _ = act().await;
                    Err(lost())
                }
                Fault::Late => {
                    let answer = act().await;
                    sleep(Duration::from_millis(20)).await;
                    answer
                }
                Fault::Doubled => {
                    let (first, second) = tokio::join!(act(), act());
                    first.or(second)
                }
                Fault::TooMany => {
                    let retry_after = Some(Duration::from_millis(3));
                    Err(ProviderError::Busy { retry_after, reason: "busy".into() })
                }
                Fault::ServerError => Err(ProviderError::failed("ask", "500")),
            }
        })
    }
}

impl Provider for Faulty {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn create<'a>(&'a self, intent: &'a Intent) -> Reply<'a, Created> {
        self.reply(|| self.inner.create(intent))
    }

    fn inspect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Observed> {
        self.reply(|| self.inner.inspect(instance))
    }

    fn pause<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        self.reply(|| self.inner.pause(instance))
    }

    fn resume<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        self.reply(|| self.inner.resume(instance))
    }

    fn destroy<'a>(&'a self, instance: &'a Instance) -> Reply<'a, ()> {
        self.reply(|| self.inner.destroy(instance))
    }

    fn connect<'a>(&'a self, instance: &'a Instance) -> Reply<'a, HostConnection> {
        self.reply(|| self.inner.connect(instance))
    }

    fn find_by_label<'a>(&'a self, lease: Option<&'a LeaseId>) -> Reply<'a, Vec<Found>> {
        self.reply(move || self.inner.find_by_label(lease))
    }

    fn metrics<'a>(&'a self, instance: &'a Instance) -> Reply<'a, Metrics> {
        self.reply(|| self.inner.metrics(instance))
    }
}
