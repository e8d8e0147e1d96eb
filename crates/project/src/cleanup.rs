//! When an unused project is deleted. Pure: the time is a parameter.
//!
//! ```text
//!  last use                      day 28    29    30  │ 31
//!  ───┬──────────────────────────────┬─────┬─────┬───┼──▶
//!     │            keep              │ a warning each │ delete
//! ```
//! The days are those of the default policy. A project that was never warned, because the server was
//! down on all of those days, is warned first and deleted the day after that.

use serde::Serialize;

use model::{Project, ProjectId, Timestamp};

/// One day in microseconds.
const DAY_MICROS: i64 = 24 * 60 * 60 * 1_000_000;

/// When projects are cleaned up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanupPolicy {
    pub enabled: bool,
    /// Days without use; deletion is on the day after the last of them.
    pub after_days: u32,
    /// How many of the last days bring a warning.
    pub warning_days: u32,
}

impl Default for CleanupPolicy {
    fn default() -> Self {
        Self { enabled: true, after_days: 30, warning_days: 3 }
    }
}

/// Whether a project is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InUse {
    /// A command runs or a client is attached.
    Yes,
    No,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "decision")]
pub enum Decision {
    Keep,
    /// Announce the deletion.
    Warn {
        /// In how many days, counted from 1.
        days_left: u32,
        /// The time of the deletion, if the project stays unused.
        deletes_at: Timestamp,
    },
    Delete,
}

/// Decides what to do with a project.
#[must_use]
pub fn decide(
    now: Timestamp,
    project: &Project,
    policy: &CleanupPolicy,
    in_use: InUse,
) -> Decision {
    let Some(planned) = deletes_at(project, policy) else { return Decision::Keep };
    if in_use == InUse::Yes {
        return Decision::Keep;
    }
    let (now, planned) = (now.as_microsecond(), planned.as_microsecond());
    let first_warning = planned - i64::from(policy.warning_days) * DAY_MICROS;
    if now < first_warning {
        return Decision::Keep;
    }
    // A server that was down on all of the last days still gives one day of notice.
    let earliest = match project.warned_at.map(Timestamp::as_microsecond) {
        _ if policy.warning_days == 0 => planned,
        Some(warned) => planned.max(warned.saturating_add(DAY_MICROS)),
        None => planned.max(now.saturating_add(DAY_MICROS)),
    };
    if now >= earliest {
        return Decision::Delete;
    }
    let days_left =
        u32::try_from((earliest - now + DAY_MICROS - 1) / DAY_MICROS).unwrap_or(u32::MAX);
    let deletes_at = Timestamp::from_microsecond(earliest).unwrap_or(Timestamp::MAX);
    Decision::Warn { days_left, deletes_at }
}

/// Returns whether no warning was given yet on this day. Days are counted back from the deletion.
#[must_use]
pub fn is_warning_due(now: Timestamp, project: &Project, policy: &CleanupPolicy) -> bool {
    let (Some(planned), Some(_), Some(reminded)) =
        (deletes_at(project, policy), project.warned_at, project.reminded_at)
    else {
        return true;
    };
    // A boundary belongs to the day that begins there.
    let day =
        |at: Timestamp| (planned.as_microsecond() - at.as_microsecond() - 1).div_euclid(DAY_MICROS);
    day(now) != day(reminded)
}

/// Returns when a project is deleted if it stays unused; `None` means never.
#[must_use]
pub fn deletes_at(project: &Project, policy: &CleanupPolicy) -> Option<Timestamp> {
    let is_default = project.project_id == ProjectId::default_project();
    if !policy.enabled || project.pinned || is_default {
        return None;
    }
    let days = project.config.cleanup_after_days.unwrap_or(policy.after_days);
    let used = project.last_used_at.max(project.created_at).as_microsecond();
    let unused = used.saturating_add((i64::from(days) + 1).saturating_mul(DAY_MICROS));
    let kept = project.keep_until.map_or(i64::MIN, Timestamp::as_microsecond);
    Some(Timestamp::from_microsecond(unused.max(kept)).unwrap_or(Timestamp::MAX))
}

