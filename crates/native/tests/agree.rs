//! Every service does the same in WebAssembly as natively: the benchmark with few requests.

use e3_native::cases::ALL;
use e3_native::compare::{Effort, measure};
use std::path::Path;

#[test]
fn services_do_the_same_in_webassembly_and_natively() {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/services");
    let services = std::env::var_os("E3_SERVICES").map_or(built, Into::into);
    if !services.join("ipsec.wasm").is_file() {
        println!("SKIPPED: target/services is not built (cargo xtask build-services)");
        return;
    }
    let effort = Effort {
        rounds: 1,
        compared: 256,
    };
    for (name, case) in ALL {
        let figure = measure(&case(), &services, effort);
        let figure = figure.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(figure.compared >= 512, "{name}: {figure:?}");
        assert!(figure.rps > 0.0 && figure.native_rps > 0.0, "{figure:?}");
        assert!((100.0..600.0).contains(&figure.bytes), "{figure:?}");
    }
}
