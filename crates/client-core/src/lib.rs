//! The client's side of the protocol, without I/O.
//!
//! [`Requests`] gives each request an identity, retries it with backoff until its deadline, reports to
//! the nodes which replies it has (so that they can forget them), and recognises duplicate replies.
//! It owns no socket and no clock: a driver passes the time and the datagrams that arrive, and sends
//! the datagrams that [`Requests::poll_transmit`] returns. So the UDP client (crate `e3-client`), the
//! load generator and the simulator run the same code. The shape is that of quinn-proto.
//!
//! ```
//! use e3_client_core::{Call, Event, Requests, Routes};
//! use e3_model::{Address, AppId, Format, Nanos, RequestId, Timestamp};
//! use e3_wire::client::ClientFrame;
//! use e3_wire::entry::{Outcome, Reply};
//!
//! let node = Address { port: 7000, ..Address::default() };
//! let routes = Routes { app: AppId(1), nodes: vec![node], ..Routes::default() };
//! let mut requests = Requests::new(42, routes);
//!
//! let now = Timestamp(0);
//! let call = Call { tag: 7, key: b"alice".to_vec(), payload: b"hello".to_vec() };
//! let seq = requests.submit(now, now, now + Nanos::from_secs(5), call);
//! let (to, _datagram) = requests.poll_transmit().unwrap();
//! assert_eq!(to, node);
//!
//! // the datagram is lost: after half a second the request is sent again
//! let retry_at = requests.next_deadline().unwrap();
//! requests.on_timer(retry_at);
//! assert!(requests.poll_transmit().is_some());
//!
//! // the node replies
//! let id = RequestId { client: 42, seq };
//! let reply = Reply { outcome: Outcome::Done, status: 0, payload: b"hi".to_vec() };
//! let datagram = ClientFrame::Reply { id, attempt: 1, reply }.to_datagram(Format::NEWEST);
//! requests.on_datagram(retry_at, &datagram);
//! let Some(Event::Completed(completed)) = requests.poll_event() else { panic!() };
//! assert_eq!((completed.tag, completed.attempts), (7, 2));
//! assert_eq!(completed.reply.unwrap().payload, b"hi");
//! ```

mod backoff;
mod events;
mod keyed;
pub mod limits;
mod operation;
mod outbox;
mod reply_time;
mod requests;
mod routes;

pub use backoff::Backoff;
pub use events::{Completed, DeadLetterPage, Duplicate, Event};
pub use operation::Call;
pub use requests::{Requests, is_refusal};
pub use routes::Routes;
