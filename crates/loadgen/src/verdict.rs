//! The verdict on a load: what was checked, and the result.
//!
//! | verdict | when |
//! |---|---|
//! | failed | a request has no outcome, two outcomes or a wrong one; a request was dead-lettered or expired; a shard lost its state; state read back differs from the ledger or could not be read; or more than one in ten requests were refused that were not sent to be refused |
//! | not checked | nothing failed, and nothing was read back |
//! | partly checked | nothing failed, and the state of some services was read back, that of others not |
//! | proved | nothing failed, and the state of every stateful service was read back and is what the ledger says |

use crate::ledger::LedgerReport;
use crate::limits::REFUSED_SHARE_MAX;
use serde::Serialize;
use std::fmt;

/// Verdict on a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Verdict {
    /// Everything was checked and is right.
    #[serde(rename = "proved")]
    Proved,
    /// What was checked is right, but not everything was checked.
    #[serde(rename = "partly checked")]
    PartlyChecked,
    /// Every request has its outcome; no state was read back.
    #[serde(rename = "not checked")]
    NotChecked,
    /// Something is wrong.
    #[serde(rename = "failed")]
    Failed,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Proved => "proved",
            Verdict::PartlyChecked => "partly checked",
            Verdict::NotChecked => "not checked",
            Verdict::Failed => "failed",
        })
    }
}

/// The state of a service, read back and compared with the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServiceCheck {
    /// The service.
    pub service: &'static str,
    /// What was compared; of a service that cannot be read, why not.
    pub what: &'static str,
    /// False if the service has no read operation.
    pub readable: bool,
    /// Facts that were read and are what the ledger says.
    pub right: u64,
    /// Facts that were read and are different: missing, repeated or changed.
    pub wrong: u64,
    /// Queries that had no answer.
    pub unread: u64,
    /// Facts that are unknown, since a request has no certain outcome.
    pub unsure: u64,
}

impl ServiceCheck {
    /// A service that cannot be read, and why.
    pub fn unreadable(service: &'static str, why: &'static str) -> ServiceCheck {
        ServiceCheck {
            service,
            what: why,
            readable: false,
            right: 0,
            wrong: 0,
            unread: 0,
            unsure: 0,
        }
    }
}

/// What the controller says about the application: before a load, and what changed until after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClusterChange {
    /// Shards that lost all replicas and began again empty.
    pub state_lost: u64,
    /// Requests and messages that were dead-lettered, also downstream of the service that answers.
    pub dead_letters: u64,
    /// The application was deleted and deployed again.
    pub replaced: bool,
}

/// The verdict, and the reasons for it in words.
pub fn judge(
    ledger: &LedgerReport,
    checks: &[ServiceCheck],
    cluster: Option<&ClusterChange>,
) -> (Verdict, Vec<String>) {
    let mut faults = faults(ledger, cluster);
    for c in checks {
        let (what, service) = (c.what, c.service);
        if c.wrong > 0 {
            let all = c.right + c.wrong;
            faults.push(format!("{service}: {} of {all} differ ({what})", c.wrong));
        }
    }
    if !faults.is_empty() {
        return (Verdict::Failed, faults);
    }
    let gaps = gaps(checks, cluster);
    let verdict = if !checks.iter().any(|c| c.right > 0) {
        Verdict::NotChecked
    } else if gaps.is_empty() {
        Verdict::Proved
    } else {
        Verdict::PartlyChecked
    };
    (verdict, gaps)
}

fn faults(l: &LedgerReport, cluster: Option<&ClusterChange>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault = |count: u64, words: &str| {
        if count > 0 {
            faults.push(format!("{count} {words}"));
        }
    };
    let c = cluster.copied().unwrap_or_default();
    fault(
        c.state_lost,
        "shards lost their state and began again empty",
    );
    fault(l.unknown, "requests without outcome");
    fault(l.replies_contradictory, "contradictory answers");
    fault(l.wrong, "wrong answers");
    fault(l.rows_missing, "accepted updates missing");
    fault(l.rows_repeated, "updates that took effect twice");
    fault(l.rows_unexpected, "rows that no accepted update explains");
    fault(l.failed, "requests dead-lettered");
    fault(l.expired, "requests expired");
    let further = c.dead_letters.saturating_sub(l.failed + l.expired);
    fault(
        further,
        "further dead letters, downstream of the service that answers",
    );
    fault(l.checks_failed, "queries about the state without a reply");
    if c.replaced {
        faults.push("the application was deployed again during the load".into());
    }
    let refused = l.refused_in_all();
    if refused as f64 > REFUSED_SHARE_MAX * l.sent as f64 {
        faults.push(format!(
            "{refused} of {} requests refused, more than {:.0} %",
            l.sent,
            100.0 * REFUSED_SHARE_MAX
        ));
    }
    faults
}

