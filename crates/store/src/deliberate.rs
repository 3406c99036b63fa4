//! Deliberate faults of the store, which the simulator's checks must find.

e3_model::deliberate_faults! {
    /// A damaged record of a journal counts as one that a power cut left unfinished: it and what follows
    /// it are dropped.
    DamageDropped,
    /// What a process reads at the end of a journal counts as durable, also if its sync failed.
    TailTrusted,
}
