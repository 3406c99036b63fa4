//! Text assets, read line by line: the whole asset is never in memory.

use alloc::format;
use alloc::vec::Vec;
use core::fmt::Display;
use e3_sdk::{Asset, Error};

/// Longest line of an asset.
pub const LINE_BYTES_MAX: usize = 64 * 1024;
/// Bytes read at once.
const CHUNK_BYTES: usize = 16 * 1024;

/// The lines of an asset. Empty ones and those that begin with `#` are left out.
#[derive(Debug)]
pub struct Lines {
    name: &'static str,
    asset: Asset,
    /// Where the next chunk begins.
    offset: u64,
    buffer: Vec<u8>,
    /// Where the rest of the buffer begins that was not read yet.
    at: usize,
    number: u32,
    ended: bool,
}

impl Lines {
    /// The lines of the asset of this name.
    pub fn open(name: &'static str) -> Result<Lines, Error> {
        Ok(Lines {
            name,
            asset: Asset::open(name).ok_or(Error::NoAsset(name))?,
            offset: 0,
            buffer: Vec::new(),
            at: 0,
            number: 0,
            ended: false,
        })
    }

    /// The next line, without its end.
    #[expect(
        clippy::should_implement_trait,
        reason = "what it returns borrows from it"
    )]
    pub fn next(&mut self) -> Result<Option<&str>, Error> {
        loop {
            let Some((start, end)) = self.line()? else {
                return Ok(None);
            };
            self.number += 1;
            let line = &self.buffer[start..end];
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            if core::str::from_utf8(line).is_err() {
                return Err(self.error("is not UTF-8"));
            }
            let line = core::str::from_utf8(&self.buffer[start..end]);
            return Ok(Some(line.unwrap_or_default()));
        }
    }

    /// Where in the buffer the next line is.
    fn line(&mut self) -> Result<Option<(usize, usize)>, Error> {
        let mut searched = self.at;
        loop {
            let found = self.buffer[searched..].iter().position(|b| *b == b'\n');
            let (end, next) = match found {
                Some(at) => (searched + at, searched + at + 1),
                None if self.ended && self.at == self.buffer.len() => return Ok(None),
                None if self.ended => (self.buffer.len(), self.buffer.len()),
                None => {
                    searched = self.buffer.len() - self.at;
                    self.read()?;
                    continue;
                }
            };
            let start = core::mem::replace(&mut self.at, next);
            let returned = self.buffer[start..end].ends_with(b"\r");
            return Ok(Some((start, end - usize::from(returned))));
        }
    }

    /// Appends the next chunk to the rest of the buffer.
    fn read(&mut self) -> Result<(), Error> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let len = self.buffer.len();
        if len > LINE_BYTES_MAX {
            self.number += 1;
            return Err(self.error(format!("is longer than {LINE_BYTES_MAX} bytes")));
        }
        self.buffer.resize(len + CHUNK_BYTES, 0);
        let read = self.asset.read(self.offset, &mut self.buffer[len..])?;
        self.buffer.truncate(len + read);
        self.offset += read as u64;
        self.ended = read == 0;
        Ok(())
    }

    /// An error in the line that was read last.
    pub fn error(&self, why: impl Display) -> Error {
        Error::Asset {
            name: self.name,
            line: self.number,
            reason: format!("{why}"),
        }
    }

    /// An error in the whole asset.
    pub fn error_of_all(&self, why: impl Display) -> Error {
        Error::Asset {
            name: self.name,
            line: 0,
            reason: format!("{why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use e3_sdk::testing::Host;

    fn lines(bytes: &[u8]) -> Result<Vec<String>, Error> {
        let _host = Host::new().asset("text", bytes);
        let mut lines = Lines::open("text")?;
        let mut all = Vec::new();
        while let Some(line) = lines.next()? {
            all.push(line.to_string());
        }
        Ok(all)
    }

    #[test]
    fn lines_come_whole_from_chunks() {
        assert_eq!(lines(b"").unwrap(), [""; 0]);
        assert_eq!(lines(b"a\r\n\n# no\nb\n c").unwrap(), ["a", "b", " c"]);
        let long: Vec<String> = (0..400).map(|i| "x".repeat(i * 7 + 1)).collect();
        assert_eq!(lines(long.join("\n").as_bytes()).unwrap(), long);
        assert_eq!(lines((long.join("\r\n") + "\n").as_bytes()).unwrap(), long);
    }

    #[test]
    fn faults_name_asset_and_line() {
        let error = |bytes: &[u8]| lines(bytes).unwrap_err().to_string();
        assert_eq!(
            error(b"a\n\n\xff\n"),
            "asset \"text\": line 3: is not UTF-8"
        );
        let long = "a\n".to_string() + &"x".repeat(100_000);
        let why = "asset \"text\": line 2: is longer than 65536 bytes";
        assert_eq!(error(long.as_bytes()), why);
        let _host = Host::new();
        assert_eq!(Lines::open("text").unwrap_err(), Error::NoAsset("text"));
    }
}
