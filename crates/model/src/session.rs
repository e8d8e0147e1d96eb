//! A session: the policy of a thread while it is in use.
//!
//! ```text
//!            touch                 no recent activity
//!   ┌──────────────────▶ Active ──────────────────────▶ Idle ─┐
//!   └──────────────────────────────────────────────────────────┘
//!   Active, Idle ── limit reached ──▶ Expired        (final)
//!   Active, Idle ── close ──────────▶ Closed         (final)
//! ```
//! An end is final, so that an expiry is reported exactly once; the next use opens another session.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Moment, Refused, SessionId, TerminalId, ThreadId};

/// The limits of a session, and what happens to the compute at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionPolicy {
    /// Seconds without activity after which it expires.
    pub idle_timeout_s: u64,
    /// Seconds after which it expires in any case.
    pub max_duration_s: u64,
    /// What happens to the compute when it expires or is closed.
    pub on_expiry: OnExpiry,
    /// Maximum running time of the compute during the session.
    #[serde(rename = "max_running_hours", skip_serializing_if = "Option::is_none")]
    pub max_running: Option<Hours>,
    /// Maximum cost of the compute during the session, by the price of its provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<Money>,
}

/// A duration that is serialized as hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "f64", into = "f64")]
pub struct Hours(pub Duration);

impl From<f64> for Hours {
    fn from(hours: f64) -> Self {
        Self(Duration::try_from_secs_f64(hours * 3600.0).unwrap_or(Duration::MAX))
    }
}

impl From<Hours> for f64 {
    fn from(hours: Hours) -> f64 {
        hours.0.as_secs_f64() / 3600.0
    }
}

/// An amount of money, in millionths of the currency unit of the prices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(from = "f64", into = "f64")]
pub struct Money(pub u64);

