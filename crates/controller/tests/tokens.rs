//! Tokens: what each role may do, how long they are valid, how much they may ask, and the audit log.

use crate::common::{Controller, files_with, free_port, owner_token};
use e3_controller::{Access, ROUTES, Route};
use e3_model::AccessRole;
use e3_model::api::{AuditView, TokenResponse, TokenView};
use serde_json::json;
use std::time::{Duration, Instant};

/// A path of a route that nothing is at.
fn path(route: &Route) -> String {
    let numbers = ["{id}", "{backup}", "{restore}"];
    let path = numbers
        .iter()
        .fold(route.path.to_string(), |p, n| p.replace(n, "9"));
    path.replace("{part}", "0-0").replace(['{', '}'], "")
}

#[test]
fn each_route_takes_the_role_that_it_names_and_those_above() {
    let tmp = tempfile::tempdir().unwrap();
    let c = Controller::start(tmp.path(), free_port());
    let tokens = AccessRole::ALL.map(|r| (r, c.create_token(r.name(), r.name())));
    for route in &ROUTES {
        let Access::Role(needed) = route.access else {
            continue;
        };
        let what = format!("{} {}", route.method.to_ascii_uppercase(), route.path);
        for (role, token) in &tokens {
            let answer = c.send(route.method, &path(route), Some(token), b"");
            if *role >= needed {
                assert!(![401, 403].contains(&answer.status), "{what} {answer:?}");
            } else {
                let name = role.name();
                answer.refused(
                    403,
                    &format!("{what} needs role {needed}; token {name:?} has role {name}"),
                );
                assert!(
                    answer.body.contains(&format!("--role {needed}")),
                    "{answer:?}"
                );
            }
        }
        let nobody = c.send(route.method, &path(route), None, b"");
        nobody.refused(401, &format!("{what} needs one with role {needed}"));
        assert!(nobody.body.contains("e3 token create"), "{nobody:?}");
    }
    let token = Some(tokens[2].1.as_str());
    let answer = c.send("get", "/v1/blobs/d", token, b"");
    answer.refused(403, "is for the cluster's nodes only");
}

#[test]
fn a_token_is_shown_once_and_its_hash_is_all_that_is_stored() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let c = Controller::start(tmp.path(), address);
    let token = c.create_token("ci", "deploy");
    assert_eq!(c.send("get", "/v1/nodes", Some(&token), b"").status, 200);
    let views: Vec<TokenView> = c.view("/v1/tokens");
    let names: Vec<_> = views.iter().map(|t| (t.name.as_str(), t.role)).collect();
    assert_eq!(
        names,
        [("owner", AccessRole::Admin), ("ci", AccessRole::Deploy)]
    );
    assert!(!c.get("/v1/tokens").1.contains(&token));
    assert!(files_with(tmp.path(), token.as_bytes()).is_empty());
    drop(c);
    let c = Controller::start(tmp.path(), address);
    assert_eq!(c.send("get", "/v1/nodes", Some(&token), b"").status, 200);
    // Another text of the same form is not it.
    let other = token.chars().rev().collect::<String>();
    let answer = c.send("get", "/v1/nodes", Some(&other), b"");
    answer.refused(401, "the token is not one of this cluster");
}

#[test]
fn a_revoked_token_is_refused_at_once_also_on_an_open_connection() {
    let tmp = tempfile::tempdir().unwrap();
    let c = Controller::start(tmp.path(), free_port());
    let token = c.create_token("ci", "read");
    let agent = Controller::agent();
    let ask = || {
        let url = format!("http://{}/v1/nodes", c.address);
        let request = agent
            .get(url)
            .header("Authorization", format!("Bearer {token}"));
        let mut answer = request.call().unwrap();
        answer.body_mut().read_to_string().unwrap();
        answer.status().as_u16()
    };
    assert_eq!(ask(), 200);
    let owner = owner_token();
    let revoke = |name: &str| {
        let path = format!("/v1/tokens/{name}");
        c.send("delete", &path, Some(owner.expose()), b"")
    };
    assert_eq!(revoke("ci").status, 200);
    assert_eq!(ask(), 401);
    revoke("ci").refused(404, "there is no token \"ci\"; there are none");
    revoke("owner").refused(409, "is the file `token` of the state directory");
}

#[test]
fn an_expired_token_is_refused_and_named() {
    let tmp = tempfile::tempdir().unwrap();
    let c = Controller::start(tmp.path(), free_port());
    let request = json!({"name": "short", "role": "read", "expiresInMs": 1});
    let (status, body) = c.post("/v1/tokens", &request);
    assert_eq!(status, 200, "{body}");
    let created: TokenResponse = serde_json::from_str(&body).unwrap();
    assert!(created.view.expires_unix_ms > created.view.created_unix_ms);
    let until = Instant::now() + Duration::from_secs(20);
    let refused = loop {
        let answer = c.send("get", "/v1/nodes", Some(&created.token), b"");
        if answer.status != 200 || Instant::now() > until {
            break answer;
        }
    };
    refused.refused(401, "token \"short\" has expired");
    let views: Vec<TokenView> = c.view("/v1/tokens");
    assert!(views[1].expired);
}

