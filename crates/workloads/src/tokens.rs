//! Tokens that `apigw` accepts, and its refusals.

use crate::readback::queries::NOT_FOUND;
use e3_wire::entry::{Outcome, Reply};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Serialize, Serializer};
use sha2::Sha256;

/// Status of what the application refuses: no valid token, or over the rate.
pub(crate) const REFUSED: u32 = 3;
/// How the reason begins if it is the token.
const BAD_TOKEN: &str = "token:";
/// What the reason says if it is the rate.
const OVER_THE_RATE: &str = "over the rate";

/// Proof of who speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// Seconds since the Unix epoch; void from this second on.
    pub(crate) expiry: i64,
    /// HMAC-SHA256 over the user's bytes and the expiry, 8 bytes, big endian.
    pub(crate) tag: [u8; 32],
}

/// Makes tokens.
#[derive(Clone)]
pub(crate) struct TokenKey(Hmac<Sha256>);

impl TokenKey {
    /// By the application's secret `token-key`.
    pub(crate) fn new(key: &[u8]) -> TokenKey {
        TokenKey(Hmac::new_from_slice(key).expect("HMAC takes a key of any length"))
    }

    pub(crate) fn mint(&self, user: &str, expiry: i64) -> Token {
        let mac = self.0.clone().chain_update(user);
        let tag = mac.chain_update(expiry.to_be_bytes()).finalize();
        Token {
            expiry,
            tag: tag.into_bytes().into(),
        }
    }
}

/// Written as bytes, not as an array of numbers.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// Whether a refusal is for the token's sake (true), or for the rate's (false).
pub(crate) fn is_for_the_token(reply: &Reply) -> Option<bool> {
    let why = std::str::from_utf8(&reply.payload).ok()?;
    let of_token = why.starts_with(BAD_TOKEN);
    (reply.status == REFUSED && (of_token || why.contains(OVER_THE_RATE))).then_some(of_token)
}

/// Whether the application says that there is nothing.
pub(crate) fn is_nothing(reply: &Reply) -> bool {
    reply.outcome == Outcome::Done && reply.status == NOT_FOUND
}
