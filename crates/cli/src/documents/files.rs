//! Reads files, each with a bound on its length.

use crate::limits::BLOB_LEN_MAX;
use crate::ui::failure::{Exit, Failure};
use e3_model::limits::DOCUMENT_LEN_MAX;
use std::io::Read;
use std::path::Path;

/// U+FEFF in UTF-8.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a document.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    let mut text = Vec::new();
    let file = std::fs::File::open(path).map_err(|e| Failure::file("read", path, &e))?;
    let mut bounded = file.take(DOCUMENT_LEN_MAX as u64 + 1);
    bounded
        .read_to_end(&mut text)
        .map_err(|e| Failure::file("read", path, &e))?;
    let bad = |what: String| Failure::new(Exit::Input, format!("{}: {what}", path.display()));
    if text.len() > DOCUMENT_LEN_MAX {
        return Err(bad(format!(
            "longer than the maximum of {DOCUMENT_LEN_MAX} bytes"
        )));
    }
    let text = String::from_utf8(text).map_err(|e| bad(format!("not UTF-8: {e}")))?;
    Ok(without_bom(&text).to_string())
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
    let failed = |e: std::io::Error| Failure::file("read", path, &e);
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > BLOB_LEN_MAX {
        let message = format!(
            "{}: {length} bytes, must be at most {BLOB_LEN_MAX}",
            path.display()
        );
        return Err(Failure::new(Exit::Input, message));
    }
    std::fs::read(path).map_err(failed)
}
