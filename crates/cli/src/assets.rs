//! Files that go to the cluster: modules, and assets, which may have to be compiled first.

use crate::builtin::{self, Text};
use crate::failure::{Exit, Failure};
use crate::limits::BLOB_LEN_MAX;
use crate::settings::without_bom;
use e3_model::AssetFormat;
use e3_model::application::Asset;
use std::path::{Path, PathBuf};

/// The content of an asset of a manifest. An error in a file that is compiled names the line.
pub fn read_asset(manifest: &Text, asset: &Asset) -> Result<Vec<u8>, Failure> {
    let (path, bytes) = match (&manifest.dir, builtin::asset(&asset.file)) {
        (None, Some(bytes)) => (PathBuf::from(&asset.file), bytes.to_vec()),
        (dir, _) => {
            let path = dir.clone().unwrap_or_default().join(&asset.file);
            let bytes = read_blob(&path)?;
            (path, bytes)
        }
    };
    let Some(AssetFormat::Dir24_8) = asset.compile else {
        return Ok(bytes);
    };
    let wrong = |what: String| Failure::new(Exit::Input, format!("{}{what}", path.display()));
    let text = String::from_utf8(bytes).map_err(|e| wrong(format!(": not UTF-8: {e}")))?;
    e3_packet::routes::compile(without_bom(&text))
        .map_err(|e| wrong(format!(":{}: {}", e.line, e.reason)))
}

/// A module or an asset.
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
