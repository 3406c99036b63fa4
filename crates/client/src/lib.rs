//! A client of E3 applications over UDP, for programs, the load generator and `e3`.
//!
//! A request takes effect exactly once: it has an identity, is retried with backoff at other nodes
//! until its deadline, and its reply is recognised whichever attempt it answers. A program asks the
//! controller where an application is (`GET /v1/apps/NAME/endpoints`), makes a [`Client`] from the
//! answer, and calls:
//!
//! ```
//! use e3_client::Client;
//! use e3_model::Nanos;
//! # use e3_model::{Format, Formats};
//! # use e3_wire::client::ClientFrame;
//! # use e3_wire::datagram::open;
//! # use e3_wire::entry::{Outcome, Reply};
//! # let node = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! # let address = node.local_addr()?;
//! # std::thread::spawn(move || {
//! #     let mut buffer = [0; 1 << 16];
//! #     let (len, client) = node.recv_from(&mut buffer).unwrap();
//! #     let (_, mut frames) = open(Formats::PROGRAM, &buffer[..len]).unwrap();
//! #     let Ok(ClientFrame::Request(q)) = ClientFrame::decode(&mut frames) else { panic!() };
//! #     let reply = Reply { outcome: Outcome::Done, status: 0, payload: q.payload };
//! #     let frame = ClientFrame::Reply { id: q.id, attempt: q.attempt, reply };
//! #     node.send_to(&frame.to_datagram(Format::NEWEST), client).unwrap();
//! # });
//! # let body = format!(r#"{{"app": 1, "shards": [], "nodes": ["{address}"]}}"#);
//! let endpoints = serde_json::from_str(&body)?;
//! let mut client = Client::new(&endpoints, None)?;
//! let completed = client.call(b"alice", b"hello", Nanos::from_secs(5))?;
//! let reply = completed.reply.expect("a node replies before the deadline");
//! assert_eq!(reply.payload, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Many requests can be in flight at once: [`Client::requests`] takes them and returns their
//! outcomes, and [`Client::turn`] sends and receives. The protocol itself, without I/O, is the crate
//! `e3-client-core`. [`DeadLetterClient`] reads and replays dead letters.

mod dead_letters;
mod error;
pub mod limits;
mod socket;
mod udp;

pub use dead_letters::{DeadLetterClient, Route};
pub use e3_client_core::{Call, Completed, Duplicate, Event, Requests, Routes, is_refusal};
pub use error::ClientError;
pub use socket::unique;
pub use udp::{Client, Refresh};
