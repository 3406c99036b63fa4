//! Services as plain functions: what the executor does in place of WebAssembly.

use e3_collections::{State, Txn};
use e3_invocation::{
    Completion, Effects, Failed, HandlerError, Invocation, Outcome, Output, Reply,
};
use e3_model::Nanos;

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
    pub fn handle(self, invocation: Invocation, state: &mut State) -> Completion {
        let token = invocation.token;
        let outcome = match self {
            Service::Chain { channels } => {
                Outcome::Completed(count_and_forward(channels, &invocation, state))
            }
            Service::Failing => {
                let error = HandlerError::Code(1);
                Outcome::Failed(Box::new(Failed { error, invocation }))
            }
        };
        Completion {
            token,
            outcome,
            busy: self.service_time(),
        }
    }

    /// Simulated service time.
    pub fn service_time(self) -> Nanos {
        Nanos::from_micros(5)
    }
}

/// Counts the request, sends the message along the channels, replies if there are none.
fn count_and_forward(channels: u16, invocation: &Invocation, state: &mut State) -> Effects {
    let request = invocation.request;
    let id = [request.client.to_le_bytes(), request.seq.to_le_bytes()].concat();
    let mut txn = Txn::new();
    txn.begin(invocation.slot.0);
    let before = txn
        .counter_add(state, 0, &id, 1)
        .expect("collection 0 is a counter");
    let writes = txn.finish();
    state.apply(&writes).expect("made against this state");
    let output = |channel| Output {
        channel,
        key: invocation.key.clone(),
        payload: invocation.payload.clone(),
    };
    let reply = (channels == 0).then(|| Reply {
        status: 0,
        payload: (before + 1).to_le_bytes().to_vec(),
    });
    Effects {
        writes,
        outputs: (0..channels).map(output).collect(),
        reply,
    }
}
