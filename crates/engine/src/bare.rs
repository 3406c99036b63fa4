//! The reference of the benchmarks: a call of an empty function, with wasmtime's own settings.

use crate::config::EngineError;
use wasmtime::{Config, Instance, Module, Store, TypedFunc};

/// An empty function, ready to be called.
pub struct BareCall {
    store: Store<()>,
    call: TypedFunc<(), ()>,
}

impl BareCall {
    /// Compiles the function.
    pub fn new() -> Result<BareCall, EngineError> {
        BareCall::compile().map_err(|e| EngineError::Machine(e.to_string()))
    }

    fn compile() -> wasmtime::Result<BareCall> {
        let engine = wasmtime::Engine::new(&Config::new())?;
        let wasm = wat::parse_str(r#"(module (func (export "noop")))"#)?;
        let module = Module::from_binary(&engine, &wasm)?;
        let mut store = Store::new(&engine, ());
        let instance = Instance::new(&mut store, &module, &[])?;
        let call = instance.get_typed_func(&mut store, "noop")?;
        Ok(BareCall { store, call })
    }

    /// Calls it once.
    pub fn call(&mut self) -> Result<(), EngineError> {
        let called = self.call.call(&mut self.store, ());
        called.map_err(|e| EngineError::Machine(e.to_string()))
    }
}
