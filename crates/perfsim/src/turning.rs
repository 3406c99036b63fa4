//! The simulator runs the [turns](crate::turns) of measured nodes.

use crate::simulator::Simulator;
use crate::turns::Place;

impl Simulator {
    /// A message has come to a thread; false if its loop sleeps, or there are no turns.
    pub(crate) fn wait_for_turn(&mut self, at: usize, id: u32) -> bool {
        let Some(turn) = self.threads.turns.get_mut(at) else {
            return false;
        };
        match turn.on_message(id, &mut self.messages) {
            Place::None => return false,
            Place::Queue => self.threads.push(at, id, &mut self.messages),
            Place::Arrived => {}
        }
        self.threads.note_waiting(at);
        true
    }

    /// A thread has run a message; false if there are no turns.
    pub(crate) fn on_turn_done(&mut self, at: usize, id: u32) -> bool {
        let now = self.now;
        let Some(turn) = self.threads.turns.get_mut(at) else {
            return false;
        };
        if !turn.on_done(id, now, self.model.turn_max_ns()) {
            for id in turn.end() {
                self.handled(id);
            }
            let arrived = self.threads.turns[at].take_in(now, &self.messages);
            for id in arrived {
                self.threads.push(at, id, &mut self.messages);
            }
        }
        if self.threads.turns[at].next() {
            self.start_next(at);
        }
        true
    }
}
