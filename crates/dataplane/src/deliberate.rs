//! Deliberate faults: what the simulator's checks must notice. Each is one place where a protection
//! of the data path can be left out. They exist only with the feature `deliberate-faults`; in the
//! product [`is`] is constant.

/// One protection that is left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// A primary serves without leases.
    NoLeases,
    /// A new primary does not wait until the leases of its predecessor have run out.
    ServeAtIgnored,
    /// A node goes on granting leases to a primary that it knows to be replaced.
    LeaseForReplaced,
    /// An entry counts as committed before the backups have it.
    CommitAlone,
    /// Outputs and reply leave when the handler returns.
    ReleaseBeforeCommit,
    /// The sender hears "durable" when the handler returns.
    DurableBeforeCommit,
    /// A stateless service says "durable" before its outputs are durable.
    StatelessDurableEarly,
    /// Nothing is recognised as a duplicate.
    NoDuplicateCheck,
    /// Messages are forgotten as soon as another one is handled.
    ForgetEarly,
    /// A retry of a handled message is not answered again.
    RetryUnanswered,
    /// A new primary does not resend what its predecessor may not have sent.
    OutboxDropped,
    /// Entries leave the outbox before their outputs are durable.
    OutboxTrimmedEarly,
    /// Backups hear that everything is durable downstream.
    ReleasedTooFar,
    /// Channels of former incarnations of a shard are taken.
    IncarnationIgnored,
    /// A stream of a former primary is taken.
    FormerPrimaryFollowed,
    /// A snapshot lacks the messages that were handled and released.
    SnapshotWithoutHandled,
    /// A snapshot lacks the collections.
    SnapshotWithoutState,
    /// A backup counts as complete when its stream begins.
    SyncedAtOnce,
    /// A frozen primary goes on handling.
    FrozenHandles,
    /// A backup remembers entries and does not apply their writes.
    BackupAppliesNothing,
    /// A backup applies writes and does not remember what was handled.
    BackupRemembersNothing,
    /// A plan that is older than the present one is applied.
    OldPlanApplied,
}

#[cfg(feature = "deliberate-faults")]
mod chosen {
    use super::Fault;
    use std::cell::Cell;

    thread_local! {
        static CHOSEN: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    impl Fault {
        /// Every fault.
        pub const ALL: [Fault; 22] = [
            Fault::NoLeases,
            Fault::ServeAtIgnored,
            Fault::LeaseForReplaced,
            Fault::CommitAlone,
            Fault::ReleaseBeforeCommit,
            Fault::DurableBeforeCommit,
            Fault::StatelessDurableEarly,
            Fault::NoDuplicateCheck,
            Fault::ForgetEarly,
            Fault::RetryUnanswered,
            Fault::OutboxDropped,
            Fault::OutboxTrimmedEarly,
            Fault::ReleasedTooFar,
            Fault::IncarnationIgnored,
            Fault::FormerPrimaryFollowed,
            Fault::SnapshotWithoutHandled,
            Fault::SnapshotWithoutState,
            Fault::SyncedAtOnce,
            Fault::FrozenHandles,
            Fault::BackupAppliesNothing,
            Fault::BackupRemembersNothing,
            Fault::OldPlanApplied,
        ];
    }

    /// Chooses the fault of this thread, or none.
    pub fn choose(fault: Option<Fault>) {
        CHOSEN.set(fault);
    }

    pub(crate) fn is(fault: Fault) -> bool {
        CHOSEN.get() == Some(fault)
    }
}

#[cfg(feature = "deliberate-faults")]
pub use chosen::choose;
#[cfg(feature = "deliberate-faults")]
pub(crate) use chosen::is;

/// Whether the fault is chosen: never in the product.
#[cfg(not(feature = "deliberate-faults"))]
pub(crate) const fn is(_: Fault) -> bool {
    false
}
