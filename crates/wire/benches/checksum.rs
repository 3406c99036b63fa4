//! Time to make and to check the checksum of a datagram: `cargo bench -p e3-wire`.

use e3_model::{Format, Formats};
use e3_wire::datagram::{HEADER_LEN, Header, open, seal};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: u32 = 200_000;

#[expect(clippy::disallowed_methods, reason = "a benchmark looks at the clock")]
fn main() {
    for len in [64, 1_400, 32 * 1024] {
        let mut datagram = Vec::new();
        Header::CLIENT.encode(&mut datagram);
        datagram.extend((HEADER_LEN..len).map(|i| i as u8));
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            seal(Format::NEWEST, black_box(&mut datagram));
        }
        let sealed = begin.elapsed() / ROUNDS;
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            black_box(open(Formats::PROGRAM, black_box(&datagram))).expect("just sealed");
        }
        let opened = begin.elapsed() / ROUNDS;
        println!(
            "{len} bytes: {} ns to make, {} ns to check",
            sealed.as_nanos(),
            opened.as_nanos()
        );
    }
}
