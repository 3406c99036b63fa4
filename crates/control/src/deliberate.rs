//! Deliberate faults of the controller's decisions, which the simulator's checks must find.

e3_model::deliberate_faults! {
    /// A copy that is not complete takes over.
    JoiningTakesOver,
    /// A shard keeps its incarnation when another primary takes over.
    IncarnationKept,
    /// The successor of a lost primary counts as confirmed.
    FencedAtFailover,
    /// A move does not wait until the old primary has stopped.
    FreezeSkipped,
    /// A lost backup is not replaced.
    BackupNotReplaced,
    /// Decisions are made from a log that is older than what nodes have applied.
    OlderLogTrusted,
    /// A node whose journal is damaged joins though nobody else has a complete copy of what was in it.
    DamagedCopyDropped,
    /// A copy leaves at once, whether or not anybody acts without it.
    CopyGivenUp,
    /// Placement ignores that a node is cordoned.
    CordonIgnored,
    /// A node is removed with what is on it.
    RemovedInUse,
}
