//! Random bytes of a stateless service: a function of the message, its content and the handler's clock.
//!
//! If a process is lost, its messages are handled again elsewhere. The second run draws what the first
//! drew, so it sends the same messages to the same shards, which recognise them. The content is part of
//! the function, so that no two plaintexts are ever encrypted with one nonce.

use crate::spec::RandomKey;
use e3_invocation::Invocation;
use e3_model::Via;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// HMAC-SHA-256 in counter mode.
pub(crate) struct Drawn {
    /// Under the key of this run.
    blocks: Hmac<Sha256>,
    next: u64,
}

impl Drawn {
    /// `instance`: `app/service/shard`. The shard does not count: the same message may be handled again in another one
    /// when the number of shards has changed.
    pub(crate) fn new(key: &RandomKey, instance: &str, invocation: &Invocation) -> Drawn {
        let service = instance
            .rsplit_once('/')
            .map_or(instance, |(service, _)| service);
        let mut run = hmac(&key.0);
        run.update(service.as_bytes());
        run.update(&[0]);
        let id = &invocation.id;
        let via = match id.via {
            Via::Ingress => u32::MAX,
            Via::Timer => u32::MAX - 1,
            Via::Edge(edge) => edge.0.into(),
        };
        for number in [id.request.client, id.request.seq, invocation.now.0] {
            run.update(&number.to_le_bytes());
        }
        for number in [via, id.index, invocation.key.len() as u32] {
            run.update(&number.to_le_bytes());
        }
        run.update(&invocation.key);
        run.update(&invocation.payload);
        Drawn {
            blocks: hmac(&run.finalize().into_bytes()),
            next: 0,
        }
    }

    /// The next bytes.
    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(32) {
            let mut block = self.blocks.clone();
            block.update(&self.next.to_le_bytes());
            self.next += 1;
            chunk.copy_from_slice(&block.finalize().into_bytes()[..chunk.len()]);
        }
    }
}

/// HMAC-SHA-256 under a key.
pub(crate) fn hmac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("any length will do")
}