impl Money {
    /// Returns the cost of `time` at this price per hour.
    #[must_use]
    pub fn for_time(self, time: Duration) -> Self {
        let micros = u128::from(self.0) * time.as_micros() / 3_600_000_000;
        Self(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

impl From<f64> for Money {
    fn from(amount: f64) -> Self {
        // The cast saturates, and turns NaN into zero.
        Self((amount.max(0.0) * 1e6).round() as u64)
    }
}

impl From<Money> for f64 {
    fn from(money: Money) -> f64 {
        money.0 as f64 / 1e6
    }
}

impl Default for SessionPolicy {
    fn default() -> Self {
        Self {
            idle_timeout_s: 30 * 60,
            max_duration_s: 24 * 60 * 60,
            on_expiry: OnExpiry::Pause,
            max_running: None,
            max_cost: None,
        }
    }
}

impl SessionPolicy {
    /// Returns the limit that is reached when the compute has run for `ran` at a price per hour.
    #[must_use]
    pub fn spent(&self, ran: Duration, price: Money) -> Option<EndReason> {
        if self.max_running.is_some_and(|limit| ran >= limit.0) {
            return Some(EndReason::MaxRunning);
        }
        self.max_cost.filter(|limit| price.for_time(ran) >= *limit).map(|_| EndReason::MaxCost)
    }

    /// Returns whether the policy limits running time or cost.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.max_running.is_some() || self.max_cost.is_some()
    }
}

/// What the end of a session does to the compute. The durable state is always kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnExpiry {
    /// The instance is paused if the provider supports it, else stopped.
    #[default]
    Pause,
    /// The instance is ended; the next use starts another from the durable state.
    Stop,
    /// The instance keeps running.
    Keep,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatSession {
    pub session_id: SessionId,
    pub thread_id: ThreadId,
    /// The thread's default terminal.
    pub terminal_id: TerminalId,
    pub state: SessionState,
    /// The policy it was opened with.
    pub policy: SessionPolicy,
    pub created: Moment,
    pub last_active: Moment,
    /// How long the compute had run when the session was opened.
    pub ran_before: Duration,
    pub revision: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "status")]
pub enum SessionState {
    Active,
    /// Open, without recent activity.
    Idle,
    Expired {
        /// When this was noticed.
        at: Timestamp,
        ended: EndReason,
    },
    Closed {
        at: Timestamp,
    },
}

/// Which limit ended a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    IdleTimeout,
    MaxDuration,
    MaxRunning,
    MaxCost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    Active,
    Idle,
    Expired,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEvent {
    /// There was activity.
    Touched(Moment),
    /// Time has passed.
    Elapsed(Moment),
    /// A limit of the compute was reached.
    Spent(Moment, EndReason),
    Closed(Moment),
}

impl ChatSession {
    #[must_use]
    pub fn open(
        session_id: SessionId,
        thread_id: ThreadId,
        terminal_id: TerminalId,
        policy: SessionPolicy,
        now: Moment,
    ) -> Self {
        Self {
            session_id,
            thread_id,
            terminal_id,
            state: SessionState::Active,
            policy,
            created: now,
            last_active: now,
            ran_before: Duration::ZERO,
            revision: 0,
        }
    }

    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, SessionState::Active | SessionState::Idle)
    }

    #[must_use]
    pub fn status(&self) -> SessionStatus {
        match self.state {
            SessionState::Active => SessionStatus::Active,
            SessionState::Idle => SessionStatus::Idle,
            SessionState::Expired { .. } => SessionStatus::Expired,
            SessionState::Closed { .. } => SessionStatus::Closed,
        }
    }

    /// Returns the wall-clock time at which the session expires without further activity.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        let idle = self.last_active.plus(Duration::from_secs(self.policy.idle_timeout_s));
        let max = self.created.plus(Duration::from_secs(self.policy.max_duration_s));
        idle.min(max)
    }

    /// Returns the time until the session expires, zero if it has, and the limit that ends it.
    #[must_use]
    pub fn left(&self, now: &Moment) -> (Duration, EndReason) {
        let idle = Duration::from_secs(self.policy.idle_timeout_s)
            .saturating_sub(now.since(&self.last_active));
        let max = Duration::from_secs(self.policy.max_duration_s)
            .saturating_sub(now.since(&self.created));
        if max <= idle { (max, EndReason::MaxDuration) } else { (idle, EndReason::IdleTimeout) }
    }

    /// Returns the time without activity after which the session is idle: a minute, or half its idle
    /// timeout if that is less.
    #[must_use]
    pub fn quiet_after(&self) -> Duration {
        Duration::from_secs(60).min(Duration::from_secs(self.policy.idle_timeout_s) / 2)
    }

    /// Returns how long before its end the session is reported as expiring: `wanted`, but at most half of
    /// its lifetime without activity, so that no session is reported from its first second.
    #[must_use]
    pub fn warned(&self, wanted: Duration) -> Duration {
        let lasts = self.policy.idle_timeout_s.min(self.policy.max_duration_s);
        wanted.min(Duration::from_secs(lasts) / 2)
    }

    /// Returns the session after an event. A touch after its expiry is refused, even if the expiry was not
    /// recorded yet.
    pub fn apply(&self, event: SessionEvent) -> Result<Self, Refused> {
        if !self.is_open() {
            return Err(self.refused(event));
        }
        let mut next = self.clone();
        match event {
            SessionEvent::Touched(now) => {
                if self.left(&now).0.is_zero() {
                    return Err(self.refused(event));
                }
                next.state = SessionState::Active;
                next.last_active = now;
            }
            SessionEvent::Elapsed(now) => {
                let (left, ended) = self.left(&now);
                next.state = if left.is_zero() {
                    SessionState::Expired { at: now.at, ended }
                } else if now.since(&self.last_active) >= self.quiet_after() {
                    SessionState::Idle
                } else {
                    self.state
                };
            }
            SessionEvent::Spent(now, ended) => {
                next.state = SessionState::Expired { at: now.at, ended };
            }
            SessionEvent::Closed(now) => next.state = SessionState::Closed { at: now.at },
        }
        Ok(next)
    }

    fn refused(&self, event: SessionEvent) -> Refused {
        Refused {
            noun: format!("session {}", self.session_id),
            state: match self.state {
                SessionState::Active | SessionState::Idle => "expired",
                SessionState::Expired { .. } => "expired",
                SessionState::Closed { .. } => "closed",
            },
            event: match event {
                SessionEvent::Touched(_) => "be touched",
                SessionEvent::Elapsed(_) | SessionEvent::Spent(..) => "expire",
                SessionEvent::Closed(_) => "be closed",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: u64) -> Moment {
        let wall = Timestamp::from_second(i64::try_from(second).unwrap()).unwrap();
        Moment::new(wall, 1, Duration::from_secs(second))
    }

    fn session(policy: SessionPolicy) -> ChatSession {
        let thread = "t".parse().unwrap();
        ChatSession::open(SessionId::fresh(), thread, TerminalId::fresh(), policy, at(0))
    }

    #[test]
    fn the_default_limits_are_half_an_hour_idle_and_a_day() {
        let policy: SessionPolicy = serde_json::from_str("{}").unwrap();
        assert_eq!((policy.idle_timeout_s, policy.max_duration_s), (1800, 86_400));
        let opened = session(policy);
        assert_eq!(opened.left(&at(0)), (Duration::from_secs(1800), EndReason::IdleTimeout));
        assert_eq!(opened.expires_at(), at(1800).at);
        let expired = opened.apply(SessionEvent::Elapsed(at(1800))).unwrap();
        let ended = EndReason::IdleTimeout;
        assert_eq!(expired.state, SessionState::Expired { at: at(1800).at, ended });
    }

    #[test]
    fn a_session_in_use_expires_at_its_maximum_duration() {
        let policy =
            SessionPolicy { idle_timeout_s: 10, max_duration_s: 25, ..SessionPolicy::default() };
        let mut open = session(policy);
        for second in [9, 18, 24] {
            open = open.apply(SessionEvent::Touched(at(second))).unwrap();
        }
        assert!(open.apply(SessionEvent::Touched(at(25))).is_err());
        let expired = open.apply(SessionEvent::Elapsed(at(25))).unwrap();
        let ended = EndReason::MaxDuration;
        assert_eq!(expired.state, SessionState::Expired { at: at(25).at, ended });
    }

    #[test]
    fn running_time_and_cost_of_the_compute_are_limited() {
        let text = r#"{"max_running_hours": 1.5, "max_cost": 0.25}"#;
        let policy: SessionPolicy = serde_json::from_str(text).unwrap();
        let hour = Duration::from_secs(3600);
        assert_eq!(policy.spent(hour, Money::from(0.2)), None);
        assert_eq!(policy.spent(hour, Money::from(0.25)), Some(EndReason::MaxCost));
        assert_eq!(policy.spent(hour * 2, Money::default()), Some(EndReason::MaxRunning));
        let shown = serde_json::to_value(policy).unwrap();
        assert_eq!((&shown["max_running_hours"], &shown["max_cost"]), (&1.5.into(), &0.25.into()));
        let unbounded = SessionPolicy::default();
        assert_eq!(unbounded.spent(hour * 1000, Money::from(1e6)), None);
        assert!(!unbounded.counts() && policy.counts());
        let over = session(policy).apply(SessionEvent::Spent(at(5), EndReason::MaxCost)).unwrap();
        let ended = EndReason::MaxCost;
        assert_eq!(over.state, SessionState::Expired { at: at(5).at, ended });
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Touch,
        Elapse,
        Close,
    }

    proptest! {
        /// The reference model: three numbers and a flag.
        #[test]
        fn a_session_matches_the_reference_model(
            idle in 1u64..50,
            max in 1u64..100,
            steps in prop::collection::vec((0u64..30, prop_oneof![
                4 => Just(Step::Touch), 4 => Just(Step::Elapse), 1 => Just(Step::Close)]), 0..40),
        ) {
            let policy = SessionPolicy {
                idle_timeout_s: idle, max_duration_s: max, ..SessionPolicy::default() };
            let mut real = session(policy);
            let (mut now, mut last, mut over) = (0, 0, false);
            let mut expiries = 0;
            for (wait, step) in steps {
                now += wait;
                let due = now >= max || now - last >= idle;
                let (event, allowed) = match step {
                    Step::Touch => (SessionEvent::Touched(at(now)), !over && !due),
                    Step::Elapse => (SessionEvent::Elapsed(at(now)), !over),
                    Step::Close => (SessionEvent::Closed(at(now)), !over),
                };
                match real.apply(event) {
                    Ok(next) => {
                        prop_assert!(allowed);
                        real = next;
                        match step {
                            Step::Touch => last = now,
                            Step::Elapse => { over = due; expiries += u32::from(due); }
                            Step::Close => over = true,
                        }
                    }
                    Err(_) => prop_assert!(!allowed),
                }
                prop_assert_eq!(real.is_open(), !over);
            }
            prop_assert!(expiries <= 1);
        }
    }
}
