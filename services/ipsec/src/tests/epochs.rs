//! Epochs: new where numbers start over, kept where they go on.

use super::*;

/// What an eavesdropper has of a run: SPI, number, IV, and the whole packet.
fn capture(seed: u64, configure: impl Fn(Host) -> Host) -> Vec<Vec<u8>> {
    let out = configure(host("out").seed(seed));
    let mut service = Ipsec::init().unwrap();
    let one = |n: u8| {
        let outcome = call(&out, &mut service, &[n % 5], &packet(100, 1));
        passed(&outcome).to_vec()
    };
    (0..40).map(one).collect()
}

fn ivs<'a>(packets: impl IntoIterator<Item = &'a Vec<u8>>) -> BTreeSet<&'a [u8]> {
    packets.into_iter().map(|esp| &esp[28..44]).collect()
}

/// The secret, the clock and the requests are the same; only the state is gone.
#[test]
fn where_numbers_start_over_keys_are_new() {
    let first = capture(1, |host| host);
    let second = capture(2, |host| host);
    for (a, b) in first.iter().zip(&second) {
        assert_eq!(a[20..28], b[20..28], "the same SPI and number");
        // The same packet: under the same keys it would be the same.
        assert_ne!(a[28..], b[28..]);
    }
    assert_eq!(ivs(first.iter().chain(&second)).len(), 80);
    // Keys that are given stay, but not the IVs.
    let given = |host: Host| {
        host.config("sas", "1")
            .secret("keys", &(0..36).collect::<Vec<u8>>())
    };
    let (first, second) = (capture(1, given), capture(2, given));
    assert_eq!(ivs(first.iter().chain(&second)).len(), 80);
}

/// An instance may vanish between any two requests, and its successor has what was committed.
#[test]
fn the_epoch_goes_with_the_numbers() {
    let out = host("out");
    let mut service = Ipsec::init().unwrap();
    let mut sequence = 0;
    let announced = report(&out, &mut service, b"k");
    for _ in 0..5 {
        service = Ipsec::init().unwrap();
        for _ in 0..3 {
            sequence += 1;
            let outcome = call(&out, &mut service, b"k", &packet(60, 9));
            let opened = open_by_the_letter(passed(&outcome), &announced.0);
            assert_eq!(opened.1, sequence);
        }
        assert_eq!(report(&out, &mut service, b"k"), announced);
    }
    // Instances that were started on other state before: what they know of an SA is not believed.
    let spi = (256 + u32::from(slot_of(b"k"))).to_be_bytes();
    let moved = Sender {
        epoch: [3; 16],
        sequence: 40,
    };
    let sequences = HashMap::open("sequences").unwrap();
    sequences.put(&spi, &moved.to_bytes()).unwrap();
    let outcome = call(&out, &mut service, b"k", &packet(60, 9));
    assert_eq!(open_by_the_letter(passed(&outcome), &[3; 16]).1, 41);
}

#[test]
fn associations_have_epochs_of_their_own() {
    let out = host("out");
    let mut service = Ipsec::init().unwrap();
    let keys: Vec<[u8; 2]> = (0..200u16).map(u16::to_be_bytes).collect();
    let slots: BTreeSet<u16> = keys.iter().map(|key| slot_of(key)).collect();
    let epochs = keys.iter().map(|key| report(&out, &mut service, key).0);
    assert_eq!(epochs.collect::<BTreeSet<_>>().len(), slots.len());
}

#[test]
fn a_receiver_takes_the_epochs_of_the_sender_and_none_twice() {
    let deployment = |seed| {
        let out = host("out").seed(seed);
        let mut service = Ipsec::init().unwrap();
        let outcome = call(&out, &mut service, b"k", &packet(60, 9));
        (passed(&outcome).to_vec(), report(&out, &mut service, b"k"))
    };
    let (old, old_epoch) = deployment(1);
    let (new, new_epoch) = deployment(2);
    let end = host("in");
    let mut service = Ipsec::init().unwrap();
    let (status, text) = refusal(&call(&end, &mut service, b"k", &old));
    assert_eq!(status, status::REFUSED);
    assert!(text.contains("has no epoch yet"), "{text}");
    // An epoch that nobody proves, and one of another association.
    let forged = ([5; 16], old_epoch.1);
    let (status, text) = accept(&end, &mut service, b"k", &forged);
    assert_eq!(status, status::REFUSED);
    assert!(text.contains("the proof does not match"), "{text}");
    assert_eq!(
        accept(&end, &mut service, b"other", &old_epoch).0,
        status::REFUSED
    );
    let fields = [
        ("op", Value::Text("accept")),
        ("epoch", Value::Text("12")),
        ("proof", Value::Text("34")),
    ];
    let (status, text) = said(&ask(&end, &mut service, b"k", &fields));
    assert_eq!(status, status::MALFORMED);
    assert!(text.contains("must be 32 hexadecimal digits"), "{text}");

    assert_eq!(accept(&end, &mut service, b"k", &old_epoch).0, status::OK);
    assert_eq!(passed(&call(&end, &mut service, b"k", &old)), packet(60, 9));
    // Said again it changes nothing: the packet is still a repeat.
    assert_eq!(accept(&end, &mut service, b"k", &old_epoch).0, status::OK);
    assert_eq!(
        refusal(&call(&end, &mut service, b"k", &old)).0,
        status::REFUSED
    );

    assert_eq!(accept(&end, &mut service, b"k", &new_epoch).0, status::OK);
    assert_eq!(passed(&call(&end, &mut service, b"k", &new)), packet(60, 9));
    assert_eq!(
        refusal(&call(&end, &mut service, b"k", &old)).0,
        status::REFUSED
    );
    let before = end.state();
    let (status, text) = accept(&end, &mut service, b"k", &old_epoch);
    assert_eq!(status, status::REFUSED);
    assert!(text.contains("was replaced"), "{text}");
    assert_eq!(end.state(), before);
}
