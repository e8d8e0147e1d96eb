//! The local provider behind an unreliable connection: replies are lost, late or errors, and requests
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

/// The fault of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request succeeds.
    None,
    /// The request never arrives, and the caller gets an error.
    Undelivered,
    /// The request is executed, but the answer is lost.
    AnswerLost,
    /// The request is executed, and the answer is late.
    Late,
    /// The request arrives twice at once.
    Doubled,
    /// The request is refused with a retry delay.
    TooMany,
    /// The provider answers with an error.
    ServerError,
}

impl Fault {
    pub const ALL: [Fault; 7] = [
        Fault::None,
        Fault::Undelivered,
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
    /// The faults, repeated in this order.
    pub fn new(inner: Local, plan: Vec<Fault>) -> Faulty {
        Faulty { inner, plan, asked: AtomicU32::new(0) }
    }

    fn reply<'a, T: Send + 'a>(
        &'a self,
        act: impl Fn() -> Reply<'a, T> + Send + 'a,
    ) -> Reply<'a, T> {
        let turn = self.asked.fetch_add(1, Ordering::SeqCst) as usize;
        let fault = self.plan[turn % self.plan.len()];
        let lost = || ProviderError::failed("receive an answer", "the connection was lost");
        Box::pin(async move {
            match fault {
                Fault::None => act().await,
                Fault::Undelivered => Err(lost()),
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
