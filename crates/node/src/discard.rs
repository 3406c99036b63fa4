//! Frees the collections of replicas that have left, on a thread: with many entries that takes tens of
//! milliseconds, for which the loop would answer nobody.

use e3_collections::State;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::{self, Sender};
use std::thread;

/// The thread, which ends when this is dropped.
pub(crate) struct Discarder {
    states: Sender<State>,
}

impl Discarder {
    pub(crate) fn start() -> Discarder {
        let (states, taken) = mpsc::channel();
        thread::spawn(move || taken.iter().for_each(drop::<State>));
        Discarder { states }
    }

    /// Frees collections, unless something still uses them: then its end frees them.
    pub(crate) fn discard(&self, state: Rc<RefCell<State>>) {
        if let Ok(state) = Rc::try_unwrap(state) {
            let _ = self.states.send(state.into_inner());
        }
    }
}
