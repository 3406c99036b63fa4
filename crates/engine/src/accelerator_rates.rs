//! How fast the accelerators are on this machine.

use crate::accelerators::{Accel, crc32};
use e3_model::{Accelerator, Accelerators};
use std::time::{Duration, Instant};

/// Bytes of a call: a full packet, in whole blocks of AES.
const CALL_LEN: usize = 1504;
/// Calls between two looks at the clock.
const CALLS: usize = 64;
/// Number of rounds. The best one counts, because it was disturbed least.
const ROUNDS: usize = 5;
/// What an intrusion detection set may look like.
const PATTERNS: [&[u8]; 4] = [
    b"cmd.exe",
    b"/etc/passwd",
    b"\x90\x90\x90\x90",
    b"union select",
];

/// By accelerator of the set: bytes per second on one core, 1,504 a call; takes a few milliseconds.
/// Encryption for ciphers, a text without occurrences for match.
pub fn accelerator_rates(of: Accelerators) -> Vec<(Accelerator, f64)> {
    of.iter().map(|a| (a, rate(a))).collect()
}

fn rate(accelerator: Accelerator) -> f64 {
    let mut accel = Accel::default();
    let mut data = [b'e'; CALL_LEN];
    let (kind, key_len) = match accelerator {
        Accelerator::AesCbc => (1, 16),
        Accelerator::AesGcm => (2, 16),
        Accelerator::HmacSha1 => (3, 20),
        Accelerator::HmacSha256 => (4, 32),
        Accelerator::Crc32 | Accelerator::Match => (0, 0),
    };
    let handle = match accelerator {
        Accelerator::Match => accel.match_set(Accelerators::ALL, &packed()),
        _ => accel.key(Accelerators::ALL, kind, &[7; 32][..key_len]),
    };
    let mut call = || match accelerator {
        Accelerator::AesCbc => accel.cbc(handle, &[1; 16], &mut data, true) == 0,
        Accelerator::AesGcm => accel.gcm_seal(handle, &[1; 12], &[], &mut data).is_ok(),
        Accelerator::HmacSha1 | Accelerator::HmacSha256 => {
            accel.hmac(handle, &data, &mut [0; 32]).is_ok()
        }
        Accelerator::Crc32 => crc32(Accelerators::ALL, 0, std::hint::black_box(&data)) >= 0,
        Accelerator::Match => accel.match_find(handle, &data).is_ok(),
    };
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let done = (0..CALLS).filter(|_| std::hint::black_box(call())).count();
        assert_eq!(done, CALLS, "{accelerator} works on its own data");
        best = best.min(begin.elapsed());
    }
    (CALLS * CALL_LEN) as f64 / best.as_secs_f64().max(1e-9)
}

fn packed() -> Vec<u8> {
    let one = |p: &&[u8]| [&[0; 4], &(p.len() as u32).to_le_bytes()[..], p].concat();
    PATTERNS.iter().flat_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_accelerator_of_the_set_has_a_rate() {
        let all = accelerator_rates(Accelerators::ALL);
        assert_eq!(all.len(), Accelerator::ALL.len());
        assert!(all.iter().all(|(_, rate)| rate.is_finite() && *rate > 0.0));
        assert_eq!(accelerator_rates(Accelerators::NONE), []);
    }
}
