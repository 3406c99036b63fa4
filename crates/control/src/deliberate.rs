//! Deliberate faults of the controller's decisions: what the simulator's checks must notice. They
//! exist only with the feature `deliberate-faults`; in the product [`is`] is constant.

/// One protection that is left out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
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
    /// What a node says of an older view counts.
    OldEventsCount,
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
        pub const ALL: [Fault; 6] = [
            Fault::JoiningTakesOver,
            Fault::IncarnationKept,
            Fault::FencedAtFailover,
            Fault::FreezeSkipped,
            Fault::BackupNotReplaced,
            Fault::OldEventsCount,
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
