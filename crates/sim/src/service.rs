//! Services as plain functions: what the executor does in place of WebAssembly.

use e3_collections::{State, Txn};
use e3_dataplane::{Execute, ExecuteOutcome};
use e3_model::Nanos;

/// A message that a service sends: channel, key, payload.
pub type Sent = (u16, Vec<u8>, Vec<u8>);

/// A service of the simulated applications.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// Counts its request ids in the counter collection 0, then sends the message on along channel
    /// 0; without channels it replies with the count after.
    Chain {
        /// Outgoing channels.
        channels: u16,
    },
    /// Fails every attempt.
    Failing,
}

impl Service {
    /// Runs the handler; its writes are applied to the state.
    pub fn handle(self, q: &Execute, state: &mut State) -> ExecuteOutcome {
        let Service::Chain { channels } = self else {
            return ExecuteOutcome::Failed("always fails".into());
        };
        let mut txn = Txn::new();
        txn.begin(q.slot.0);
        let id = [q.request.client.to_le_bytes(), q.request.seq.to_le_bytes()].concat();
        let before = txn
            .counter_add(state, 0, &id, 1)
            .expect("collection 0 is a counter");
        let batch = txn.finish();
        state.apply(&batch).expect("made against this state");
        let mut outputs: Vec<Sent> = Vec::new();
        for channel in 0..channels {
            outputs.push((channel, q.message_key.clone(), q.payload.clone()));
        }
        let reply = (channels == 0).then(|| (0, (before + 1).to_le_bytes().to_vec()));
        ExecuteOutcome::Done {
            batch: batch.as_bytes().to_vec(),
            outputs,
            reply,
        }
    }

    /// Simulated service time.
    pub fn service_time(self) -> Nanos {
        Nanos::from_micros(5)
    }
}
