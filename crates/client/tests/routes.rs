//! Where a client sends its requests while the nodes of an application change.

use e3_client::Client;
use e3_model::api::EndpointsView;
use e3_model::{Format, Formats, Nanos};
use e3_wire::client::{ClientFrame, Request};
use e3_wire::datagram::open;
use e3_wire::entry::{Outcome, Reply};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

const TIMEOUT: Nanos = Nanos::from_secs(10);
/// The client asks for routes each 200 ms at most: it has them within a few requests.
const REQUESTS_MAX: usize = 10;

/// The shard of the application is at `shard`; the nodes are listed in this order.
fn endpoints(shard: SocketAddr, nodes: [SocketAddr; 2]) -> EndpointsView {
    EndpointsView {
        app: 1,
        shards: vec![shard.to_string()],
        nodes: nodes.map(|node| node.to_string()).to_vec(),
        urls: vec![],
    }
}

/// Answers every request at once with the number of its attempt.
fn serve(node: &UdpSocket) {
    let mut buffer = [0; 1 << 16];
    while let Ok((len, client)) = node.recv_from(&mut buffer) {
        let (_, mut frames) = open(Formats::PROGRAM, &buffer[..len]).unwrap();
        while !frames.is_empty() {
            let Ok(ClientFrame::Request(Request { id, attempt, .. })) =
                ClientFrame::decode(&mut frames)
            else {
                panic!("a client sends requests");
            };
            let reply = Reply {
                outcome: Outcome::Done,
                status: 0,
                payload: attempt.to_le_bytes().to_vec(),
            };
            let frame = ClientFrame::Reply { id, attempt, reply };
            node.send_to(&frame.to_datagram(Format::NEWEST), client)
                .unwrap();
        }
    }
}

#[test]
fn requests_leave_a_node_that_is_gone_although_every_retry_is_answered_at_once() {
    let [gone, serving] = [(), ()].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let nodes = [&gone, &serving].map(|node| node.local_addr().unwrap());
    let [old, new] = [0, 1].map(|at| endpoints(nodes[at], nodes));
    serving
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    std::thread::spawn(move || serve(&serving));
    let refresh = Box::new(move || Some(new.clone()));
    let mut client = Client::new(&old, Some(refresh)).unwrap();
    let mut attempts = (0..REQUESTS_MAX).map(|_| {
        let reply = client.call(b"k", b"p", TIMEOUT).unwrap().reply.unwrap();
        u16::from_le_bytes(reply.payload.try_into().unwrap())
    });
    assert_ne!(attempts.next(), Some(0), "the node that is gone answered");
    assert!(
        attempts.any(|attempt| attempt == 0),
        "{REQUESTS_MAX} requests went to the node that is gone first"
    );
}
