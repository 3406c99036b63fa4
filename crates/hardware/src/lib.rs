//! Models of the hardware for the performance simulator: cores, network, PCIe and power.
//!
//! Each module names its source and what calibrates it. Only Table 1, Table 4 and the ratios of
//! Fig. 3 of E3 (USENIX ATC 2019) calibrate, and for RoCE the figures of Ma, Kim and Moon (HiPINEB
//! 2016). What these leave open is a named guess in [`guesses`], with the range in which it is
//! plausible. No guess is tuned to make a result come out. Servers of the present day ([`servers`]) are
//! described by data sheets and guesses; they are used for planning only.

pub mod cores;
pub mod estimate;
pub mod guesses;
pub mod interconnect;
pub mod link;
pub mod measured;
pub mod network;
pub mod pcie;
pub mod power;
pub mod servers;
pub mod service_time;
pub mod stack;
pub mod traffic_manager;

pub use estimate::{Estimate, Origin};
pub use guesses::Guesses;
