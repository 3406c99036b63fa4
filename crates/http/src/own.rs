//! Checks that a request is meant for this server and does not come from another site.
//!
//! A page in a browser on this machine is not a client. A request must name a loopback address as its
//! host, so that no foreign name that resolves to it passes (DNS rebinding), and must not come from a
//! page of another origin (RFC 6454).

use crate::Refusal;
use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode};
use std::net::IpAddr;

/// A server on loopback, as its clients address it.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// The kind of server, for messages, such as "controller".
    pub what: &'static str,
    /// Its TCP port.
    pub port: u16,
}

impl Own {
    /// Refuses a request for another host, or from a page of another origin.
    pub fn check(&self, request: &Request) -> Result<(), Refusal> {
        self.check_host(request)?;
        self.check_origin(request.headers())
    }

    /// A request must be meant for this server (RFC 9110, section 7.4).
    fn check_host(&self, request: &Request) -> Result<(), Refusal> {
        let mut hosts = request.headers().get_all(HOST).iter();
        let wanted = format!("must be 127.0.0.1:{0} or localhost:{0}", self.port);
        let refuse = |error: String| Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, error));
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return refuse(format!(
                "the request must have one Host header, and it {wanted}"
            ));
        };
        let host = String::from_utf8_lossy(host.as_bytes());
        let target = request.uri().authority().map(Authority::as_str);
        let mut named = std::iter::once(&*host).chain(target);
        match named.find(|name| !self.is_own(name)) {
            None => Ok(()),
            Some(other) => refuse(format!(
                "host {other:?} is not this {}, {wanted}",
                self.what
            )),
        }
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        for origin in headers.get_all(ORIGIN) {
            let origin = String::from_utf8_lossy(origin.as_bytes());
            let own = origin.strip_prefix("http://");
            if !own.is_some_and(|authority| self.is_own(authority)) {
                let error = format!("origin {origin:?} is not this {}'s own", self.what);
                return Err(Refusal::new(StatusCode::FORBIDDEN, error));
            }
        }
        Ok(())
    }

    /// Whether `host:port` is a loopback name or address with the port of the server.
    fn is_own(&self, authority: &str) -> bool {
        let Ok(parsed) = authority.parse::<Authority>() else {
            return false;
        };
        let host = parsed.host();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        let loopback = host.eq_ignore_ascii_case("localhost")
            || address.parse::<IpAddr>().is_ok_and(|a| a.is_loopback());
        // A URL omits the default port.
        let port = parsed.port_u16().unwrap_or(80);
        loopback && port == self.port && !authority.contains('@')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_with_the_own_port_are_own() {
        let own = |port| Own {
            what: "server",
            port,
        };
        for name in [
            "127.0.0.1:7300",
            "localhost:7300",
            "LocalHost:7300",
            "[::1]:7300",
        ] {
            assert!(own(7300).is_own(name), "{name}");
        }
        for other in [
            "",
            "127.0.0.1",
            "localhost:7301",
            "localhost:",
            "evil.example:7300",
            "localhost.evil.example:7300",
            "127.0.0.1.evil.example:7300",
            "evil.example@127.0.0.1:7300",
            "10.0.0.1:7300",
            "[::]:7300",
            "0.0.0.0:7300",
            "127.0.0.1:7300/x",
            "null",
            "evil@127.0.0.1:7300",
        ] {
            assert!(!own(7300).is_own(other), "{other}");
        }
        assert!(own(80).is_own("localhost") && !own(80).is_own("localhost:7300"));
    }
}
