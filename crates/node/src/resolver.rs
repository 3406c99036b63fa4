//! Hosts of URLs to addresses, without a thread where the host is an address.

use std::net::{IpAddr, SocketAddr};
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Reads hosts that are addresses itself. The default resolver, which looks up names, starts a thread for
/// every request with a time-out, and panics if the system has none left.
#[derive(Debug, Default)]
pub struct AddressResolver(DefaultResolver);

impl Resolver for AddressResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let Some(address) = address_of(uri) else {
            return self.0.resolve(uri, config, timeout);
        };
        let mut addresses = self.empty();
        addresses.push(address);
        Ok(addresses)
    }
}

/// The address that a URL names, if it does not name a host.
fn address_of(uri: &Uri) -> Option<SocketAddr> {
    let port = match (uri.port_u16(), uri.scheme_str()) {
        (Some(port), _) => port,
        (None, Some("http")) => 80,
        (None, _) => return None,
    };
    let host = uri.host()?;
    let ip = host.strip_prefix('[').and_then(|ip| ip.strip_suffix(']'));
    let ip: IpAddr = ip.unwrap_or(host).parse().ok()?;
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use ureq::Timeout;

    #[test]
    fn addresses_are_read_and_names_are_left_to_the_system() {
        for (url, expected) in [
            ("http://127.0.0.1:7300/v1/nodes", Some("127.0.0.1:7300")),
            ("http://10.0.0.1/", Some("10.0.0.1:80")),
            ("http://[::1]:7300/", Some("[::1]:7300")),
            ("http://localhost:7300/", None),
            ("http://1.example:80/", None),
        ] {
            let expected = expected.map(|e| e.parse().unwrap());
            assert_eq!(address_of(&url.parse().unwrap()), expected, "{url}");
        }
    }

    #[test]
    fn an_address_is_resolved_without_a_thread() {
        // The default resolver would hand over to a thread and find the time-out over.
        let timeout = NextTimeout {
            after: Duration::ZERO.into(),
            reason: Timeout::Resolve,
            ..NextTimeout::default()
        };
        let uri = "http://127.0.0.1:7300/".parse().unwrap();
        let resolver = AddressResolver::default();
        let found = resolver.resolve(&uri, &Config::default(), timeout).unwrap();
        assert_eq!(&found[..], ["127.0.0.1:7300".parse().unwrap()]);
    }
}
