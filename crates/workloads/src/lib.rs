//! Workloads: what each application is sent, and what its answers and its state must be.
//!
//! One module for each application; what several share is in [`packets`], `oracles`
//! (what services must answer, computed independently) and `readback` (queries about the state).

mod error;
mod inputs;
pub mod iot_dh;
pub mod iot_ts;
pub mod kvs;
pub mod limits;
pub mod nfv_din;
pub mod nfv_fin;
pub mod nfv_ifid;
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
use iot_dh::IotDh;
use iot_ts::{IotTs, Settings};
use kvs::Kvs;
use nfv_din::NfvDin;
use nfv_fin::NfvFin;
use nfv_ifid::NfvIfid;
use plain::Plain;
use rta_ptc::RtaPtc;
use rta_sf::RtaSf;
use rta_shm::RtaShm;

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
    match application {
        "iot-dh" => Ok(Box::new(IotDh::new(inputs, &token_key("iot-dh")?)?)),
        "iot-ts" => {
            let settings = Settings::new(inputs, token_key("iot-ts")?);
            Ok(Box::new(IotTs::new(settings)?))
        }
        "kvs" => Ok(Box::new(Kvs::new(inputs))),
        "nfv-din" => Ok(Box::new(NfvDin::new(inputs)?)),
        "nfv-fin" => Ok(Box::new(NfvFin::new(inputs))),
        "nfv-ifid" => Ok(Box::new(NfvIfid::new(inputs)?)),
        "rta-ptc" => Ok(Box::new(RtaPtc::new(inputs))),
        "rta-sf" => Ok(Box::new(RtaSf::new(inputs)?)),
        "rta-shm" => Ok(Box::new(RtaShm::new(inputs))),
        _ => Ok(Box::new(Plain::new(inputs.seed))),
    }
}
