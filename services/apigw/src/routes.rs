//! Where a path leads.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use e3_sdk::{Error, config};

/// Prefixes of paths and the channels that they lead to, the longest prefix first.
#[derive(Debug)]
pub(crate) struct Routes(Vec<(String, usize)>);

impl Routes {
    /// From the configuration, if it has any; `channels` are those that there are.
    pub(crate) fn open(channels: &[&str]) -> Result<Option<Routes>, Error> {
        let Some(text) = config("routes") else {
            return Ok(None);
        };
        match parse(&text, channels) {
            Some(routes) => Ok(Some(routes)),
            None => Err(Error::Config {
                name: "routes",
                value: text,
            }),
        }
    }

    /// The channel that the path leads to.
    pub(crate) fn find(&self, path: &str) -> Option<usize> {
        let routes = self.0.iter();
        let mut leading = routes.filter(|(prefix, _)| leads(prefix, path));
        leading.next().map(|(_, channel)| *channel)
    }
}

/// Prefixes end where a segment of the path ends.
fn leads(prefix: &str, path: &str) -> bool {
    match path.strip_prefix(prefix) {
        Some(rest) => rest.is_empty() || rest.starts_with('/') || prefix.ends_with('/'),
        None => false,
    }
}

fn parse(text: &str, channels: &[&str]) -> Option<Routes> {
    let mut routes: Vec<(String, usize)> = Vec::new();
    for route in text.split(',') {
        let (prefix, channel) = route.split_once('=')?;
        let (prefix, channel) = (prefix.trim(), channel.trim());
        let channel = channels.iter().position(|c| *c == channel)?;
        if !prefix.starts_with('/') || routes.iter().any(|(p, _)| p == prefix) {
            return None;
        }
        routes.push((prefix.to_string(), channel));
    }
    routes.sort_by_key(|(prefix, _)| core::cmp::Reverse(prefix.len()));
    Some(Routes(routes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_testkit::Random;

    #[test]
    fn the_longest_prefix_of_whole_segments_leads() {
        let channels = ["a", "b", "c"];
        let routes = parse("/=a, /x=b,/x/y = c, /z/=c", &channels).unwrap();
        for (path, channel) in [
            ("/", "a"),
            ("/xy", "a"),
            ("/x", "b"),
            ("/x/", "b"),
            ("/x/yy", "b"),
            ("/x/y", "c"),
            ("/x/y/z", "c"),
            ("/z", "a"),
            ("/z/1", "c"),
        ] {
            assert_eq!(
                routes.find(path).map(|c| channels[c]),
                Some(channel),
                "{path}"
            );
        }
        assert_eq!(routes.find("x"), None);
        assert_eq!(parse("/x=a", &channels).unwrap().find("/"), None);
        for bad in ["", "/x", "/x=d", "x=a", "/x=a, /x=b", "/x=a,", "=a"] {
            assert!(parse(bad, &channels).is_none(), "{bad:?}");
        }
    }

    /// Against a split into segments, prefix by prefix.
    #[test]
    fn agrees_with_a_walk_over_segments() {
        let mut random = Random::new(4);
        let path = |random: &mut Random| -> String {
            let segments = (0..1 + random.index(4)).map(|_| ["/a", "/b", "/ab"][random.index(3)]);
            segments.collect()
        };
        for round in 0..2000 {
            let mut prefixes: Vec<String> = (0..4).map(|_| path(&mut random)).collect();
            prefixes.sort();
            prefixes.dedup();
            let names: Vec<String> = (0..prefixes.len()).map(|n| n.to_string()).collect();
            let names: Vec<&str> = names.iter().map(|n| &**n).collect();
            let text: Vec<String> = (0..names.len())
                .map(|n| std::format!("{}={n}", prefixes[n]))
                .collect();
            let routes = parse(&text.join(","), &names).unwrap();
            let asked = path(&mut random);
            let segments: Vec<&str> = asked.split('/').collect();
            let naive = (1..=segments.len()).rev().find_map(|len| {
                let head = segments[..len].join("/");
                prefixes.iter().position(|p| *p == head)
            });
            assert_eq!(
                routes.find(&asked),
                naive,
                "round {round}: {asked} in {text:?}"
            );
        }
    }
}
