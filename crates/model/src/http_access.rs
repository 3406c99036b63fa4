//! What a service may ask over HTTP: the hosts of its manifest, and the addresses and header fields
//! of its outbound requests.
//!
//! The address is checked here against few and strict rules (a part of RFC 3986), so that no two
//! parsers read a different host in it.

use crate::limits::{HTTP_HEADERS_LEN_MAX, HTTP_HEADERS_MAX, URL_LEN_MAX};
use crate::outbound::HttpRequest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Hosts that a service may name.
pub const HTTP_HOSTS_MAX: usize = 64;
/// Bytes of a host's name.
const HOST_LEN_MAX: usize = 253;
/// Header fields that the platform or the connection sets.
const RESERVED_HEADERS: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "idempotency-key",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];

/// `http` of a service: what it may ask over HTTP.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpAccess {
    /// Hosts that it may name: `api.example.com` (ports 80 for `http`, 443 for `https`),
    /// `127.0.0.1:8080` (that port only), `*.example.com` (all names below it, not itself).
    pub hosts: Vec<String>,
}

impl HttpAccess {
    /// Whether a request to that address is allowed.
    pub fn allows(&self, url: &HttpUrl<'_>) -> bool {
        self.hosts.iter().any(|listed| {
            let (host, port) = split_port(listed);
            let has_port = match port {
                Some(port) => port.parse() == Ok(url.port),
                None => url.port == url.default_port(),
            };
            has_port && matches_host(host, &url.host)
        })
    }

    /// What is wrong with an entry of the list, if something is.
    pub fn fault_of(listed: &str) -> Option<String> {
        let (host, port) = split_port(listed);
        let name = host.strip_prefix("*.").unwrap_or(host);
        let why = if listed.contains("://") || listed.contains('/') {
            "must be a host without scheme and path"
        } else if listed.contains('@') {
            "must not contain user information"
        } else if name != name.to_ascii_lowercase() {
            "must be in lower case"
        } else if name.contains('*') {
            "may have `*` only as its whole first part, as in *.example.com"
        } else if name != host && !name.contains(|c: char| c.is_ascii_alphabetic()) {
            "must have a name after `*.`, as in *.example.com"
        } else if !is_host(name) {
            "must be a name such as api.example.com, an IPv4 address, or an IPv6 address in brackets"
        } else if port.is_some_and(|port| !is_port(port)) {
            "must have a port of 1..=65535 after the colon"
        } else {
            return None;
        };
        Some(format!("host {listed:?} {why}"))
    }
}

/// The parts of an address that decide who is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpUrl<'a> {
    /// `https`, not `http`.
    pub is_https: bool,
    /// Host in lower case; an IPv6 address in brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query, as written.
    pub target: &'a str,
}

/// Why an outbound HTTP request is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HttpFault {
    /// The address is too long.
    #[error("url has {0} bytes, must be at most {URL_LEN_MAX}")]
    UrlTooLong(usize),
    /// Not `http://` or `https://`.
    #[error("url {0:?} must begin with http:// or https://")]
    Scheme(String),
    /// It contains a name or a password.
    #[error("url must not contain user information (the part before @); use a header field")]
    UserInfo,
    /// No host.
    #[error(
        "url has the host {0:?}, must be a name, an IPv4 address, or an IPv6 address in brackets"
    )]
    Host(String),
    /// No port.
    #[error("url has the port {0:?}, must be 1..=65535")]
    Port(String),
    /// A character that no address has.
    #[error(
        "url contains {0:?}; characters other than those of RFC 3986 must be percent-encoded, and a fragment is not sent"
    )]
    Character(char),
    /// Too many header fields.
    #[error("{0} header fields, must be at most {HTTP_HEADERS_MAX}")]
    Headers(usize),
    /// Header fields that are too long.
    #[error("header fields of {0} bytes, must be at most {HTTP_HEADERS_LEN_MAX}")]
    HeadersTooLong(usize),
    /// Not the name of a header field.
    #[error("header field {0:?} must have a name of letters, digits and !#$%&'*+-.^_`|~")]
    HeaderName(String),
    /// Set by the platform.
    #[error("header field {0:?} is set by the platform; leave it out")]
    HeaderReserved(String),
    /// Not the value of a header field.
    #[error("header field {0:?} must have a value of visible ASCII characters, spaces and tabs")]
    HeaderValue(String),
    /// The manifest does not list the host.
    #[error("host {host:?} with port {port} is not in `http.hosts` of the manifest; add it there")]
    NotAllowed {
        /// Host.
        host: String,
        /// Port.
        port: u16,
    },
}

