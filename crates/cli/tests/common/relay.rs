//! A relay between a client and a node that flips bits of what passes.

use e3_random::Random;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Flips up to eight bits.
pub fn flip_bits(random: &mut Random, bytes: &mut [u8]) {
    // Different ones, so that none is flipped back.
    let bits = bytes.len() as u64 * 8;
    let first = random.below(bits);
    for n in 0..=random.below(8) {
        let at = ((first + n * 13) % bits) as usize;
        bytes[at / 8] ^= 1 << (at % 8);
    }
}

/// Relays of all nodes; gone when dropped.
pub struct Relays {
    /// Where clients send, by node.
    pub addresses: Vec<SocketAddr>,
    /// Datagrams damaged.
    pub damaged: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

fn socket() -> Arc<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    Arc::new(socket)
}

impl Relays {
    /// Starts a relay for each node, which damages one datagram in `one_in`, in both directions.
    pub fn start(nodes: &[SocketAddr], one_in: u64, seed: u64) -> Relays {
        let damaged = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (mut addresses, mut threads) = (Vec::new(), Vec::new());
        for (n, node) in nodes.iter().copied().enumerate() {
            let (front, back) = (socket(), socket());
            addresses.push(front.local_addr().unwrap());
            let client = Arc::new(Mutex::new(None));
            for out in [true, false] {
                let (from, to) = if out {
                    (front.clone(), back.clone())
                } else {
                    (back.clone(), front.clone())
                };
                let (client, stop, damaged) = (client.clone(), stop.clone(), damaged.clone());
                let mut random = Random::new(seed + n as u64 * 2 + u64::from(out));
                let forward = move || {
                    let mut buffer = vec![0; 1 << 16];
                    while !stop.load(Ordering::Relaxed) {
                        let (len, sender) = match from.recv_from(&mut buffer) {
                            Ok(received) => received,
                            Err(e) if e.kind() == ErrorKind::WouldBlock => continue,
                            Err(e) => panic!("relay: {e}"),
                        };
                        let to_address = if out {
                            *client.lock().unwrap() = Some(sender);
                            Some(node)
                        } else {
                            *client.lock().unwrap()
                        };
                        if random.one_in(one_in) {
                            flip_bits(&mut random, &mut buffer[..len]);
                            damaged.fetch_add(1, Ordering::Relaxed);
                        }
                        if let Some(address) = to_address {
                            to.send_to(&buffer[..len], address).unwrap();
                        }
                    }
                };
                threads.push(std::thread::spawn(forward));
            }
        }
        Relays {
            addresses,
            damaged,
            stop,
            threads,
        }
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic there has failed the test by its missing answers already.
            let _ = thread.join();
        }
    }
}
