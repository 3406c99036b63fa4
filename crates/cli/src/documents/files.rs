//! Reads files, each with a bound on its length.

use crate::limits::{BLOB_LEN_MAX, REQUESTS_LEN_MAX, SECRET_LEN_MAX, SIM_TRACE_LEN_MAX};
use crate::ui::failure::{Exit, Failure};
use e3_model::limits::{DOCUMENT_LEN_MAX, TOPOLOGY_LEN_MAX};
use std::io::Read;
use std::path::Path;

/// U+FEFF in UTF-8.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a document other than a topology.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    text(path, read_file(path, DOCUMENT_LEN_MAX as u64)?)
}

/// Reads a topology.
pub fn read_topology(path: &Path) -> Result<String, Failure> {
    text(path, read_file(path, TOPOLOGY_LEN_MAX as u64)?)
}

/// Reads a trace of arrivals.
pub fn read_trace(path: &Path) -> Result<String, Failure> {
    text(path, read_file(path, SIM_TRACE_LEN_MAX)?)
}

/// Reads a file of requests; `-` is standard input.
pub fn read_requests(path: &Path) -> Result<String, Failure> {
    let bytes = if path.as_os_str() == "-" {
        read(std::io::stdin(), path, REQUESTS_LEN_MAX)?
    } else {
        read_file(path, REQUESTS_LEN_MAX)?
    };
    text(path, bytes)
}

/// Reads the value of a secret, byte for byte; `-` is standard input.
pub fn read_secret(path: &Path) -> Result<Vec<u8>, Failure> {
    if path.as_os_str() == "-" {
        return read(std::io::stdin(), path, SECRET_LEN_MAX);
    }
    read_file(path, SECRET_LEN_MAX)
}

fn read_file(path: &Path, len_max: u64) -> Result<Vec<u8>, Failure> {
    let file = std::fs::File::open(path).map_err(|e| Failure::file("read", path, &e))?;
    read(file, path, len_max)
}

/// Reads to the end, which a device may not have.
fn read(from: impl Read, path: &Path, len_max: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    from.take(len_max + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| Failure::file("read", path, &e))?;
    if bytes.len() as u64 > len_max {
        let message = format!(
            "{}: longer than the maximum of {len_max} bytes",
            path.display()
        );
        return Err(Failure::new(Exit::Input, message));
    }
    Ok(bytes)
}

fn text(path: &Path, bytes: Vec<u8>) -> Result<String, Failure> {
    let mut text = String::from_utf8(bytes).map_err(|e| {
        let message = format!("{}: not UTF-8: {e}", path.display());
        Failure::new(Exit::Input, message)
    })?;
    let bom_len = text.len() - without_bom(&text).len();
    text.drain(..bom_len);
    Ok(text)
}

/// The text without the byte order mark that some editors put before it.
pub fn without_bom(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Reads an asset as it is. The byte order mark of a text is removed: services would take it for a
/// part of the first line.
pub fn read_content(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = read_blob(path)?;
    if bytes.starts_with(BYTE_ORDER_MARK) && std::str::from_utf8(&bytes).is_ok() {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

/// Reads a module or an asset.
pub fn read_blob(path: &Path) -> Result<Vec<u8>, Failure> {
    read_file(path, BLOB_LEN_MAX)
}
