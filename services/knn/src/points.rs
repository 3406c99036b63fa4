//! Training points, and an exact search for the nearest ones: brute force, eight points at a time.
//!
//! Cover and Hart, "Nearest neighbor pattern classification" (1967). Brute force suits any number of
//! features; with many features search trees visit nearly all points too.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use e3_pipeline::Lines;
use e3_sdk::Error;

/// Most features of a point.
pub const FEATURES_MAX: usize = 256;
/// Most numbers of all points together.
pub const NUMBERS_MAX: usize = 2 << 20;
/// Most classes.
pub const CLASSES_MAX: usize = 1024;
/// Longest label.
pub const LABEL_BYTES_MAX: usize = 255;
/// Largest absolute value of a feature: squares of differences stay finite.
pub const FEATURE_MAX: f64 = 1e150;
/// Points that are compared together: their features lie side by side.
const LANES: usize = 8;

/// Labelled points.
#[derive(Debug)]
pub struct Points {
    features: usize,
    count: usize,
    /// Blocks of eight points: first feature of each, second feature of each, and so on.
    blocks: Vec<f64>,
    /// Index into `classes` for each point.
    labels: Vec<u16>,
    /// Labels, in the order of their bytes.
    classes: Vec<String>,
}

/// A point that is near.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbour {
    /// Its squared Euclidean distance.
    pub squared: f64,
    /// Its place among the points, from 0.
    pub point: u32,
}

/// Adds the squares of the differences between a feature of the query and that of several points.
fn add_squares(sums: &mut [f64; LANES], x: f64, lanes: &[f64; LANES]) {
    for (sum, y) in sums.iter_mut().zip(lanes) {
        let difference = y - x;
        *sum += difference * difference;
    }
}

/// Inserts a point after those at the same distance; beyond `k` the last is dropped.
fn enter(best: &mut Vec<Neighbour>, k: usize, new: Neighbour) {
    if best.len() < k {
        best.push(new);
    }
    let mut place = best.len() - 1;
    while place > 0 && best[place - 1].squared > new.squared {
        best[place] = best[place - 1];
        place -= 1;
    }
    best[place] = new;
}

impl Points {
    /// Reads the asset of this name.
    pub fn load(name: &'static str) -> Result<Points, Error> {
        let mut lines = Lines::open(name)?;
        let mut points = Points {
            features: 0,
            count: 0,
            blocks: Vec::new(),
            labels: Vec::new(),
            classes: Vec::new(),
        };
        let mut row = Vec::new();
        while let Some(line) = lines.next()? {
            if let Err(why) = points.add(line, &mut row) {
                return Err(lines.error(why));
            }
        }
        if points.count == 0 {
            return Err(lines.error_of_all("has no point, must have at least 1"));
        }
        points.sort_classes();
        Ok(points)
    }

    fn add(&mut self, line: &str, row: &mut Vec<f64>) -> Result<(), String> {
        let mut cells = line.split(',').map(str::trim);
        let label = cells.next().unwrap_or_default();
        if !(1..=LABEL_BYTES_MAX).contains(&label.len()) {
            let len = label.len();
            return Err(format!(
                "label: has {len} bytes, must have 1..={LABEL_BYTES_MAX}"
            ));
        }
        row.clear();
        for (cell, number) in cells.zip(1..) {
            let value = cell.parse().ok().filter(|v: &f64| v.abs() <= FEATURE_MAX);
            let value = value.ok_or_else(|| {
                format!("feature {number}: is {cell:?}, must be a number within ±{FEATURE_MAX:e}")
            })?;
            if number > FEATURES_MAX {
                return Err(format!("has more than {FEATURES_MAX} features"));
            }
            row.push(value);
        }
        if self.count == 0 {
            self.features = row.len();
        }
        if row.is_empty() || row.len() != self.features {
            let must = match self.features {
                0 => "at least 1".to_string(),
                n => format!("{n}, as many as the first point"),
            };
            return Err(format!("has {} features, must have {must}", row.len()));
        }
        if self.blocks.len() + LANES * self.features > NUMBERS_MAX {
            return Err(format!(
                "too many numbers in all points, must be at most {NUMBERS_MAX}"
            ));
        }
        let lane = self.count % LANES;
        if lane == 0 {
            self.blocks
                .resize(self.blocks.len() + LANES * self.features, 0.0);
        }
        let start = self.blocks.len() - LANES * self.features;
        for (place, value) in self.blocks[start + lane..]
            .iter_mut()
            .step_by(LANES)
            .zip(&*row)
        {
            *place = *value;
        }
        let class = match self.classes.iter().position(|c| c == label) {
            Some(class) => class,
            None if self.classes.len() == CLASSES_MAX => {
                return Err(format!(
                    "label {label:?}: too many labels, must be at most {CLASSES_MAX}"
                ));
            }
            None => {
                self.classes.push(label.into());
                self.classes.len() - 1
            }
        };
        self.labels.push(class as u16);
        self.count += 1;
        Ok(())
    }

