//! Loading a module: check it against the service ABI, then compile it or take the compiled code
//! from the cache.

use crate::cache::{self, Turn};
use crate::context::Ctx;
use crate::limits::{COMPILE_NICE, MODULE_LEN_MAX};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;
use wasmparser::{Parser, Payload};
use wasmtime::{ExternType, InstancePre, Linker, Module, ModuleExport, ValType};

/// Why a module does not load.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum LoadError {
    /// The file is too long.
    #[error("module of {0} bytes, must be at most {MODULE_LEN_MAX}")]
    TooLong(usize),
    /// It is not a valid WebAssembly module.
    #[error("not a WebAssembly module: {0}")]
    Invalid(String),
    /// An export of the service ABI is missing.
    #[error("export \"{0}\" is missing")]
    MissingExport(&'static str),
    /// An export has the wrong type.
    #[error("export \"{name}\" has the wrong type, must be {expected}")]
    ExportType {
        /// Its name.
        name: &'static str,
        /// Its type in the service ABI.
        expected: &'static str,
    },
    /// An import is not part of the service ABI.
    #[error("import \"{module}\" \"{name}\" is unknown")]
    UnknownImport {
        /// Its module.
        module: String,
        /// Its name.
        name: String,
    },
    /// An import has the wrong type.
    #[error("import: {0}")]
    ImportType(String),
    /// Its initial memory exceeds the bound.
    #[error("memory of at least {minimum} bytes, must be at most {maximum}")]
    Memory {
        /// What it asks for.
        minimum: u64,
        /// What it may have.
        maximum: u64,
    },
    /// It has a start function, which is not part of the service ABI.
    #[error("has a start function; export \"e3_init\" instead")]
    StartFunction,
    /// It exceeds another bound of the engine.
    #[error("module: {0}")]
    Unsuited(String),
}

/// Compiled code of a service, bound to one engine. Clones are cheap.
#[derive(Clone)]
pub struct Code {
    pub(crate) pre: InstancePre<Ctx>,
    pub(crate) exports: Exports,
    /// Bytes of linear memory that an instance starts with.
    pub(crate) memory_bytes_min: usize,
}

/// Where the exports of the service ABI are.
#[derive(Clone)]
pub(crate) struct Exports {
    pub(crate) memory: ModuleExport,
    pub(crate) abi_version: ModuleExport,
    pub(crate) request_buffer: ModuleExport,
    pub(crate) request_capacity: ModuleExport,
    pub(crate) handle: ModuleExport,
    pub(crate) init: Option<ModuleExport>,
    pub(crate) request_head: Option<ModuleExport>,
}

/// Exports that every service has.
const EXPORTS: [&str; 5] = [
    "memory",
    "e3_abi_version",
    "e3_request_buffer",
    "e3_request_capacity",
    "e3_handle",
];

/// Loads modules for one engine, on any thread.
#[derive(Clone)]
pub struct Loader {
    pub(crate) linker: Linker<Ctx>,
    /// Bound of an instance's memory.
    pub(crate) memory_bytes_max: usize,
    pub(crate) cache_dir: Option<PathBuf>,
}

impl Loader {
    /// Lowers the priority of this thread, and of those of the compiler, which it starts: compiling
    /// must not take the processor from those who serve.
    pub fn yield_to_others(&self) {
        // Without it compiling is just faster, and the rest slower.
        let _ = rustix::process::setpriority_process(None, COMPILE_NICE);
    }

    /// Checks and compiles a module, or takes it from the cache. If another process compiles it
    /// into the same cache, this waits for its result.
    pub fn load(&self, wasm: &[u8]) -> Result<Code, LoadError> {
        if wasm.len() > MODULE_LEN_MAX {
            return Err(LoadError::TooLong(wasm.len()));
        }
        let memory_bytes_min = check_sections(wasm, self.memory_bytes_max as u64)? as usize;
        let sha256: [u8; 32] = Sha256::digest(wasm).into();
        let engine = self.linker.engine();
        let module = compile(engine, wasm, &sha256, self.cache_dir.as_deref())?;
        let exports = exports(&module)?;
        let pre =
            self.linker.instantiate_pre(&module).map_err(|e| match e
                .downcast_ref::<wasmtime::UnknownImportError>()
            {
                Some(unknown) => LoadError::UnknownImport {
                    module: unknown.module().into(),
                    name: unknown.name().into(),
                },
                None => LoadError::ImportType(one_line(&e)),
            })?;
        Ok(Code {
            pre,
            exports,
            memory_bytes_min,
        })
    }
}

/// Refuses, without compiling it, a module that lacks an export of the service ABI, imports from
/// another module than `e3`, or needs more memory than this to start. Other errors are found when
/// it is loaded.
pub fn check(wasm: &[u8], memory_bytes_max: u64) -> Result<(), LoadError> {
    if wasm.len() > MODULE_LEN_MAX {
        return Err(LoadError::TooLong(wasm.len()));
    }
    check_sections(wasm, memory_bytes_max)?;
    let mut exports = BTreeSet::new();
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.map_err(invalid)? {
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import.map_err(invalid)?;
                    if import.module != "e3" {
                        return Err(LoadError::UnknownImport {
                            module: import.module.into(),
                            name: import.name.into(),
                        });
                    }
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    exports.insert(export.map_err(invalid)?.name);
                }
            }
            _ => {}
        }
    }
    match EXPORTS.iter().find(|name| !exports.contains(**name)) {
        Some(name) => Err(LoadError::MissingExport(name)),
        None => Ok(()),
    }
}

