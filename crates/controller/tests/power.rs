//! Power caps over the API: who may set them, what is refused, and that they survive a kill.

use crate::common::{APP, Controller, NODES, free_port};
use e3_model::PowerDomain;
use e3_model::api::{ErrorView, PowerView};
use e3_model::event::{Event, EventKind};
use serde_json::json;

fn server() -> PowerDomain {
    PowerDomain::Server("s1".into())
}

fn cap_w(c: &Controller) -> Option<u32> {
    let views: Vec<PowerView> = c.view("/v1/power");
    views
        .into_iter()
        .find(|v| v.domain == server())
        .unwrap()
        .cap_w
}

#[test]
fn a_cap_is_set_survives_a_kill_and_is_removed() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let c = Controller::start(tmp.path(), address);
    assert_eq!(cap_w(&c), None);
    let (status, body) = c.post(
        "/v1/power",
        &json!({"domain": {"server": "s1"}, "capW": 300}),
    );
    assert_eq!(status, 200, "{body}");
    drop(c);
    let c = Controller::start(tmp.path(), address);
    assert_eq!(cap_w(&c), Some(300));
    let events: Vec<Event> = c.view("/v1/events");
    assert!(events.iter().any(|e| e.kind == EventKind::PowerCapSet));
    let (status, body) = c.post("/v1/power", &json!({"domain": {"server": "s1"}}));
    assert_eq!(status, 200, "{body}");
    assert_eq!(cap_w(&c), None);
}

#[test]
fn a_cap_that_cannot_be_kept_or_names_nothing_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let c = Controller::start(tmp.path(), free_port());
    let idle: Vec<PowerView> = c.view("/v1/power");
    let idle_w = idle.iter().find(|v| v.domain == server()).unwrap().idle_w;
    let below = idle_w as u32 - 1;
    for (body, named) in [
        (
            json!({"domain": {"server": "s1"}, "capW": below}),
            format!("{idle_w:.0} W"),
        ),
        (
            json!({"domain": {"server": "s9"}, "capW": 300}),
            "s9".into(),
        ),
        (json!({"domain": {"rack": "s1"}, "capW": 300}), "s1".into()),
        (json!({"domain": {"server": "s1"}, "capW": 0}), "0".into()),
        (
            json!({"domain": {"server": "s1"}, "capW": 4_000_000_000_u32}),
            "4000000000".into(),
        ),
        (
            json!({"domain": {"room": "s1"}, "capW": 300}),
            "room".into(),
        ),
        (
            json!({"domain": {"server": "s1"}, "capW": -1}),
            "capW".into(),
        ),
    ] {
        let (status, answer) = c.post("/v1/power", &body);
        assert!((400..500).contains(&status), "{body}: {status} {answer}");
        let error: ErrorView = serde_json::from_str(&answer).unwrap();
        assert!(error.error.contains(&named), "{body}: {}", error.error);
    }
    assert_eq!(cap_w(&c), None);
    let viewer = c.create_token("viewer", "read");
    let body = json!({"domain": {"server": "s1"}, "capW": 300}).to_string();
    let refused = c.send("post", "/v1/power", Some(&viewer), body.as_bytes());
    assert_eq!(refused.status, 403);
    assert_eq!(cap_w(&c), None);
}

#[test]
fn a_deployment_that_the_caps_leave_no_room_for_says_so() {
    let tmp = tempfile::tempdir().unwrap();
    let c = Controller::start(tmp.path(), free_port());
    for name in NODES {
        c.join(name, 1);
    }
    let views: Vec<PowerView> = c.view("/v1/power");
    for view in views {
        if let PowerDomain::Server(name) = &view.domain {
            let cap_w = view.idle_w.ceil() as u32;
            let body = json!({"domain": {"server": name}, "capW": cap_w});
            assert_eq!(c.post("/v1/power", &body).0, 200);
        }
    }
    let (status, body) = c.deploy(APP);
    assert_eq!(status, 422, "{body}");
    assert!(body.contains("power cap"), "{body}");
}