    fn sort_classes(&mut self) {
        let mut order: Vec<usize> = (0..self.classes.len()).collect();
        order.sort_by(|a, b| self.classes[*a].cmp(&self.classes[*b]));
        let mut place = alloc::vec![0; order.len()];
        for (new, old) in order.iter().enumerate() {
            place[*old] = new as u16;
        }
        for label in &mut self.labels {
            *label = place[usize::from(*label)];
        }
        self.classes.sort();
    }

    /// Features of a point.
    pub fn features(&self) -> usize {
        self.features
    }

    /// How many points there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The `k` nearest to `query`, the nearest first; of equally near ones the one that comes first
    /// among the points. `query` must have as many numbers as a point has features.
    pub fn nearest(&self, query: &[f64], k: usize, best: &mut Vec<Neighbour>) {
        best.clear();
        let mut worst = f64::INFINITY;
        let blocks = self.blocks.chunks_exact(LANES * self.features);
        for (block, first) in blocks.zip((0..).step_by(LANES)) {
            let mut sums = [0.0; LANES];
            // Two features for each iteration: in WebAssembly an iteration has a cost of its own.
            let (pairs, rest) = query.as_chunks::<2>();
            let (lanes, rest_lanes) = block.split_at(pairs.len() * 2 * LANES);
            for (xs, lanes) in pairs.iter().zip(lanes.as_chunks::<{ 2 * LANES }>().0) {
                for (x, lanes) in xs.iter().zip(lanes.as_chunks::<LANES>().0) {
                    add_squares(&mut sums, *x, lanes);
                }
            }
            for (x, lanes) in rest.iter().zip(rest_lanes.as_chunks::<LANES>().0) {
                add_squares(&mut sums, *x, lanes);
            }
            // a bit for each lane that may be nearer; the last block may have lanes without a point
            let points = LANES.min(self.count - first);
            let nearer = |lane: usize| u32::from(sums[lane] < worst) << lane;
            let mut near = (0..LANES).fold(0, |near, lane| near | nearer(lane));
            near &= (1 << points) - 1;
            while near != 0 {
                let lane = near.trailing_zeros() as usize;
                near &= near - 1;
                if sums[lane] < worst {
                    let point = (first + lane) as u32;
                    let squared = sums[lane];
                    enter(best, k, Neighbour { squared, point });
                    if best.len() == k {
                        worst = best[k - 1].squared;
                    }
                }
            }
        }
    }

    /// The class that most of the neighbours have, and how many do. Of equally many the class whose
    /// label comes first in the order of bytes.
    pub fn vote(&self, neighbours: &[Neighbour]) -> (&str, usize) {
        let label = |n: &Neighbour| self.labels[n.point as usize];
        let votes = |class| neighbours.iter().filter(|n| label(n) == class).count();
        let best = neighbours
            .iter()
            .map(|n| (votes(label(n)), core::cmp::Reverse(label(n))))
            .max();
        best.map_or(("", 0), |(votes, class)| {
            (&*self.classes[usize::from(class.0)], votes)
        })
    }
}