fn gaps(checks: &[ServiceCheck], cluster: Option<&ClusterChange>) -> Vec<String> {
    let mut gaps = Vec::new();
    if checks.is_empty() {
        gaps.push("this load reads no state back".to_string());
    }
    for c in checks {
        let (what, service) = (c.what, c.service);
        if !c.readable {
            gaps.push(format!("{service} not checked: {what}"));
        } else if c.unsure > 0 {
            let unsure = c.unsure;
            gaps.push(format!(
                "{service}: {unsure} not known to the ledger ({what})"
            ));
        } else if c.right == 0 {
            gaps.push(format!(
                "{service} not checked: there was nothing to compare"
            ));
        }
    }
    if cluster.is_none() {
        let why = "the controller did not say whether state was lost or dead-lettered";
        gaps.push(why.to_string());
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: ClusterChange = ClusterChange {
        state_lost: 0,
        dead_letters: 0,
        replaced: false,
    };

    fn check(service: &'static str, right: u64) -> ServiceCheck {
        ServiceCheck {
            readable: true,
            right,
            ..ServiceCheck::unreadable(service, "rows")
        }
    }

    fn ledger() -> LedgerReport {
        LedgerReport {
            sent: 100,
            done: 100,
            accepted: 100,
            ..LedgerReport::default()
        }
    }

    #[test]
    fn each_verdict_is_reached() {
        let l = ledger();
        let of = |checks: &[ServiceCheck], cluster| judge(&l, checks, cluster);
        let all = [check("a", 5), check("b", 9)];
        assert_eq!(of(&all, Some(&QUIET)), (Verdict::Proved, vec![]));
        let blind = [check("a", 5), ServiceCheck::unreadable("b", "no operation")];
        let (verdict, why) = of(&blind, Some(&QUIET));
        assert_eq!(verdict, Verdict::PartlyChecked);
        assert_eq!(why, ["b not checked: no operation"]);
        assert_eq!(of(&all, None).0, Verdict::PartlyChecked);
        assert_eq!(
            of(&[check("a", 0), check("b", 1)], Some(&QUIET)).0,
            Verdict::PartlyChecked
        );
        assert_eq!(of(&[], Some(&QUIET)).0, Verdict::NotChecked);
        assert_eq!(of(&[check("a", 0)], Some(&QUIET)).0, Verdict::NotChecked);
        let differs = [ServiceCheck {
            wrong: 2,
            ..check("a", 5)
        }];
        let (verdict, why) = of(&differs, Some(&QUIET));
        assert_eq!(verdict, Verdict::Failed);
        assert_eq!(why, ["a: 2 of 7 differ (rows)"]);
    }

    #[test]
    fn whatever_is_wrong_fails_the_load() {
        let faults: [fn(&mut LedgerReport); 11] = [
            |l| l.unknown = 1,
            |l| l.replies_contradictory = 1,
            |l| l.wrong = 1,
            |l| l.rows_missing = 1,
            |l| l.rows_repeated = 1,
            |l| l.rows_unexpected = 1,
            |l| l.failed = 1,
            |l| l.expired = 1,
            |l| l.checks_failed = 1,
            |l| l.refused = 11,
            |l| (l.overloaded, l.rejected, l.rate_limited) = (4, 4, 3),
        ];
        for fault in faults {
            let mut l = ledger();
            fault(&mut l);
            for checks in [&[][..], &[check("a", 5)]] {
                let (verdict, why) = judge(&l, checks, Some(&QUIET));
                assert_eq!((verdict, why.len()), (Verdict::Failed, 1), "{l:?}: {why:?}");
            }
        }
        // a few refusals are no fault, nor are those that were meant
        let mut l = ledger();
        (l.overloaded, l.unauthorized, l.refused_on_purpose) = (10, 50, 40);
        assert_eq!(judge(&l, &[check("a", 5)], Some(&QUIET)).0, Verdict::Proved);
    }

    #[test]
    fn what_the_cluster_lost_fails_the_load() {
        let of = |cluster: ClusterChange| judge(&ledger(), &[check("a", 5)], Some(&cluster));
        let lost = of(ClusterChange {
            state_lost: 18,
            ..QUIET
        });
        assert_eq!(lost.0, Verdict::Failed);
        assert_eq!(lost.1, ["18 shards lost their state and began again empty"]);
        let dead = of(ClusterChange {
            dead_letters: 12_800,
            ..QUIET
        });
        assert_eq!(dead.0, Verdict::Failed);
        let replaced = of(ClusterChange {
            replaced: true,
            ..QUIET
        });
        assert_eq!(replaced.0, Verdict::Failed);
        // dead letters that the ledger knows are reported once
        let mut l = ledger();
        l.failed = 3;
        let cluster = ClusterChange {
            dead_letters: 3,
            ..QUIET
        };
        assert_eq!(
            judge(&l, &[], Some(&cluster)).1,
            ["3 requests dead-lettered"]
        );
    }
}
