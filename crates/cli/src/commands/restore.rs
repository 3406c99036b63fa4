//! `e3 restore`: deploys an application with the state of a backup.

use crate::archive::Archive;
use crate::cluster::client::Client;
use crate::commands::backup::Summary;
use crate::commands::deploy::wait_ready;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::{self, Format};
use crate::ui::values::duration;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use e3_model::api::{DeployRequest, RestoreRequest};
use e3_model::backup::BackupFile;
use e3_model::document::parse_application;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `e3 restore`.
#[derive(Args, Debug, Clone)]
pub struct Restore {
    /// File that e3 backup wrote
    pub file: PathBuf,
    /// Name for the application, if another one has its name
    #[arg(long = "as", value_name = "NAME")]
    pub name: Option<String>,
    /// Check the file and the cluster, but restore nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Generate new values for generated secrets that have none here; data encrypted under the old ones is lost
    #[arg(long)]
    pub new_secrets: bool,
    /// Accept a placement that needs more cores or bandwidth than the nodes have free; some requests
    /// then take longer
    #[arg(long)]
    pub overcommit: bool,
    /// Longest time until the application serves
    #[arg(long, value_parser = duration, default_value = "10m", value_name = "TIME")]
    pub timeout: Duration,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
}

/// `e3 restore`.
pub fn run(args: &Restore, settings: &Settings) -> Result<(), Failure> {
    let archive = Archive::open(&args.file)?;
    let client = Client::connect(settings)?;
    let mut request = request(args, &archive)?;
    let would = client.dry_run(&request)?;
    let path = args.file.as_path();
    let len = std::fs::metadata(path)
        .map_err(|e| Failure::file("read", path, &e))?
        .len();
    let summary = Summary::new(&would.app, path, len, &archive.head);
    let format = if args.json {
        Format::Json
    } else {
        Format::Table
    };
    let (name, contents) = (summary.app.clone(), summary.contents());
    if args.dry_run {
        return output::show(format, &summary, || {
            format!("{name} would be restored: {contents}; nothing was changed\n")
        });
    }
    let number = client.begin_restore(&name)?.restore;
    upload(&client, &archive, number)?;
    if let Some(restore) = &mut request.restore {
        restore.restore = number;
    }
    let deployed = client.deploy(&request)?;
    wait_ready(&client, &name, deployed.code_version, args.timeout)?;
    output::show(format, &summary, || {
        format!("restored {name}: {contents}\n")
    })
}

/// The deployment of the application in a backup.
fn request(args: &Restore, archive: &Archive) -> Result<DeployRequest, Failure> {
    let head = &archive.head;
    let file = args.file.display().to_string();
    let wrong = |e: String| Failure::new(Exit::Input, format!("{file}: the manifest: {e}"));
    let mut manifest: Value =
        serde_json::from_str(&head.manifest).map_err(|e| wrong(e.to_string()))?;
    if let Some(name) = &args.name {
        let metadata = manifest.get_mut("metadata").and_then(|m| m.get_mut("name"));
        *metadata.ok_or_else(|| wrong("it has no name".into()))? = Value::from(name.clone());
    }
    let manifest = serde_json::to_string_pretty(&manifest).map_err(|e| wrong(e.to_string()))?;
    // Names the wrong field before anything is sent.
    parse_application(&file, &manifest)?;
    let (mut modules, mut assets) = (BTreeMap::new(), BTreeMap::new());
    for (index, file) in head.files.iter().enumerate() {
        let content = archive.content(index)?;
        check_digest(&args.file, file, &content)?;
        let content = STANDARD.encode(content);
        let of = if file.is_asset {
            &mut assets
        } else {
            &mut modules
        };
        of.insert(file.name.clone(), content);
    }
    Ok(DeployRequest {
        file,
        manifest,
        modules,
        assets,
        profiles: head.profiles.clone(),
        overcommit: args.overcommit,
        placer: None,
        time_limit_ms: None,
        restore: Some(RestoreRequest {
            restore: 0,
            identity: head.identity,
            cut_at_unix_ms: head.cut_at_unix_ms,
            parts: head.parts.clone(),
            new_secrets: args.new_secrets,
        }),
    })
}

/// A module that was damaged before the backup is refused here, and not when nodes load it.
fn check_digest(path: &Path, file: &BackupFile, content: &[u8]) -> Result<(), Failure> {
    let found = e3_engine::sha256(content);
    if found == file.digest {
        return Ok(());
    }
    let what = if file.is_asset { "asset" } else { "module" };
    let message = format!(
        "{}: {what} {:?} has the SHA-256 {found}, must have {}",
        path.display(),
        file.name,
        file.digest
    );
    Err(Failure::new(Exit::Input, message).hint("restore another backup of the application"))
}

fn upload(client: &Client, archive: &Archive, number: u64) -> Result<(), Failure> {
    let head = &archive.head;
    let bar = output::progress(head.parts.iter().map(|p| p.len).sum(), "restore");
    for (at, part) in head.parts.iter().enumerate() {
        let (file, mut offset) = (part.file(), 0);
        archive.read(head.files.len() + at, |bytes| {
            client.restore_part(number, &file, offset, bytes)?;
            offset += bytes.len() as u64;
            bar.inc(bytes.len() as u64);
            Ok(())
        })?;
    }
    bar.finish_and_clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_with_another_digest_is_refused() {
        let file = BackupFile {
            is_asset: false,
            name: "ema.wasm".into(),
            digest: e3_engine::sha256(b"module"),
            len: 6,
        };
        let path = Path::new("a.e3b");
        check_digest(path, &file, b"module").unwrap();
        let failure = check_digest(path, &file, b"modulf").unwrap_err();
        assert_eq!(failure.exit, Exit::Input);
        let (message, digest) = (&failure.message, &file.digest);
        assert!(
            message.starts_with("a.e3b: module \"ema.wasm\""),
            "{message}"
        );
        assert!(message.ends_with(digest.as_str()), "{message}");
    }
}
