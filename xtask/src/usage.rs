//! The tasks, as they are listed and as documents may name them.

/// The help text.
pub const USAGE: &str = "\
usage: cargo xtask <command>

  check                         all checks; never writes
  check --quick                 the same without format and clippy
  fix                           format, clippy's fixes, the core crates' clippy.toml
  fix --quick                   only the core crates' clippy.toml
  build-services [options]      services to WebAssembly, in target/services/NAME.wasm
      --out DIR                 put them in DIR instead
      --toolchain rustup|debian use this toolchain instead of the first that is there
";
