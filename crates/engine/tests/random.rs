//! Random bytes of stateless services.

use crate::common::*;
use e3_engine::{InstanceSpec, RandomKey};
use e3_invocation::{Effects, Invocation, Outcome};
use e3_model::{EdgeId, Timestamp, Via};

/// Draws 40 bytes, then 10, and replies with all of them.
const DRAW: &str = r#"
    (drop (call $random (i32.const 0) (i32.const 40)))
    (drop (call $random (i32.const 40) (i32.const 10)))
    (call $reply (i32.const 0) (i32.const 0) (i32.const 50))"#;

#[test]
fn a_second_run_of_a_message_draws_the_same_random_bytes_if_there_is_a_key() {
    let draw = |secret: Option<&str>, change: &dyn Fn(&mut Invocation)| {
        let mut p = Pair::new();
        let random_key = secret.map(|s| RandomKey::derive(s.as_bytes()));
        let spec = InstanceSpec {
            random_key,
            ..spec()
        };
        p.start_with(A, &service(DRAW), spec);
        let mut invocation = request(7, b"payload");
        change(&mut invocation);
        p.engine.submit(A, request(1, b"before")).unwrap();
        p.engine.submit(A, invocation).unwrap();
        p.until_done(2);
        match &p.done[1].1.outcome {
            Outcome::Completed(Effects {
                reply: Some(reply), ..
            }) => reply.payload.clone(),
            other => panic!("{other:?}"),
        }
    };
    let first = draw(Some("secret"), &|_| {});
    assert_eq!(draw(Some("secret"), &|i| i.token = 9), first);
    assert_ne!(first[..10], first[40..], "two draws differ");
    let changes: [&dyn Fn(&mut Invocation); 7] = [
        &|i| i.id.request.client += 1,
        &|i| i.id.request.seq += 1,
        &|i| i.id.via = Via::Edge(EdgeId(0)),
        &|i| i.id.index += 1,
        &|i| i.now = Timestamp(5),
        &|i| i.key.push(b'p'),
        &|i| i.payload.push(0),
    ];
    for (at, change) in changes.iter().enumerate() {
        assert_ne!(draw(Some("secret"), change), first, "change {at}");
    }
    assert_ne!(draw(Some("other"), &|_| {}), first);
    assert_ne!(draw(None, &|_| {}), draw(None, &|_| {}));
}
