//! Bearer tokens (RFC 6750): who has one may do what its role allows.

use std::fmt;
use subtle::ConstantTimeEq;

/// Bytes of randomness in a token.
pub const TOKEN_LEN: usize = 32;
/// Hexadecimal digits of a token.
const TEXT_LEN: usize = 2 * TOKEN_LEN;

/// 256 random bits in hexadecimal. Never printed by `Debug`.
#[derive(Clone)]
pub struct Token(String);

/// Why a text is no token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("is no token: it must be {TEXT_LEN} hexadecimal digits in lower case")]
pub struct TokenError;

impl Token {
    /// The token of these random bytes.
    pub fn new(random: [u8; TOKEN_LEN]) -> Token {
        Token(random.iter().map(|b| format!("{b:02x}")).collect())
    }

    /// Reads a token; white space around it does not count.
    pub fn parse(text: &str) -> Result<Token, TokenError> {
        let text = text.trim();
        let digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == TEXT_LEN && text.bytes().all(digit) {
            Ok(Token(text.to_string()))
        } else {
            Err(TokenError)
        }
    }

    /// The token that the value of an `Authorization` header presents.
    pub fn presented(authorization: &[u8]) -> Option<Token> {
        let text = std::str::from_utf8(bearer(authorization)?).ok()?;
        Token::parse(text).ok()
    }

    /// The token's text: for its file and for the `Authorization` header only.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Value of the `Authorization` header that presents this token.
    pub fn authorization(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Whether the value of an `Authorization` header presents this token. The time that this takes
    /// does not depend on how much of it is right.
    pub fn is_presented(&self, authorization: &[u8]) -> bool {
        match bearer(authorization) {
            Some(presented) => bool::from(presented.ct_eq(self.0.as_bytes())),
            None => false,
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The credentials in the value of an `Authorization` header, if its scheme is `Bearer`.
fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let space = authorization.iter().position(|b| *b == b' ')?;
    let (scheme, rest) = authorization.split_at(space);
    scheme
        .eq_ignore_ascii_case(b"bearer")
        .then(|| rest.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_recognised() {
        let token = Token::new(std::array::from_fn(|i| i as u8));
        assert!(token.is_presented(token.authorization().as_bytes()));
        let text = token.expose().to_string();
        assert!(text.starts_with("000102") && text.len() == TEXT_LEN);
        for good in ["bearer ", "BEARER ", "Bearer  "] {
            assert!(token.is_presented(format!("{good}{text}").as_bytes()));
        }
        let bad = [
            String::new(),
            "Bearer".into(),
            "Bearer ".into(),
            text.clone(),
            format!("Basic {text}"),
            format!("Bearer {text}0"),
            format!("Bearer {}", &text[1..]),
            format!("Bearer {}", text.replace('f', "e")),
            format!("Bearer {text} {text}"),
        ];
        for bad in bad {
            assert!(!token.is_presented(bad.as_bytes()), "{bad:?}");
        }
        assert!(!token.is_presented(b"Bearer \xff\xfe"));
    }

    #[test]
    fn a_token_is_read_and_never_printed() {
        let token = Token::new([0xab; TOKEN_LEN]);
        let read = Token::parse(&format!("{}\n", token.expose())).unwrap();
        assert_eq!(read.expose(), token.expose());
        assert_eq!(format!("{read:?}"), "Token(..)");
        for bad in [
            "",
            "ab",
            &"AB".repeat(32),
            &"g0".repeat(32),
            &"ab".repeat(33),
        ] {
            assert_eq!(Token::parse(bad).unwrap_err(), TokenError, "{bad:?}");
        }
    }
}
