//! Workloads: what each application is sent, and what its answers and its state must be.
//!
//! One module for each application, with a generator (what it is sent) and an oracle (what it must
//! answer and keep), which `load` joins. What several share is in [`packets`], `oracles` (what services
//! must answer, computed independently) and `readback` (queries about the state).

mod error;
mod inputs;
pub mod iot_dh;
pub mod iot_ts;
pub mod kvs;
pub mod limits;
mod load;
mod nfv_din;
mod nfv_fin;
mod nfv_ifid;
mod oracles;
pub mod packets;
pub mod plain;
mod readback;
pub mod rta_ptc;
pub mod rta_sf;
pub mod rta_shm;
mod tokens;

pub use error::WorkloadError;
pub use inputs::Inputs;

use e3_loadgen::Workload;
use iot_ts::{IotTs, Settings};
use kvs::Kvs;
use plain::Plain;

/// Secrets that the workload of an application needs.
pub fn secrets(application: &str) -> &'static [&'static str] {
    match application {
        "iot-dh" | "iot-ts" => &["token-key"],
        _ => &[],
    }
}

/// The workload of an application, by its name; small plain requests if it has none of its own.
pub fn for_application(
    application: &str,
    inputs: &Inputs,
) -> Result<Box<dyn Workload>, WorkloadError> {
    let token_key = |workload| {
        let key = inputs.secrets.get("token-key");
        key.cloned().ok_or(WorkloadError::MissingSecret {
            workload,
            secret: "token-key",
        })
    };
    Ok(match application {
        "iot-dh" => Box::new(iot_dh::load(inputs, &token_key("iot-dh")?)?),
        "iot-ts" => Box::new(IotTs::new(Settings::new(inputs, token_key("iot-ts")?))?),
        "kvs" => Box::new(Kvs::new(inputs)),
        "nfv-din" => Box::new(nfv_din::load(inputs)?),
        "nfv-fin" => Box::new(nfv_fin::load(inputs)),
        "nfv-ifid" => Box::new(nfv_ifid::load(inputs)?),
        "rta-ptc" => Box::new(rta_ptc::load(inputs)),
        "rta-sf" => Box::new(rta_sf::load(inputs)?),
        "rta-shm" => Box::new(rta_shm::load(inputs)),
        _ => Box::new(Plain::new(inputs.seed)),
    })
}
