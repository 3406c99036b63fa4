//! Loading modules: checks against the service ABI, compiled code kept on disk.

use crate::host::Host;
use crate::imports::IMPORTS;
use crate::limits::MODULE_LEN_MAX;
use crate::types::LoadError;
use sha2::{Digest, Sha256};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use wasmtime::{Engine, ExternType, InstancePre, Linker, Module, ValType};

/// A service's code, ready to start instances on the engine that loaded it.
#[derive(Clone)]
pub struct Code {
    pub(crate) pre: InstancePre<Host>,
    pub(crate) memory_bytes_min: usize,
}

/// Exports that every service has: name, parameters, type in words. All give an `i32`.
const EXPORTS: [(&str, usize, &str); 4] = [
    ("e3_abi_version", 0, "() -> i32"),
    ("e3_request_buffer", 0, "() -> i32"),
    ("e3_request_capacity", 0, "() -> i32"),
    ("e3_handle", 1, "(i32) -> i32"),
];

pub(crate) fn load(
    engine: &Engine,
    linker: &Linker<Host>,
    cache_dir: Option<&Path>,
    memory_bytes_max: usize,
    wasm: &[u8],
) -> Result<Code, LoadError> {
    if wasm.len() > MODULE_LEN_MAX {
        return Err(LoadError::TooLong(wasm.len()));
    }
    let module = compile(engine, cache_dir, wasm)?;
    let memory_bytes_min = check(&module, memory_bytes_max)?;
    let pre = linker
        .instantiate_pre(&module)
        .map_err(|e| LoadError::ImportType(format!("{e:#}")))?;
    Ok(Code {
        pre,
        memory_bytes_min,
    })
}

/// The module as the ABI wants it; gives its initial memory in bytes.
fn check(module: &Module, memory_bytes_max: usize) -> Result<usize, LoadError> {
    for import in module.imports() {
        if import.module() != "e3" || !IMPORTS.contains(&import.name()) {
            return Err(LoadError::UnknownImport {
                module: import.module().into(),
                name: import.name().into(),
            });
        }
    }
    for (name, parameters, expected) in EXPORTS {
        check_function(module, name, parameters, expected)?;
    }
    if module.get_export("e3_init").is_some() {
        check_function(module, "e3_init", 0, "() -> i32")?;
    }
    let memory = module
        .get_export("memory")
        .ok_or(LoadError::MissingExport("memory"))?;
    let ExternType::Memory(memory) = memory else {
        return Err(LoadError::ExportType {
            name: "memory",
            expected: "memory",
        });
    };
    let minimum = memory.minimum().saturating_mul(memory.page_size());
    if minimum > memory_bytes_max as u64 {
        return Err(LoadError::Memory {
            minimum,
            maximum: memory_bytes_max as u64,
        });
    }
    Ok(minimum as usize)
}

fn check_function(
    module: &Module,
    name: &'static str,
    parameters: usize,
    expected: &'static str,
) -> Result<(), LoadError> {
    let export = module
        .get_export(name)
        .ok_or(LoadError::MissingExport(name))?;
    let good = export.func().is_some_and(|f| {
        let i32s = |mut types: Box<dyn Iterator<Item = ValType> + '_>, n: usize| {
            types.by_ref().take(n).filter(ValType::is_i32).count() == n && types.next().is_none()
        };
        i32s(Box::new(f.params()), parameters) && i32s(Box::new(f.results()), 1)
    });
    if good {
        Ok(())
    } else {
        Err(LoadError::ExportType { name, expected })
    }
}

/// Compiles, or takes what an earlier run compiled.
fn compile(engine: &Engine, cache_dir: Option<&Path>, wasm: &[u8]) -> Result<Module, LoadError> {
    let invalid = |e: wasmtime::Error| {
        let text = format!("{e:#}");
        // The pooling allocator's bounds are told apart from modules that are none.
        match Module::validate(engine, wasm) {
            Ok(()) => LoadError::Unsuited(text),
            Err(_) => LoadError::Invalid(text),
        }
    };
    let Some(dir) = cache_dir else {
        return Module::new(engine, wasm).map_err(invalid);
    };
    let mut compatibility = DefaultHasher::new();
    engine
        .precompile_compatibility_hash()
        .hash(&mut compatibility);
    let digest: String = Sha256::digest(wasm)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let file = dir.join(format!("{digest}-{:016x}.cwasm", compatibility.finish()));
    if file.exists() {
        // SAFETY: the file was written below by this program; EngineConfig asks that nobody else
        // may write to the directory, and a file cut short or of another version is refused.
        if let Ok(module) = unsafe { Module::deserialize_file(engine, &file) } {
            return Ok(module);
        }
    }
    let module = Module::new(engine, wasm).map_err(invalid)?;
    // The cache saves time only: without it everything works.
    let keep = || -> Option<()> {
        std::fs::create_dir_all(dir).ok()?;
        let new = dir.join(format!("{digest}.{}.new", std::process::id()));
        std::fs::write(&new, module.serialize().ok()?).ok()?;
        std::fs::rename(&new, &file).ok()
    };
    keep();
    Ok(module)
}
