//! Small requests with random keys, for applications that have no workload of their own. Their
//! state is not read back.

use e3_loadgen::workload::{Call, Judged, Workload};
use e3_random::Random;
use e3_wire::entry::Reply;

/// Bytes of a request.
const PAYLOAD_LEN: usize = 64;

/// Requests of 64 bytes.
#[derive(Debug)]
pub struct Plain {
    random: Random,
}

impl Plain {
    /// The requests of a seed.
    pub fn new(seed: u64) -> Plain {
        Plain {
            random: Random::new(seed),
        }
    }

    fn call(&mut self) -> Call {
        let mut payload = Vec::with_capacity(PAYLOAD_LEN);
        while payload.len() < PAYLOAD_LEN {
            payload.extend_from_slice(&self.random.next_u64().to_le_bytes());
        }
        Call {
            tag: 0,
            key: payload[..8].to_vec(),
            payload,
        }
    }
}

impl Workload for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }

    fn describe(&self) -> String {
        format!("requests of {PAYLOAD_LEN} bytes with random keys")
    }

    fn probe(&mut self) -> Call {
        self.call()
    }

    fn on_probe(&mut self, _: &Reply) -> Result<(), String> {
        Ok(())
    }

    fn next(&mut self) -> Option<Call> {
        Some(self.call())
    }

    fn on_outcome(&mut self, _: u64, reply: Option<&Reply>) -> Judged {
        Judged::by_status(reply)
    }
}
