//! Deliberate faults of the data path, which the simulator's checks must find.

e3_model::deliberate_faults! {
    /// A primary serves without leases.
    NoLeases,
    /// A new primary does not wait until the leases of its predecessor have run out.
    ServeAtIgnored,
    /// A node keeps granting leases to a primary that it knows to be replaced.
    LeaseForReplaced,
    /// An entry counts as committed before the backups have it.
    CommitAlone,
    /// Outputs and reply leave when the handler returns.
    ReleaseBeforeCommit,
    /// The sender hears "durable" when the handler returns.
    DurableBeforeCommit,
    /// Nothing is recognised as a duplicate.
    NoDuplicateCheck,
    /// Messages are forgotten as soon as another one is handled.
    ForgetEarly,
    /// Nothing is forgotten.
    NothingForgotten,
    /// A retry of a handled message is not answered again.
    RetryUnanswered,
    /// A new primary does not resend what its predecessor may not have sent.
    OutboxDropped,
    /// Entries leave the outbox before their outputs are durable.
    OutboxTrimmedEarly,
    /// Backups hear that everything is durable downstream.
    ReleasedTooFar,
    /// A snapshot lacks the messages that were handled and released.
    SnapshotWithoutHandled,
    /// A snapshot lacks the dead letters.
    SnapshotWithoutLetters,
    /// A snapshot lacks the collections.
    SnapshotWithoutState,
    /// A backup counts as complete when its stream begins.
    SyncedAtOnce,
    /// A backup remembers entries and does not apply their writes.
    BackupAppliesNothing,
    /// A stateless service's handler reads the clock of its node.
    OwnClock,
    /// A backup applies writes and does not remember what was handled.
    BackupRemembersNothing,
    /// A primary commits before its own disk has the entry.
    JournalNotAwaited,
    /// A backup gives up entries that its primary did not find on its disk.
    AheadIgnored,
    /// A backup acknowledges before its disk has the entry.
    AckBeforeDisk,
    /// Shards that are made of others forget what those handled.
    ReshardedWithoutHandled,
    /// Shards of a stateless service that are made of others remember what those had not sent for good.
    UnsentForHandled,
    /// The journal is cut off before a checkpoint replaces it.
    JournalTrimmedEarly,
    /// The entry that handles a timer's request does not remove the timer.
    TimerFiresTwice,
    /// A timer that repeats gets its next time at the primary alone: the entry does not say that it fired.
    RepeatSetWithoutEntry,
    /// A snapshot lacks the timers.
    TimersLostOnFailover,
    /// An outbound request is made before its entry is committed.
    AskedBeforeCommit,
    /// An outbound request is made once only.
    AskedOnce,
    /// The entry that handles an answer does not remove the outbound request.
    AnswerHandledTwice,
    /// A publication is made before its entry is committed.
    PublishedBeforeCommit,
    /// The confirmation of one subscriber counts for all.
    ConfirmedByOne,
    /// A primary answers calls without leases.
    CallWithoutLease,
    /// The answer to a call leaves before what its handler read is committed.
    CallOfUncommitted,
    /// A backup of an application lacks the outputs that are not confirmed at the cut.
    CutWithoutOutbox,
}