/// Returns the new deletion time of a project whose deletion is postponed by `days`.
#[must_use]
pub fn extended(project: &Project, policy: &CleanupPolicy, now: Timestamp, days: u32) -> Timestamp {
    let policy = CleanupPolicy { enabled: true, ..*policy };
    let unpinned = Project { pinned: false, ..project.clone() };
    let planned = deletes_at(&unpinned, &policy).map_or(now, |planned| planned.max(now));
    let until = planned.as_microsecond().saturating_add(i64::from(days).saturating_mul(DAY_MICROS));
    Timestamp::from_microsecond(until).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use model::{ProjectConfig, Statistics};

    const START: i64 = 1_800_000_000_000_000;

    fn day(day: f64) -> Timestamp {
        #[expect(clippy::cast_possible_truncation, reason = "a calendar of a few years")]
        Timestamp::from_microsecond(START + (day * DAY_MICROS as f64) as i64).unwrap()
    }

    fn project() -> Project {
        Project {
            project_id: "web-00000001".parse().unwrap(),
            description: String::new(),
            tags: Default::default(),
            config: ProjectConfig::default(),
            pinned: false,
            keep_until: None,
            warned_at: None,
            reminded_at: None,
            statistics: Statistics::default(),
            last_used_at: day(0.0),
            created_at: day(0.0),
            updated_at: day(0.0),
            revision: 0,
        }
    }

    /// Runs the daily check as the server does. Returns what it did, and when.
    fn calendar(
        mut project: Project,
        policy: &CleanupPolicy,
        checks: impl Iterator<Item = f64>,
    ) -> Vec<String> {
        let mut reported = Vec::new();
        for at in checks {
            match decide(day(at), &project, policy, InUse::No) {
                Decision::Keep => {}
                Decision::Warn { days_left, .. } => {
                    if is_warning_due(day(at), &project, policy) {
                        project.warned_at.get_or_insert(day(at));
                        project.reminded_at = Some(day(at));
                        reported.push(format!("{at}: warned, {days_left} left"));
                    }
                }
                Decision::Delete => {
                    reported.push(format!("{at}: deleted"));
                    break;
                }
            }
        }
        reported
    }

    fn days(from: u32, to: u32) -> impl Iterator<Item = f64> {
        (from..to).map(|day| f64::from(day) + 0.5)
    }

    #[test]
    fn thirty_days_three_warnings_and_deleted_on_the_day_after() {
        let policy = CleanupPolicy::default();
        assert_eq!(
            calendar(project(), &policy, days(0, 40)),
            [
                "28.5: warned, 3 left",
                "29.5: warned, 2 left",
                "30.5: warned, 1 left",
                "31.5: deleted"
            ]
        );
        // Hourly checks also warn once a day.
        let hourly = (0..40 * 24).map(|hour| f64::from(hour) / 24.0);
        let reported = calendar(project(), &policy, hourly);
        assert_eq!(reported.len(), 4, "{reported:?}");
        assert_eq!(reported[3], "31: deleted");
    }

    #[test]
    fn a_server_that_was_down_on_the_day_deletes_when_it_is_back() {
        let checks = days(0, 30).chain(days(35, 40));
        let reported = calendar(project(), &CleanupPolicy::default(), checks);
        assert_eq!(reported, ["28.5: warned, 3 left", "29.5: warned, 2 left", "35.5: deleted"]);
    }

    #[test]
    fn nothing_is_deleted_without_a_warning_a_day_before() {
        let checks = days(0, 5).chain(days(90, 95));
        let reported = calendar(project(), &CleanupPolicy::default(), checks);
        assert_eq!(reported, ["90.5: warned, 1 left", "91.5: deleted"]);
        let silent = CleanupPolicy { warning_days: 0, ..CleanupPolicy::default() };
        assert_eq!(calendar(project(), &silent, days(0, 40)), ["31.5: deleted"]);
    }

    #[test]
    fn pinned_default_used_and_extended_projects_are_kept() {
        let policy = CleanupPolicy::default();
        let late = day(1000.0);
        let kept = |project: &Project, policy: &CleanupPolicy, in_use| {
            decide(late, project, policy, in_use) == Decision::Keep
        };
        assert!(kept(&Project { pinned: true, ..project() }, &policy, InUse::No));
        let default = Project { project_id: ProjectId::default_project(), ..project() };
        assert!(kept(&default, &policy, InUse::No));
        assert!(kept(&project(), &policy, InUse::Yes));
        assert!(kept(&project(), &CleanupPolicy { enabled: false, ..policy }, InUse::No));
        let keep_until = Some(extended(&project(), &policy, day(10.0), 7));
        let extended = Project { keep_until, ..project() };
        let reported = calendar(extended, &policy, days(0, 60));
        assert_eq!(reported.last().unwrap(), "38.5: deleted");
        let config = ProjectConfig { cleanup_after_days: Some(2), ..ProjectConfig::default() };
        let reported = calendar(Project { config, ..project() }, &policy, days(0, 60));
        assert_eq!(reported.last().unwrap(), "3.5: deleted");
    }

    proptest! {
        /// For any policy, any extension and any days on which the server runs: a project is never deleted early
        /// nor without a warning on an earlier day.
        #[test]
        fn a_project_is_deleted_late_enough_and_after_a_warning(
            after_days in 0u32..60, warning_days in 1u32..10, extension in prop::option::of(0u32..30),
            up in prop::collection::vec(any::<bool>(), 200),
        ) {
            let policy = CleanupPolicy { enabled: true, after_days, warning_days };
            let mut project = project();
            project.keep_until = extension.map(|days| extended(&project, &policy, day(0.0), days));
            let planned = f64::from(after_days + 1 + extension.unwrap_or(0));
            let (mut warned, mut deleted) = (Vec::new(), None);
            for at in days(0, 200).zip(up).filter_map(|(at, up)| up.then_some(at)) {
                match decide(day(at), &project, &policy, InUse::No) {
                    Decision::Keep => prop_assert!(at < planned - f64::from(warning_days)),
                    Decision::Warn { deletes_at, .. } => {
                        prop_assert!(deletes_at > day(at));
                        prop_assert!(at >= planned - f64::from(warning_days));
                        project.warned_at.get_or_insert(day(at));
                        warned.push(at);
                    }
                    Decision::Delete => { deleted = Some(at); break; }
                }
            }
            if let Some(deleted) = deleted {
                prop_assert!(deleted >= planned);
                prop_assert!(!warned.is_empty() && warned[0] <= deleted - 1.0);
            }
        }
    }
}
