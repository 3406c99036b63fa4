//! Writes the training points of Twitter analytics, `data/rta-ptc-points.csv`, to standard output:
//! 60 vectors of each topic, from another seed than any load.

use e3_random::Random;
use e3_workloads::rta_ptc::tweets::{TOPICS, topic_name, vector};

const POINTS_PER_TOPIC: usize = 60;

fn main() {
    println!(
        "# label, then the features; written by: cargo run -p e3-workloads --example topic_points"
    );
    let mut random = Random::new(u64::MAX);
    for _ in 0..POINTS_PER_TOPIC {
        for topic in 0..TOPICS {
            let numbers = vector(topic, &mut random).map(|v| format!("{v:.4}"));
            println!("{},{}", topic_name(topic), numbers.join(","));
        }
    }
}
