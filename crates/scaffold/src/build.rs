//! Builds a project to WebAssembly.

use crate::{ScaffoldError, find};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const COMPILERS: [&str; 5] = ["clang-19", "clang", "clang-20", "clang-21", "clang-22"];

/// Builds the project in `dir`, a Rust package or a single C file, to `dir/NAME.wasm`. Returns a
/// description of the toolchain, and the module.
pub fn build(dir: &Path) -> Result<(String, PathBuf), ScaffoldError> {
    if dir.join("Cargo.toml").is_file() {
        return build_rust(dir);
    }
    match &files(dir, "c")?[..] {
        [source] => build_c(dir, source),
        _ => Err(ScaffoldError::NoProject(dir.to_path_buf())),
    }
}

fn build_rust(dir: &Path) -> Result<(String, PathBuf), ScaffoldError> {
    let toolchain = find(None)?;
    let target = dir.join("target").join(toolchain.dir_name());
    let mut command = toolchain.cargo_build();
    command
        .current_dir(dir)
        .args(["--profile", "service", "--lib", "--target-dir"])
        // a relative path would be relative to the project
        .arg(std::path::absolute(&target).map_err(|source| file(&target, source))?);
    run(&mut command)?;
    let built = target.join("wasm32-unknown-unknown/service");
    let modules = files(&built, "wasm")?;
    let [module] = &modules[..] else {
        return Err(ScaffoldError::NoModule(dir.join("Cargo.toml")));
    };
    let name = module.file_name().unwrap_or_default().to_string_lossy();
    let out = dir.join(name.replace('_', "-"));
    fs::copy(module, &out).map_err(|source| file(&out, source))?;
    Ok((toolchain.describe(), out))
}

fn build_c(dir: &Path, source: &Path) -> Result<(String, PathBuf), ScaffoldError> {
    let installed = |name: &&&str| {
        let version = Command::new(name).arg("--version").output();
        version.is_ok_and(|o| o.status.success())
    };
    let Some(compiler) = COMPILERS.iter().find(installed) else {
        return Err(ScaffoldError::Incomplete {
            missing: "clang is missing".into(),
            fix: "apt-get install clang-19 lld-19",
        });
    };
    let out = source.with_extension("wasm");
    let mut command = Command::new(compiler);
    command
        .args(["--target=wasm32", "-O3", "-nostdlib", "-ffreestanding"])
        .args(["-mbulk-memory", "-msimd128", "-Wall"])
        .args(["-Wl,--no-entry,--strip-all", "-I"])
        .arg(dir)
        .arg("-o")
        .args([&out, source]);
    run(&mut command)?;
    Ok((compiler.to_string(), out))
}

fn run(command: &mut Command) -> Result<(), ScaffoldError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|source| ScaffoldError::Start {
        program: program.clone(),
        source,
    })?;
    if status.success() {
        Ok(())
    } else {
        Err(ScaffoldError::Failed { program, status })
    }
}

/// Files of a directory with this extension.
fn files(dir: &Path, extension: &str) -> Result<Vec<PathBuf>, ScaffoldError> {
    let failed = |source| file(dir, source);
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension() == Some(OsStr::new(extension)) {
            found.push(path);
        }
    }
    Ok(found)
}

fn file(path: &Path, source: std::io::Error) -> ScaffoldError {
    ScaffoldError::File {
        file: path.to_path_buf(),
        source,
    }
}
