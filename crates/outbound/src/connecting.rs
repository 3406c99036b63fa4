//! Whether an attempt still looks up a name or makes a connection. Until it has a connection, nothing of the
//! request is sent.

use std::cell::Cell;
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{ConnectionDetails, Connector, NextTimeout, Transport};

thread_local! {
    // An attempt runs in one thread.
    static CONNECTING: Cell<bool> = const { Cell::new(false) };
}

/// An attempt begins in this thread.
pub(crate) fn begin() {
    CONNECTING.set(false);
}

/// Whether the attempt that failed in this thread had no connection.
pub(crate) fn failed() -> bool {
    CONNECTING.get()
}

/// A resolver or connector that notes when it begins and when it has succeeded.
#[derive(Debug)]
pub(crate) struct Noted<T>(pub(crate) T);

impl<R: Resolver> Resolver for Noted<R> {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        noted(|| self.0.resolve(uri, config, timeout))
    }
}

/// TLS included. It is not asked for a connection that was kept.
impl<In: Transport, C: Connector<In>> Connector<In> for Noted<C> {
    type Out = C::Out;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<C::Out>, Error> {
        noted(|| self.0.connect(details, chained))
    }
}

fn noted<T>(step: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    CONNECTING.set(true);
    let done = step()?;
    CONNECTING.set(false);
    Ok(done)
}
