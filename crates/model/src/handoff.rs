//! A hand-off: an agent's request to a person on one terminal.
//!
//! ```text
//!   Open ── answer ──▶ Answered   (final)
//!   Open ── decline ─▶ Declined   (final)
//!   Open ── timeout ─▶ Expired    (final)
//! ```
//! A secret is never part of a hand-off: it goes straight to the program that reads the terminal, and the
//! hand-off only records that it was answered.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{HandoffId, Moment, Refused, TerminalId, ThreadId};

/// What an agent asks a person for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HandoffKind {
    /// Text, which is returned to the agent.
    Input,
    /// Text that is typed into the program that reads the terminal, and kept nowhere.
    Secret,
    /// A decision, or a choice of one of the options.
    Approval,
}

impl HandoffKind {
    /// Returns the kind as clients see it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            HandoffKind::Input => "input",
            HandoffKind::Secret => "secret",
            HandoffKind::Approval => "approval",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handoff {
    pub handoff_id: HandoffId,
    pub thread_id: ThreadId,
    pub terminal_id: TerminalId,
    pub kind: HandoffKind,
    /// Why the agent asks, for the person.
    pub reason: String,
    /// What the person may choose from.
    pub options: Vec<String>,
    pub state: HandoffState,
    pub created: Moment,
    /// How long the hand-off stays open.
    pub timeout: Duration,
    pub notice: Notice,
    pub revision: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "status")]
pub enum HandoffState {
    Open,
    Answered {
        at: Timestamp,
        answer: HandoffAnswer,
    },
    Declined {
        at: Timestamp,
        /// What the person wrote about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    Expired {
        at: Timestamp,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HandoffStatus {
    Open,
    Answered,
    Declined,
    Expired,
}

impl HandoffStatus {
    /// Returns the status as clients see it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            HandoffStatus::Open => "open",
            HandoffStatus::Answered => "answered",
            HandoffStatus::Declined => "declined",
            HandoffStatus::Expired => "expired",
        }
    }
}

/// The answer of a person, without the secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoffAnswer {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approve: Option<bool>,
    /// One of the options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Whether the webhook has to be notified of an open hand-off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Notice {
    /// There was no webhook when the hand-off was opened.
    Unwanted,
    Pending,
    Delivered,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandoffEvent {
    Answered(Moment, HandoffAnswer),
    Declined(Moment, Option<String>),
    /// Time has passed.
    Elapsed(Moment),
    /// The webhook accepted the notification.
    Notified,
}

/// Why an answer does not fit the hand-off.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct BadAnswer {
    /// The field of the answer.
    pub field: &'static str,
    pub why: String,
}

impl BadAnswer {
    fn new(field: &'static str, why: impl Into<String>) -> Self {
        Self { field, why: why.into() }
    }
}