impl<'a> HttpUrl<'a> {
    /// Reads an absolute address.
    pub fn parse(url: &'a str) -> Result<HttpUrl<'a>, HttpFault> {
        if url.len() > URL_LEN_MAX {
            return Err(HttpFault::UrlTooLong(url.len()));
        }
        if let Some(bad) = url.chars().find(|c| !is_url_character(*c)) {
            return Err(HttpFault::Character(bad));
        }
        let (is_https, rest) = match url.split_once("://") {
            Some((s, rest)) if s.eq_ignore_ascii_case("https") => (true, rest),
            Some((s, rest)) if s.eq_ignore_ascii_case("http") => (false, rest),
            _ => return Err(HttpFault::Scheme(url.chars().take(32).collect())),
        };
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(HttpFault::UserInfo);
        }
        let (host, port) = split_port(authority);
        let host = host.to_ascii_lowercase();
        if !is_host(&host) {
            return Err(HttpFault::Host(host));
        }
        // The brackets of an IPv6 address have no place elsewhere.
        if let Some(bad) = target.chars().find(|c| matches!(c, '[' | ']')) {
            return Err(HttpFault::Character(bad));
        }
        let port = match port {
            None => default_port(is_https),
            Some(port) if is_port(port) => port.parse().expect("is a port"),
            Some(port) => return Err(HttpFault::Port(port.to_string())),
        };
        Ok(HttpUrl {
            is_https,
            host,
            port,
            target,
        })
    }

    fn default_port(&self) -> u16 {
        default_port(self.is_https)
    }
}

impl HttpRequest {
    /// Checks address and header fields, and that the manifest allows the host.
    pub fn check(&self, access: &HttpAccess) -> Result<(), HttpFault> {
        let url = HttpUrl::parse(&self.url)?;
        if self.headers.len() > HTTP_HEADERS_MAX {
            return Err(HttpFault::Headers(self.headers.len()));
        }
        let len = self.headers.iter().map(|(n, v)| n.len() + v.len()).sum();
        if len > HTTP_HEADERS_LEN_MAX {
            return Err(HttpFault::HeadersTooLong(len));
        }
        for (name, value) in &self.headers {
            if name.is_empty() || !name.bytes().all(is_token) {
                return Err(HttpFault::HeaderName(name.clone()));
            }
            if RESERVED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
                return Err(HttpFault::HeaderReserved(name.clone()));
            }
            if !value.bytes().all(|b| matches!(b, b'\t' | b' '..=b'~')) {
                return Err(HttpFault::HeaderValue(name.clone()));
            }
        }
        if access.allows(&url) {
            Ok(())
        } else {
            Err(HttpFault::NotAllowed {
                host: url.host,
                port: url.port,
            })
        }
    }
}

fn default_port(is_https: bool) -> u16 {
    if is_https { 443 } else { 80 }
}

/// Host and port of an authority. The colons of an IPv6 address are in brackets.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

fn is_port(port: &str) -> bool {
    let is_number = port.bytes().all(|b| b.is_ascii_digit()) && !port.starts_with('0');
    is_number && port.parse::<u16>().is_ok()
}

/// A name, an IPv4 address, or an IPv6 address in brackets; in lower case.
fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[') {
        let inner = inner.strip_suffix(']');
        return inner.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok());
    }
    let is_label = |label: &str| {
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
        (1..=63).contains(&label.len()) && label.bytes().all(good)
    };
    // Resolvers read numbers such as 2130706433 or 0x7f.1 as addresses.
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_numeric = last.starts_with(|c: char| c.is_ascii_digit());
    host.len() <= HOST_LEN_MAX
        && host.split('.').all(is_label)
        && (!is_numeric || host.parse::<Ipv4Addr>().is_ok())
}

/// Whether a host is the listed one, or below it.
fn matches_host(listed: &str, host: &str) -> bool {
    match listed.strip_prefix('*') {
        Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        None => host == listed || same_address(listed, host),
    }
}

/// An IPv6 address has several spellings.
fn same_address(a: &str, b: &str) -> bool {
    let address = |text: &str| -> Option<Ipv6Addr> {
        let inner = text.strip_prefix('[')?.strip_suffix(']')?;
        inner.parse().ok()
    };
    matches!((address(a), address(b)), (Some(a), Some(b)) if a == b)
}

fn is_url_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._~:/?[]@!$&'()*+,;=%".contains(c)
}

fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbound::HttpMethod;

    fn access(hosts: &[&str]) -> HttpAccess {
        HttpAccess {
            hosts: hosts.iter().map(|h| h.to_string()).collect(),
        }
    }

    fn request(url: &str) -> HttpRequest {
        HttpRequest {
            method: HttpMethod::Get,
            url: url.into(),
            headers: Vec::new(),
        }
    }

    #[test]
    fn only_listed_hosts_and_ports_are_allowed() {
        let access = access(&[
            "api.example.com",
            "127.0.0.1:8080",
            "*.example.org",
            "[::1]:81",
        ]);
        for (url, allowed) in [
            ("http://api.example.com", true),
            ("https://API.example.com/v1?x=@y", true),
            ("https://api.example.com:443/", true),
            ("https://api.example.com:80/", false),
            ("http://api.example.com:8080/", false),
            ("http://api.example.com.evil.com/", false),
            ("http://evil.com/api.example.com", false),
            ("http://evil.com?.example.org", false),
            ("http://127.0.0.1:8080/x", true),
            ("http://127.0.0.1/x", false),
            ("http://127.0.0.2:8080/x", false),
            ("http://a.b.example.org/", true),
            ("http://example.org/", false),
            ("http://xexample.org/", false),
            ("http://[0:0::1]:81/", true),
            ("http://[::2]:81/", false),
            ("http://169.254.169.254/latest/meta-data", false),
        ] {
            let checked = request(url).check(&access);
            assert_eq!(checked.is_ok(), allowed, "{url}: {checked:?}");
        }
        let error = request("http://evil.com/").check(&access).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("host \"evil.com\" with port 80 is not in `http.hosts`")
        );
    }

    #[test]
    fn an_address_that_parsers_could_read_differently_is_refused() {
        for url in [
            "",
            "/path",
            "ftp://a.com/",
            "http:/a.com",
            "http://",
            "http:///path",
            "http://user@a.com/",
            "http://a.com:80@b.com/",
            "http://a.com\\@b.com/",
            "http://a.com#b",
            "http://a.com/ b",
            "http://a.com/\r\nx: y",
            "http://ä.com/",
            "http://a..com/",
            "http://a.com./",
            "http://a.com:0/",
            "http://a.com:/",
            "http://a.com:65536/",
            "http://a.com:+80/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://127.1/",
            "http://0177.0.0.1/",
            "http://[::1/",
            "http://[::1]x/",
            "http://%31.com/",
            "http://a.com/[",
        ] {
            assert!(HttpUrl::parse(url).is_err(), "{url:?}");
        }
        let long = format!("http://a.com/{}", "x".repeat(URL_LEN_MAX));
        assert!(matches!(
            HttpUrl::parse(&long),
            Err(HttpFault::UrlTooLong(_))
        ));
    }

    #[test]
    fn header_fields_cannot_smuggle() {
        let access = access(&["a.com"]);
        let check = |name: &str, value: &str| {
            let headers = vec![(name.to_string(), value.to_string())];
            HttpRequest {
                headers,
                ..request("http://a.com")
            }
            .check(&access)
        };
        assert_eq!(check("Authorization", "Bearer x"), Ok(()));
        for (name, value) in [
            ("", "x"),
            ("a b", "x"),
            ("a:", "x"),
            ("Host", "b.com"),
            ("content-length", "1"),
            ("Transfer-Encoding", "chunked"),
            ("idempotency-key", "1"),
            ("a", "x\r\nb: c"),
            ("a", "\0"),
        ] {
            assert!(check(name, value).is_err(), "{name:?}: {value:?}");
        }
        let many = HttpRequest {
            headers: vec![("a".into(), "b".into()); HTTP_HEADERS_MAX + 1],
            ..request("http://a.com")
        };
        assert!(matches!(many.check(&access), Err(HttpFault::Headers(_))));
    }

    #[test]
    fn entries_of_the_list_are_checked() {
        for good in ["a", "api.example.com", "10.0.0.1:80", "[fe80::1]", "*.a.b"] {
            assert_eq!(HttpAccess::fault_of(good), None, "{good}");
        }
        for bad in [
            "",
            "*",
            "*.",
            "http://a.com",
            "a.com/x",
            "A.com",
            "a.*.com",
            "a.com:",
            "a.com:0",
            "u@a.com",
            "::1",
            "1.2.3",
            "*.1",
        ] {
            assert!(HttpAccess::fault_of(bad).is_some(), "{bad:?}");
        }
    }
}
