//! Tokens: who may speak for a thermostat, and until when.
//!
//! HMAC-SHA256 (RFC 2104) over the thermostat's id and the expiry under the application's secret
//! `token-key`. The operator mints a token for each thermostat; `apigw` verifies it.

use hmac::digest::CtOutput;
use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::DecodeError;
use crate::codec::Reader;

/// Bytes of an encoded token.
pub const TOKEN_BYTES: usize = 4 + 8 + 32;

/// Prefix of what is authenticated, so that a tag made for something else is no token.
const DOMAIN: &[u8] = b"e3 iot token 1";

/// The bearer may update and read one thermostat until the token expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Whom the token speaks for.
    pub thermostat: u32,
    /// Seconds since the Unix epoch; the token is void from this second on.
    pub expires_s: i64,
    /// HMAC-SHA256 over the two fields above.
    pub tag: [u8; 32],
}

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// The tag was not made with this key, or not for these fields.
    Forged,
    /// The token was good once.
    Expired {
        /// When it expired, in seconds since the Unix epoch.
        expires_s: i64,
    },
    /// The token speaks for another thermostat.
    OtherThermostat {
        /// The one that it speaks for.
        thermostat: u32,
    },
}

impl core::fmt::Display for TokenError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Forged => write!(f, "token: the tag does not match"),
            Self::Expired { expires_s } => write!(f, "token: expired at {expires_s} s"),
            Self::OtherThermostat { thermostat } => {
                write!(f, "token: is for thermostat {thermostat}")
            }
        }
    }
}

impl core::error::Error for TokenError {}

impl Token {
    /// Makes the token of `thermostat` under `key` (any length; 32 random bytes are right).
    pub fn mint(key: &[u8], thermostat: u32, expires_s: i64) -> Self {
        TokenKey::new(key).mint(thermostat, expires_s)
    }

    /// Checks the tag in constant time, then the expiry against `now_s`.
    pub fn verify(&self, key: &[u8], now_s: i64) -> Result<(), TokenError> {
        TokenKey::new(key).verify(self, now_s)
    }

    /// Appends the token to a message.
    pub(crate) fn encode(&self, out: &mut alloc::vec::Vec<u8>) {
        out.extend_from_slice(&self.thermostat.to_le_bytes());
        out.extend_from_slice(&self.expires_s.to_le_bytes());
        out.extend_from_slice(&self.tag);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            thermostat: reader.u32("token thermostat")?,
            expires_s: reader.i64("token expiry")?,
            tag: reader.array("token tag")?,
        })
    }
}

/// A key made ready: the two key blocks are hashed once, not for every token.
#[derive(Clone)]
pub struct TokenKey {
    mac: Hmac<Sha256>,
}

impl TokenKey {
    /// Takes the value of the secret `token-key`.
    pub fn new(key: &[u8]) -> Self {
        let mac = Hmac::new_from_slice(key).expect("HMAC takes a key of any length");
        Self { mac }
    }

    /// Makes the token of `thermostat`.
    pub fn mint(&self, thermostat: u32, expires_s: i64) -> Token {
        let tag = self.tag(thermostat, expires_s).into_bytes().into();
        Token {
            thermostat,
            expires_s,
            tag,
        }
    }

    /// Checks the tag in constant time, then the expiry against `now_s`.
    pub fn verify(&self, token: &Token, now_s: i64) -> Result<(), TokenError> {
        let given: CtOutput<Hmac<Sha256>> = CtOutput::new(token.tag.into());
        if self.tag(token.thermostat, token.expires_s) != given {
            return Err(TokenError::Forged);
        }
        if now_s >= token.expires_s {
            return Err(TokenError::Expired {
                expires_s: token.expires_s,
            });
        }
        Ok(())
    }

    fn tag(&self, thermostat: u32, expires_s: i64) -> CtOutput<Hmac<Sha256>> {
        let mut mac = self.mac.clone();
        mac.update(DOMAIN);
        mac.update(&thermostat.to_le_bytes());
        mac.update(&expires_s.to_le_bytes());
        mac.finalize()
    }
}
