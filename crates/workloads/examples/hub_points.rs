//! Writes the training points of the IoT data hub, `data/iot-dh-points.csv`, to standard output: 80
//! reports of each state, from another seed than any load.

use e3_random::Random;
use e3_workloads::iot_dh::sensors::{State, features};

const POINTS_PER_STATE: usize = 80;

fn main() {
    println!(
        "# label, then the features; written by: cargo run -p e3-workloads --example hub_points"
    );
    let mut random = Random::new(u64::MAX);
    for _ in 0..POINTS_PER_STATE {
        for state in State::ALL {
            let numbers = features(&state.samples(&mut random)).map(|v| format!("{v:.4}"));
            println!("{},{}", state.name(), numbers.join(","));
        }
    }
}
