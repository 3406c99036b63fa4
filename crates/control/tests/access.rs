//! Tokens and secrets in the controller's log.

use crate::script::{APP, AT, NODES, Script};
use e3_control::limits::{SECRET_SEALED_LEN_MAX, SECRETS_MAX, TOKENS_MAX};
use e3_control::{ApiToken, Applied, Command, CommandError};
use e3_model::plan::NodeHello;
use e3_model::{AccessRole, Format, Formats, Nanos, NodeId, Sealed};

/// A cluster that has tokens and secrets in its format.
fn begin() -> Script {
    let mut s = Script::up(&[]);
    for (name, process) in NODES.iter().zip(1..) {
        let hello = NodeHello {
            name: (*name).into(),
            process,
            formats: Formats::PROGRAM,
            ..NodeHello::default()
        };
        s.ok(Command::Join { hello, at: AT });
    }
    let (to, release) = (Format::ACCESS, "0.1.0".into());
    s.ok(Command::RaiseFormat { to, release });
    s
}

fn app() -> String {
    let app = APP.replace("  services:\n", "  secrets: [{name: key}]\n  services:\n");
    app.replace(
        "    - name: back\n",
        "    - name: back\n      secrets: [key]\n",
    )
}

fn token(s: &mut Script, name: &str) -> Result<Applied, CommandError> {
    let token = ApiToken {
        role: AccessRole::Read,
        hash: name.into(),
        created: AT,
        expires: None,
    };
    let name = name.into();
    s.apply(Command::CreateToken { name, token })
}

fn set_len(s: &mut Script, name: &str, len: usize) -> Result<Applied, CommandError> {
    let (app, name) = ("two-services".into(), name.into());
    let value = Sealed {
        key: "k".into(),
        nonce: "n".into(),
        bytes: "0".repeat(len),
    };
    s.apply(Command::SetSecret {
        app,
        name,
        value,
        at: AT,
    })
}

fn set(s: &mut Script, name: &str) -> Result<Applied, CommandError> {
    set_len(s, name, 32)
}

fn named(name: &str) -> (String, String) {
    ("two-services".into(), name.into())
}

#[test]
fn a_cluster_with_the_format_before_has_neither() {
    let mut s = Script::up(&NODES);
    for refused in [token(&mut s, "ci"), set(&mut s, "key")] {
        let error = refused.unwrap_err().to_string();
        let why = "need format 8, the cluster writes format 7";
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn tokens_are_named_once_and_bounded() {
    let mut s = begin();
    for i in 0..TOKENS_MAX {
        token(&mut s, &format!("t{i}")).unwrap();
    }
    let exists = CommandError::TokenExists("t7".into());
    assert_eq!(token(&mut s, "t7"), Err(exists));
    let many = CommandError::TooManyTokens(TOKENS_MAX);
    assert_eq!(token(&mut s, "more"), Err(many));
    let name = "t7".to_string();
    s.ok(Command::RevokeToken { name: name.clone() });
    assert!(s.apply(Command::RevokeToken { name }).is_err());
    token(&mut s, "more").unwrap();
    let expiring = ApiToken {
        expires: Some(AT),
        ..s.control.tokens["more"].clone()
    };
    assert!(expiring.is_expired(AT) && !expiring.is_expired(AT - Nanos(1)));
}

#[test]
fn secrets_are_bounded() {
    let mut s = begin();
    set_len(&mut s, "long", SECRET_SEALED_LEN_MAX).unwrap();
    let refused = set_len(&mut s, "longer", SECRET_SEALED_LEN_MAX + 1);
    assert!(matches!(refused, Err(CommandError::SecretLength { .. })));
    for i in 1..SECRETS_MAX {
        set(&mut s, &format!("s{i}")).unwrap();
    }
    let many = CommandError::TooManySecrets(SECRETS_MAX);
    assert_eq!(set(&mut s, "more"), Err(many));
    set(&mut s, "s7").unwrap();
}

#[test]
fn plans_have_the_versions_of_secrets_and_not_their_values() {
    let mut s = begin();
    set(&mut s, "key").unwrap();
    set(&mut s, "unread").unwrap();
    s.deploy_manifest(&app()).unwrap();
    let versions = |s: &Script| {
        let plan = s.control.plan_for(NodeId(0));
        let json = serde_json::to_string(&plan).unwrap();
        assert!(!json.contains("nonce"), "{json}");
        plan.apps[0].secrets.clone()
    };
    assert_eq!(versions(&s), [("key".into(), 1)].into());
    set(&mut s, "key").unwrap();
    assert_eq!(versions(&s), [("key".into(), 2)].into());
    let (app, name) = named("key");
    let retire = Command::RetireSecret { app, name };
    assert_eq!(s.ok(retire.clone()), Applied::Changed);
    assert_eq!(s.ok(retire), Applied::Nothing);
    assert_eq!(versions(&s), [("key".into(), 3)].into());
    let (app, name) = named("key");
    let used = s.apply(Command::DeleteSecret { app, name });
    assert!(matches!(used, Err(CommandError::SecretInUse { .. })));
    let (app, name) = named("unread");
    s.ok(Command::DeleteSecret { app, name });
    let app = "two-services".into();
    s.ok(Command::Delete { app });
    assert!(s.control.secrets.is_empty());
    s.check();
}
