//! Names to addresses. A name never leads to the metadata of a cloud's machine, whatever its owner
//! lets it resolve to: who needs that lists its address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// The resolver of all requests.
#[derive(Debug, Default)]
pub(crate) struct Guarded(DefaultResolver);

impl Resolver for Guarded {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let resolved = self.0.resolve(uri, config, timeout);
        let resolved = resolved.map_err(|error| match error {
            Error::Timeout(_) => error,
            _ => Error::HostNotFound,
        })?;
        let host = uri.host().unwrap_or_default();
        let is_address = host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok();
        let mut allowed = self.empty();
        for address in resolved.iter() {
            if is_address || !is_metadata(address) {
                allowed.push(*address);
            }
        }
        if allowed.is_empty() {
            Err(Error::HostNotFound)
        } else {
            Ok(allowed)
        }
    }
}

/// Whether clouds serve credentials of the machine there: the link-local addresses, and those that
/// Amazon (IPv6) and Alibaba use.
fn is_metadata(address: &SocketAddr) -> bool {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => ip.is_link_local() || ip == Ipv4Addr::new(100, 100, 100, 200),
        IpAddr::V6(ip) => {
            ip.is_unicast_link_local() || ip == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_metadata_are_known() {
        for (address, expected) in [
            ("169.254.169.254:80", true),
            ("[::ffff:169.254.169.254]:80", true),
            ("[fe80::1]:80", true),
            ("[fd00:ec2::254]:80", true),
            ("100.100.100.200:80", true),
            ("127.0.0.1:80", false),
            ("10.0.0.1:80", false),
            ("[2001:db8::1]:80", false),
        ] {
            assert_eq!(
                is_metadata(&address.parse().unwrap()),
                expected,
                "{address}"
            );
        }
    }
}