/// Imports that open a handle, and those that take it.
const HANDLES: [(&str, &[&str]); 3] = [
    (
        "collection",
        &[
            "get",
            "put",
            "delete",
            "scan",
            "array_len",
            "array_get",
            "array_push",
            "array_scan",
            "array_put",
            "array_pop_front",
            "counter_add",
            "counter_get",
        ],
    ),
    ("channel", &["send"]),
    ("asset", &["asset_len", "asset_read"]),
];

/// An import that a module calls with a handle that it never opens, and the import that opens such
/// handles. The author forgot to export `e3_init`, so the linker dropped it; such a module would use
/// whatever has the number of its handle.
pub fn unopened(wasm: &[u8]) -> Result<Option<(&'static str, &'static str)>, LoadError> {
    let mut imports = BTreeSet::new();
    for payload in Parser::new(0).parse_all(wasm) {
        if let Payload::ImportSection(section) = payload.map_err(invalid)? {
            for import in section.into_imports() {
                imports.insert(import.map_err(invalid)?.name);
            }
        }
    }
    let unopened = |(opens, uses): &(&'static str, &'static [&'static str])| {
        let used = uses.iter().find(|name| imports.contains(**name))?;
        (!imports.contains(opens)).then_some((*used, *opens))
    };
    Ok(HANDLES.iter().find_map(unopened))
}

fn invalid(e: wasmparser::BinaryReaderError) -> LoadError {
    LoadError::Invalid(e.message().into())
}

/// Checks what is not visible in the compiled module, or has a worse message there. Returns the
/// initial memory in bytes.
fn check_sections(wasm: &[u8], maximum: u64) -> Result<u64, LoadError> {
    const PAGE_LEN: u64 = 64 << 10;
    let mut minimum = 0;
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.map_err(invalid)? {
            Payload::Version {
                encoding: wasmparser::Encoding::Component,
                ..
            } => return Err(LoadError::Invalid("it is a component".into())),
            Payload::StartSection { .. } => return Err(LoadError::StartFunction),
            Payload::MemorySection(memories) => {
                for memory in memories {
                    let memory = memory.map_err(invalid)?;
                    minimum = memory.initial.saturating_mul(PAGE_LEN);
                    if minimum > maximum {
                        return Err(LoadError::Memory { minimum, maximum });
                    }
                }
            }
            _ => {}
        }
    }
    Ok(minimum)
}

fn compile(
    engine: &wasmtime::Engine,
    wasm: &[u8],
    sha256: &[u8; 32],
    cache_dir: Option<&Path>,
) -> Result<Module, LoadError> {
    let Some(dir) = cache_dir else {
        return compile_now(engine, wasm);
    };
    let path = cache::path(engine, sha256, dir);
    // SAFETY: `deserialize` trusts its input. The file carries a hash of its content, so it is
    // what an engine of the same version and settings (both are in its name) wrote, unless
    // somebody who may write to the cache directory forged it, which its owner must prevent.
    let deserialize = |code: Vec<u8>| unsafe { Module::deserialize(engine, &code) }.ok();
    let cached = || cache::read(&path).and_then(deserialize);
    let lock = match cache::wait_for_turn(dir, cached) {
        Turn::Found(module) => return Ok(module),
        Turn::Compile(lock) => lock,
    };
    let module = compile_now(engine, wasm)?;
    // If the cache cannot be written, the next start takes longer; nothing else changes.
    let _ = module
        .serialize()
        .map_err(io::Error::other)
        .and_then(|code| cache::write(&path, &code, lock.is_some()));
    Ok(module)
}

fn compile_now(engine: &wasmtime::Engine, wasm: &[u8]) -> Result<Module, LoadError> {
    Module::validate(engine, wasm).map_err(|e| LoadError::Invalid(one_line(&e)))?;
    let unsuited = |e: wasmtime::Error| LoadError::Unsuited(one_line(&e));
    Module::from_binary(engine, wasm).map_err(unsuited)
}

fn exports(module: &Module) -> Result<Exports, LoadError> {
    let index = |name| {
        module
            .get_export_index(name)
            .ok_or(LoadError::MissingExport(name))
    };
    let func = |name: &'static str, params: usize| {
        let at = index(name)?;
        match module.get_export(name) {
            Some(ExternType::Func(f)) if i32s(f.params(), params) && i32s(f.results(), 1) => Ok(at),
            _ => Err(LoadError::ExportType {
                name,
                expected: if params == 0 {
                    "() -> i32"
                } else {
                    "(i32) -> i32"
                },
            }),
        }
    };
    let optional = |name| match module.get_export_index(name) {
        Some(_) => func(name, 0).map(Some),
        None => Ok(None),
    };
    let memory = index("memory")?;
    match module.get_export("memory") {
        Some(ExternType::Memory(m)) if !m.is_64() && !m.is_shared() => {}
        _ => {
            return Err(LoadError::ExportType {
                name: "memory",
                expected: "a 32-bit unshared memory",
            });
        }
    }
    Ok(Exports {
        memory,
        abi_version: func("e3_abi_version", 0)?,
        request_buffer: func("e3_request_buffer", 0)?,
        request_capacity: func("e3_request_capacity", 0)?,
        handle: func("e3_handle", 1)?,
        init: optional("e3_init")?,
        request_head: optional("e3_request_head")?,
    })
}

fn i32s(types: impl ExactSizeIterator<Item = ValType>, count: usize) -> bool {
    types.len() == count && types.into_iter().all(|t| t.is_i32())
}

/// An error with its causes, on one line.
pub(crate) fn one_line(e: &wasmtime::Error) -> String {
    format!("{e:#}")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}