impl Handoff {
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.status() == HandoffStatus::Open
    }

    #[must_use]
    pub fn status(&self) -> HandoffStatus {
        match self.state {
            HandoffState::Open => HandoffStatus::Open,
            HandoffState::Answered { .. } => HandoffStatus::Answered,
            HandoffState::Declined { .. } => HandoffStatus::Declined,
            HandoffState::Expired { .. } => HandoffStatus::Expired,
        }
    }

    /// Returns the wall-clock time at which an open hand-off expires.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        self.created.plus(self.timeout)
    }

    /// Returns how long the hand-off stays open; zero if its time is over. Jumps of the wall clock change
    /// nothing until the machine boots again.
    #[must_use]
    pub fn left(&self, now: &Moment) -> Duration {
        self.timeout.saturating_sub(now.since(&self.created))
    }

    /// Checks an answer to an `input` or an `approval` and completes it: a chosen option is an approval.
    pub fn check(&self, answer: HandoffAnswer) -> Result<HandoffAnswer, BadAnswer> {
        if let Some(option) = &answer.option
            && !self.options.contains(option)
        {
            let why = match self.options.is_empty() {
                true => "this hand-off has no options".to_owned(),
                false => format!("must be one of: {}", self.options.join(", ")),
            };
            return Err(BadAnswer::new("option", why));
        }
        match self.kind {
            HandoffKind::Secret => {
                Err(BadAnswer::new("secret", "a hand-off of kind secret is answered by `secret`"))
            }
            HandoffKind::Input => {
                if answer.approve.is_some() {
                    return Err(BadAnswer::new("approve", "only an approval is approved"));
                }
                if answer.text.is_none() && answer.option.is_none() {
                    return Err(BadAnswer::new("text", "an input is answered by `text`"));
                }
                Ok(answer)
            }
            HandoffKind::Approval => match (answer.approve, &answer.option) {
                (None, None) => {
                    Err(BadAnswer::new("approve", "an approval is answered by `approve`"))
                }
                (None, Some(_)) => Ok(HandoffAnswer { approve: Some(true), ..answer }),
                (Some(true), None) if !self.options.is_empty() => {
                    Err(BadAnswer::new("option", "one of the options must be chosen"))
                }
                (Some(_), _) => Ok(answer),
            },
        }
    }

    /// Returns the hand-off after an event. An answer after the timeout is refused, even if the expiry was
    /// not recorded yet.
    pub fn apply(&self, event: HandoffEvent) -> Result<Self, Refused> {
        if !self.is_open() {
            return Err(self.refused(self.status().word(), &event));
        }
        let mut next = self.clone();
        match event {
            HandoffEvent::Answered(now, _) | HandoffEvent::Declined(now, _)
                if self.left(&now).is_zero() =>
            {
                return Err(self.refused("expired", &event));
            }
            HandoffEvent::Answered(now, answer) => {
                next.state = HandoffState::Answered { at: now.at, answer };
            }
            HandoffEvent::Declined(now, text) => {
                next.state = HandoffState::Declined { at: now.at, text };
            }
            HandoffEvent::Elapsed(now) if self.left(&now).is_zero() => {
                next.state = HandoffState::Expired { at: now.at };
            }
            HandoffEvent::Elapsed(_) => {}
            HandoffEvent::Notified => next.notice = Notice::Delivered,
        }
        Ok(next)
    }

    fn refused(&self, state: &'static str, event: &HandoffEvent) -> Refused {
        Refused {
            noun: format!("hand-off {}", self.handoff_id),
            state,
            event: match event {
                HandoffEvent::Answered(..) => "be answered",
                HandoffEvent::Declined(..) => "be declined",
                HandoffEvent::Elapsed(_) => "expire",
                HandoffEvent::Notified => "be announced",
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

    fn handoff(kind: HandoffKind, options: &[&str]) -> Handoff {
        Handoff {
            handoff_id: HandoffId::fresh(),
            thread_id: "t".parse().unwrap(),
            terminal_id: TerminalId::fresh(),
            kind,
            reason: "why".into(),
            options: options.iter().map(|&option| option.to_owned()).collect(),
            state: HandoffState::Open,
            created: at(0),
            timeout: Duration::from_secs(50),
            notice: Notice::Pending,
            revision: 0,
        }
    }

    fn answer(approve: Option<bool>, option: Option<&str>, text: Option<&str>) -> HandoffAnswer {
        HandoffAnswer { approve, option: option.map(str::to_owned), text: text.map(str::to_owned) }
    }

    #[test]
    fn an_answer_must_fit_its_hand_off() {
        let check = |kind, options: &[&str], given: HandoffAnswer, expected: Result<_, &str>| {
            let checked = handoff(kind, options).check(given.clone());
            assert_eq!(checked.map_err(|bad| bad.field), expected, "{kind:?} {given:?}");
        };
        let (input, approval) = (HandoffKind::Input, HandoffKind::Approval);
        check(input, &[], answer(None, None, Some("x")), Ok(answer(None, None, Some("x"))));
        check(input, &["a"], answer(None, Some("a"), None), Ok(answer(None, Some("a"), None)));
        check(input, &[], answer(None, None, None), Err("text"));
        check(input, &[], answer(Some(true), None, Some("x")), Err("approve"));
        check(input, &["a"], answer(None, Some("b"), None), Err("option"));
        check(approval, &[], answer(Some(false), None, None), Ok(answer(Some(false), None, None)));
        check(approval, &[], answer(None, None, Some("x")), Err("approve"));
        check(approval, &[], answer(Some(true), Some("a"), None), Err("option"));
        let chosen = answer(Some(true), Some("a"), None);
        check(approval, &["a"], answer(None, Some("a"), None), Ok(chosen));
        check(approval, &["a"], answer(Some(true), None, None), Err("option"));
        check(
            approval,
            &["a"],
            answer(Some(false), None, None),
            Ok(answer(Some(false), None, None)),
        );
        check(HandoffKind::Secret, &[], answer(None, None, Some("x")), Err("secret"));
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Answer,
        Decline,
        Elapse,
        Notify,
    }

    proptest! {
        /// The reference model: the first event that settles a hand-off wins, and none does after its time.
        #[test]
        fn a_hand_off_is_settled_once_and_stays_so(
            steps in prop::collection::vec((0u64..30, prop_oneof![
                1 => Just(Step::Answer), 1 => Just(Step::Decline),
                4 => Just(Step::Elapse), 2 => Just(Step::Notify)]), 0..20),
        ) {
            let mut real = handoff(HandoffKind::Input, &[]);
            let (mut now, mut expected, mut notice) = (0, HandoffStatus::Open, Notice::Pending);
            for (wait, step) in steps {
                now += wait;
                let (over, settled) = (now >= 50, expected != HandoffStatus::Open);
                let (event, allowed) = match step {
                    Step::Answer => {
                        let given = answer(None, None, Some("x"));
                        (HandoffEvent::Answered(at(now), given), !settled && !over)
                    }
                    Step::Decline => (HandoffEvent::Declined(at(now), None), !settled && !over),
                    Step::Elapse => (HandoffEvent::Elapsed(at(now)), !settled),
                    Step::Notify => (HandoffEvent::Notified, !settled),
                };
                match real.apply(event) {
                    Err(_) => prop_assert!(!allowed),
                    Ok(next) => {
                        prop_assert!(allowed);
                        real = next;
                        match step {
                            Step::Answer => expected = HandoffStatus::Answered,
                            Step::Decline => expected = HandoffStatus::Declined,
                            Step::Elapse if over => expected = HandoffStatus::Expired,
                            Step::Elapse => {}
                            Step::Notify => notice = Notice::Delivered,
                        }
                    }
                }
                prop_assert_eq!((real.status(), real.notice), (expected, notice));
                let stored = serde_json::to_string(&real.state).unwrap();
                prop_assert_eq!(serde_json::from_str::<HandoffState>(&stored).unwrap(), real.state.clone());
            }
        }
    }
}
