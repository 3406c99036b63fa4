//! Another value of the secret: the receiver accepts what was made with the value before, until that is retired.

use super::*;

const NEXT: &[u8] = b"another secret of thirty-two byte";

/// An instance at one end, as the host is now.
fn start(host: Host, direction: &str) -> (Host, Ipsec) {
    let host = host.config("direction", direction);
    (host, Ipsec::init().unwrap())
}

fn rotate(host: Host) -> Host {
    host.secret("master", NEXT)
        .secret("master@previous", MASTER)
}

/// A value that is no secret stands for none.
fn retire(host: Host) -> Host {
    host.secret("master@previous", b"")
}

fn seal(host: &Host, service: &mut Ipsec, fill: u8) -> Vec<u8> {
    passed(&call(host, service, b"k", &packet(60, fill))).to_vec()
}

#[test]
fn packets_under_the_value_before_are_opened_until_it_is_retired() {
    let (host, mut sender) = start(host("out"), "out");
    let old: Vec<_> = (0..3).map(|n| seal(&host, &mut sender, n)).collect();
    let epoch = report(&host, &mut sender, b"k");
    let (host, mut receiver) = start(host, "in");
    assert_eq!(accept(&host, &mut receiver, b"k", &epoch).0, status::OK);
    // The sender has the new value before the receiver has.
    let (host, mut sender) = start(rotate(host), "out");
    let new: Vec<_> = (3..6).map(|n| seal(&host, &mut sender, n)).collect();
    let wrong = (status::REFUSED, esp::EspError::Tag.to_string());
    assert_eq!(refusal(&call(&host, &mut receiver, b"k", &new[0])), wrong);
    let (host, mut receiver) = start(host, "in");
    for (sealed, fill) in [(&old[0], 0), (&new[0], 3), (&old[1], 1), (&new[1], 4)] {
        let outcome = call(&host, &mut receiver, b"k", sealed);
        assert_eq!(passed(&outcome), packet(60, fill));
        // Once, under whichever value it was made.
        let (_, why) = refusal(&call(&host, &mut receiver, b"k", sealed));
        assert!(why.contains("is repeated"), "{why}");
    }
    let mut forged = old[2].clone();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(refusal(&call(&host, &mut receiver, b"k", &forged)), wrong);
    let (host, mut receiver) = start(retire(host), "in");
    assert_eq!(refusal(&call(&host, &mut receiver, b"k", &old[2])), wrong);
    assert_eq!(
        passed(&call(&host, &mut receiver, b"k", &new[2])),
        packet(60, 5)
    );
}

#[test]
fn a_proof_under_the_value_before_is_accepted_until_it_is_retired() {
    let (host, mut sender) = start(host("out"), "out");
    let (first, second) = (
        report(&host, &mut sender, b"k"),
        report(&host, &mut sender, b"other"),
    );
    let (host, mut receiver) = start(rotate(host), "in");
    assert_eq!(accept(&host, &mut receiver, b"k", &first).0, status::OK);
    let (host, mut receiver) = start(retire(host), "in");
    let (refused, why) = accept(&host, &mut receiver, b"other", &second);
    assert_eq!(refused, status::REFUSED);
    assert!(why.contains("the proof does not match"), "{why}");
    let (host, mut sender) = start(host, "out");
    let again = report(&host, &mut sender, b"other");
    assert_eq!(again.0, second.0, "the epoch goes on");
    let (host, mut receiver) = start(host, "in");
    assert_eq!(accept(&host, &mut receiver, b"other", &again).0, status::OK);
}

#[test]
fn configured_keys_are_accepted_in_the_same_way() {
    let keys = |of: u8| [of; 36];
    let given = host("out").config("sas", "1").secret("keys", &keys(1));
    let (host, mut sender) = start(given, "out");
    let old = seal(&host, &mut sender, 1);
    let rotated = host
        .secret("keys", &keys(2))
        .secret("keys@previous", &keys(1));
    let (host, mut sender) = start(rotated, "out");
    let new = seal(&host, &mut sender, 2);
    let (host, mut receiver) = start(host, "in");
    for (sealed, fill) in [(&old, 1), (&new, 2)] {
        let outcome = call(&host, &mut receiver, b"k", sealed);
        assert_eq!(passed(&outcome), packet(60, fill));
    }
    // A value that never was one keeps no instance from starting.
    let (host, mut receiver) = start(host.secret("keys@previous", b"short"), "in");
    assert!(receiver.previous.is_none());
    assert_eq!(call(&host, &mut receiver, b"k", &old).replies.len(), 1);
}
