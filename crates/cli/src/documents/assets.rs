//! Assets of an application. Those with `compile` are compiled before they go to the cluster.

use crate::documents::builtin::{self, Text};
use crate::documents::files::read_content;
use crate::ui::failure::{Exit, Failure};
use e3_model::AssetFormat;
use e3_model::application::Asset;
use std::path::PathBuf;

/// The content of an asset of a manifest. An error in a file to compile names the line.
pub fn read_asset(manifest: &Text, asset: &Asset) -> Result<Vec<u8>, Failure> {
    let (path, bytes) = match (&manifest.dir, builtin::asset(&asset.file)) {
        (None, Some(bytes)) => (PathBuf::from(&asset.file), bytes.to_vec()),
        (dir, _) => {
            let path = dir.clone().unwrap_or_default().join(&asset.file);
            let bytes = read_content(&path)?;
            (path, bytes)
        }
    };
    let Some(AssetFormat::Dir24_8) = asset.compile else {
        return Ok(bytes);
    };
    let wrong = |what: String| Failure::new(Exit::Input, format!("{}{what}", path.display()));
    let text = String::from_utf8(bytes).map_err(|e| wrong(format!(": not UTF-8: {e}")))?;
    e3_packet::routes::compile(&text).map_err(|e| wrong(format!(":{}: {}", e.line, e.reason)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::files::BYTE_ORDER_MARK;

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_text() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = Text {
            file: "app.yaml".into(),
            text: String::new(),
            dir: Some(dir.path().to_path_buf()),
        };
        let read = |compile, content: &[u8]| {
            std::fs::write(dir.path().join("asset"), content).unwrap();
            let (name, file) = ("asset".into(), "asset".into());
            read_asset(
                &manifest,
                &Asset {
                    name,
                    file,
                    compile,
                },
            )
            .unwrap()
        };
        assert_eq!(read(None, b"\xef\xbb\xbfalert ip"), b"alert ip");
        assert_eq!(read(None, b"\xef\xbb\xbf\xff"), b"\xef\xbb\xbf\xff");
        let routes = b"10.0.0.0/8 198.51.100.45\n";
        let marked = [BYTE_ORDER_MARK, routes].concat();
        let compiled = read(Some(AssetFormat::Dir24_8), routes);
        assert_eq!(read(Some(AssetFormat::Dir24_8), &marked), compiled);
    }
}
