//! Deliberate faults: each leaves out one protection, and the simulator's checks must find it.

/// Defines the deliberate faults of a crate: the enum `Fault`, the check `is` and, with the crate's
/// feature `deliberate-faults`, `Fault::ALL` and `choose`. Without the feature, as in the product, `is`
/// is always false.
#[macro_export]
macro_rules! deliberate_faults {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// A protection that is left out.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Fault {
            $($(#[$doc])+ $name,)+
        }

        #[cfg(feature = "deliberate-faults")]
        impl Fault {
            /// Every fault.
            pub const ALL: &[Fault] = &[$(Fault::$name),+];
        }

        #[cfg(feature = "deliberate-faults")]
        thread_local! {
            static CHOSEN: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
        }

        /// Sets the fault of this thread, or clears it.
        #[cfg(feature = "deliberate-faults")]
        pub fn choose(fault: Option<Fault>) {
            CHOSEN.set(fault);
        }

        /// Whether this thread has chosen the fault.
        #[cfg(feature = "deliberate-faults")]
        pub(crate) fn is(fault: Fault) -> bool {
            CHOSEN.get() == Some(fault)
        }

        /// Whether the fault is chosen: never without the feature `deliberate-faults`.
        #[cfg(not(feature = "deliberate-faults"))]
        pub(crate) const fn is(_: Fault) -> bool {
            false
        }
    };
}