#[test]
fn what_is_no_good_token_is_refused_and_changes_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let c = Controller::start(tmp.path(), free_port());
    c.create_token("ci", "read");
    for (request, status, why) in [
        (
            json!({"name": "ci", "role": "read"}),
            409,
            "there is a token \"ci\" already",
        ),
        (json!({"name": "", "role": "read"}), 422, "must be 1..=63"),
        (
            json!({"name": "A b", "role": "read"}),
            422,
            "must be 1..=63",
        ),
        (
            json!({"name": "n".repeat(64), "role": "read"}),
            422,
            "must be 1..=63",
        ),
        (
            json!({"name": "owner", "role": "read"}),
            422,
            "choose another",
        ),
        (json!({"name": "a", "role": "root"}), 422, "unknown variant"),
        (json!({"name": "a"}), 422, "missing field `role`"),
        (
            json!({"name": "a", "role": "read", "expiresInMs": 0}),
            422,
            "expiresInMs is 0",
        ),
        (
            json!({"name": "a", "role": "read", "expiresInMs": u64::MAX}),
            422,
            "must be 1..=",
        ),
        (
            json!({"name": "a", "role": "read", "admin": true}),
            422,
            "unknown field",
        ),
    ] {
        let body = request.to_string();
        let token = owner_token();
        let answer = c.send("post", "/v1/tokens", Some(token.expose()), body.as_bytes());
        answer.refused(status, why);
    }
    assert_eq!(c.view::<Vec<TokenView>>("/v1/tokens").len(), 2);
    let token = owner_token();
    let long = vec![b' '; (64 << 10) + 1];
    let answer = c.send("post", "/v1/tokens", Some(token.expose()), &long);
    answer.refused(413, "has 65537 bytes, must be at most 65536");
}

#[test]
fn a_token_that_asks_too_much_waits_and_others_do_not() {
    let tmp = tempfile::tempdir().unwrap();
    let c = Controller::start_slow(tmp.path(), free_port(), 50);
    let (busy, idle) = (
        c.create_token("busy", "read"),
        c.create_token("idle", "read"),
    );
    let ask = |token: &str| c.send("get", "/v1/cluster", Some(token), b"");
    let until = Instant::now() + Duration::from_secs(20);
    let refused = loop {
        let answer = ask(&busy);
        if answer.status != 200 || Instant::now() > until {
            break answer;
        }
    };
    refused.refused(429, "token \"busy\" sends too many requests");
    assert_eq!(refused.retry_after.as_deref(), Some("1"));
    assert_eq!(ask(&idle).status, 200);
}

#[test]
fn commands_are_in_the_audit_log_with_who_gave_them_and_what_came_of_them() {
    let tmp = tempfile::tempdir().unwrap();
    let address = free_port();
    let c = Controller::start(tmp.path(), address);
    let (ci, eye) = (
        c.create_token("ci", "deploy"),
        c.create_token("eye", "read"),
    );
    let secret = b"never to be seen again";
    let set = c.send("post", "/v1/apps/shop/secrets/key", Some(&ci), secret);
    assert_eq!(set.status, 200, "{set:?}");
    c.send("get", "/v1/nodes", Some(&ci), b"");
    c.send("delete", "/v1/apps/shop", Some(&ci), b"");
    c.send("delete", "/v1/apps/shop", Some(&eye), b"");
    c.send("delete", "/v1/apps/shop", None, b"");
    let drain = json!({"node": "s9"}).to_string();
    let owner = owner_token();
    c.send("post", "/v1/drain", Some(owner.expose()), drain.as_bytes());
    drop(c);
    let c = Controller::start(tmp.path(), address);
    let all: Vec<AuditView> = c.view("/v1/audit");
    let of = |r: &AuditView| (r.who.clone(), r.operation.clone(), r.status);
    let expected = [
        ("owner", "createToken", 200),
        ("owner", "createToken", 200),
        ("ci", "setSecret", 200),
        ("ci", "deleteApp", 404),
        ("eye", "deleteApp", 403),
        ("owner", "drainNode", 404),
    ];
    let expected = expected.map(|(who, what, status)| (who.into(), what.into(), status));
    assert_eq!(all.iter().map(of).collect::<Vec<_>>(), expected);
    assert_eq!(all[1].detail, r#"{"name":"eye","role":"read"}"#);
    assert_eq!(all[2].path, "/v1/apps/shop/secrets/key");
    assert_eq!(all[2].detail, "");
    assert_eq!(all[3].error, "there is no application \"shop\"");
    assert_eq!(all[5].detail, drain);
    let later: Vec<AuditView> = c.view(&format!("/v1/audit?after={}", all[3].number));
    assert_eq!(later, all[4..]);
    let since: Vec<AuditView> = c.view(&format!("/v1/audit?sinceUnixMs={}", all[5].at_unix_ms));
    assert!(since.ends_with(&all[5..]));
    c.send("get", "/v1/audit?after=x", Some(owner.expose()), b"")
        .refused(400, "");
}

#[test]
fn a_token_that_may_do_nothing_cannot_push_out_what_others_did() {
    let tmp = tempfile::tempdir().unwrap();
    let c = Controller::start(tmp.path(), free_port());
    let eye = c.create_token("eye", "read");
    for _ in 0..120 {
        c.send("delete", "/v1/apps/shop", Some(&eye), b"")
            .refused(403, "");
    }
    let all: Vec<AuditView> = c.view("/v1/audit");
    let of_eye = all.iter().filter(|r| r.who == "eye").count();
    // One more comes each minute.
    assert!((100..105).contains(&of_eye), "{of_eye}");
}
