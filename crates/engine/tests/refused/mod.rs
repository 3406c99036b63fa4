//! Bad input to collections: the code that the service gets, and the reason that its client gets.

use crate::common::{A, Pair};

/// Every call is refused; the handler returns its code.
#[test]
fn each_refusal_names_collection_value_and_bound() {
    let put = |key: u32, value: u32| {
        format!(
            "(call $put (i32.const 0) (i32.const 0) (i32.const {key}) (i32.const 0) (i32.const {value}))"
        )
    };
    let on = |collection: i32| {
        format!(
            "(call $put (i32.const {collection}) (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 1))"
        )
    };
    let put_ttl = |ttl: i64| {
        format!(
            "(call $put_ttl (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 1) (i64.const {ttl}))"
        )
    };
    let open = "(call $collection (i32.const 2000) (i32.const 6))";
    let cases = [
        (
            put(0, 1),
            "collection \"map\": key has 0 bytes, must be 1..=1024; handler returned -2",
        ),
        (
            put(1025, 1),
            "collection \"map\": key has 1025 bytes, must be 1..=1024; handler returned -2",
        ),
        (
            put(1, 32_769),
            "collection \"map\": value has 32769 bytes, must be at most 32768; handler returned -2",
        ),
        (
            format!("(drop {}) {}", put(1, 30_000), put(2, 30_000)),
            "collection \"map\": all writes of a request have 60035 bytes, must be at most 40960; handler returned -2",
        ),
        (
            on(7),
            "collection \"#7\": is not in the manifest; handler returned -1",
        ),
        (
            on(1),
            "collection \"counter\": is of kind counter, which the call does not suit; handler returned -3",
        ),
        (
            put_ttl(0),
            "collection \"map\": time to live is 0, must be more than 0; handler returned -2",
        ),
        (
            put_ttl(-5),
            "collection \"map\": time to live is 0, must be more than 0; handler returned -2",
        ),
        (
            open.into(),
            "collection \"nosuch\": is not in the manifest; handler returned -1",
        ),
        (
            // It cannot tell the handler, which returns 0.
            "(drop (call $counter_add (i32.const 1) (i32.const 0) (i32.const 0) (i64.const 1))) (i32.const 0)"
                .into(),
            "collection \"counter\": key has 0 bytes, must be 1..=1024; handler returned 0",
        ),
    ];
    for (body, expected) in cases {
        let mut p = Pair::new();
        let names = "(i64.store (i32.const 2000) (i64.const 114776381550446))";
        let state = p.start(A, &format!("{names} {body}"));
        assert_eq!(p.failure(A, b"x").to_string(), expected);
        assert!(state.borrow().is_empty(), "{expected}");
    }
}

/// A service that expects a refusal and goes on is not failed for it, and a later failure of another
/// request does not show it.
#[test]
fn a_refusal_that_the_handler_accepts_is_none() {
    let mut p = Pair::new();
    p.start(
        A,
        "(drop (call $put (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1)))
         (drop (call $reply (i32.const 0) (i32.const 1024) (local.get $len))) (i32.const 0)",
    );
    assert_eq!(p.reply(A, b"x"), b"x");
}

#[test]
fn too_many_writes_are_refused() {
    let mut p = Pair::new();
    let state = p.start(
        A,
        "(local $n i32)
         (loop $again
           (drop (call $delete (i32.const 0) (i32.const 0) (i32.const 1)))
           (drop (call $put (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 0)))
           (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 5000))))
         (call $put (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 0))",
    );
    let reason = p.failure(A, b"x").to_string();
    assert!(
        reason.starts_with("collection \"map\": a request has more than 4096 writes"),
        "{reason}"
    );
    assert!(state.borrow().is_empty());
}
