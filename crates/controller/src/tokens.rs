//! The handlers for tokens. A token's text leaves with the answer that creates it and is stored nowhere.

use crate::refusal::bad_json;
use crate::seal::{hex, random};
use crate::shared::Shared;
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use e3_control::{ApiToken, Command};
use e3_http::Refusal;
use e3_model::api::{RevokeResponse, TokenRequest, TokenResponse, TokenView};
use e3_model::limits::TOKEN_AGE_MS_MAX;
use e3_model::{AccessRole, Nanos, Timestamp, Token, check_name};
use sha2::{Digest, Sha256};

/// The name of the token in the file `token` of the state directory.
pub(crate) const OWNER: &str = "owner";

/// SHA-256 of a token, in hexadecimal.
pub(crate) fn hash(token: &Token) -> String {
    hex(&Sha256::digest(token.expose()))
}

fn view(name: &str, token: &ApiToken, now: Timestamp) -> TokenView {
    let unix_ms = |at: Timestamp| at.since(Timestamp::ZERO).as_millis();
    TokenView {
        name: name.into(),
        role: token.role,
        created_unix_ms: Some(unix_ms(token.created)),
        expires_unix_ms: token.expires.map(unix_ms),
        expired: token.is_expired(now),
    }
}

pub(crate) async fn list(State(s): State<Shared>) -> Json<Vec<TokenView>> {
    let core = s.core();
    let now = core.clock.now();
    let owner = TokenView {
        name: OWNER.into(),
        role: AccessRole::Admin,
        created_unix_ms: None,
        expires_unix_ms: None,
        expired: false,
    };
    let tokens = core.control.tokens.iter();
    let created = tokens.map(|(name, token)| view(name, token, now));
    Json(std::iter::once(owner).chain(created).collect())
}

pub(crate) async fn create(
    State(s): State<Shared>,
    body: Result<Json<TokenRequest>, JsonRejection>,
) -> Result<Json<TokenResponse>, Refusal> {
    let Json(q) = body.map_err(|e| bad_json(&e))?;
    check(&q)?;
    let text = random().map_err(|e| {
        let error = format!("no random bytes for a token: {e}");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    })?;
    let text = Token::new(text);
    let mut core = s.core();
    let now = core.clock.now();
    let token = ApiToken {
        role: q.role,
        hash: hash(&text),
        created: now,
        expires: q.expires_in_ms.map(|ms| now + Nanos::from_millis(ms)),
    };
    core.execute(&Command::CreateToken {
        name: q.name.clone(),
        token: token.clone(),
    })?;
    tracing::info!(name = q.name, role = q.role.name(), "token created");
    Ok(Json(TokenResponse {
        token: text.expose().into(),
        view: view(&q.name, &token, now),
    }))
}

fn check(q: &TokenRequest) -> Result<(), Refusal> {
    let refuse = |error: String| Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, error));
    let name = &q.name;
    if let Err(why) = check_name(name) {
        return refuse(format!("name of the token: {why}"));
    }
    if name == OWNER {
        return refuse(format!(
            "{OWNER:?} is the name of the token in the state directory; choose another"
        ));
    }
    match q.expires_in_ms {
        Some(ms) if !(1..=TOKEN_AGE_MS_MAX).contains(&ms) => refuse(format!(
            "expiresInMs is {ms}, must be 1..={TOKEN_AGE_MS_MAX}"
        )),
        _ => Ok(()),
    }
}

pub(crate) async fn revoke(
    State(s): State<Shared>,
    Path(name): Path<String>,
) -> Result<Json<RevokeResponse>, Refusal> {
    if name == OWNER {
        let error = format!("token {OWNER:?} is the file `token` of the state directory");
        let hint = "for another one: e3 down, remove the file, e3 up";
        return Err(Refusal::new(StatusCode::CONFLICT, error).hint(hint));
    }
    s.core()
        .execute(&Command::RevokeToken { name: name.clone() })?;
    tracing::info!(name, "token revoked");
    Ok(Json(RevokeResponse { name }))
}
