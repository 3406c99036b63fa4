//! An independent nearest-neighbour classifier, by exhaustive search.

use std::collections::BTreeMap;

/// Labelled training points.
#[derive(Debug)]
pub(super) struct Nearest {
    points: Vec<(String, Vec<f64>)>,
    k: usize,
}

impl Nearest {
    /// Of an asset of the service `knn`: a line for each point, its label and its numbers.
    pub(super) fn new(asset: &str, k: usize) -> Nearest {
        let lines = asset.lines().filter(|l| !l.starts_with('#'));
        let points = lines.filter_map(|line| {
            let (label, numbers) = line.split_once(',')?;
            let numbers: Result<_, _> = numbers.split(',').map(str::parse).collect();
            Some((label.to_string(), numbers.ok()?))
        });
        Nearest {
            points: points.collect(),
            k,
        }
    }

    /// The most frequent label of the k nearest points; of equally frequent ones the first in order.
    pub(super) fn class(&self, features: &[f64]) -> &str {
        let squared = |point: &[f64]| -> f64 {
            let pairs = point.iter().zip(features);
            pairs.map(|(a, b)| (a - b) * (a - b)).sum()
        };
        let mut near: Vec<(f64, &str)> = Vec::with_capacity(self.k + 1);
        for (label, point) in &self.points {
            let distance = squared(point);
            // of equally near points the first of the asset is the nearer
            let place = near.iter().rposition(|n| n.0 <= distance);
            near.insert(place.map_or(0, |p| p + 1), (distance, label));
            near.truncate(self.k);
        }
        let mut votes: BTreeMap<&str, u32> = BTreeMap::new();
        for (_, label) in near {
            *votes.entry(label).or_default() += 1;
        }
        let most = votes.iter().rev().max_by_key(|(_, n)| **n);
        most.map_or("", |(label, _)| label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_majority_of_the_nearest_decides_and_ties_go_by_order() {
        let nearest = Nearest::new("# label\nb,0,0\nb,0,1\na,5,5\na,5,6\nc,9,9\n", 3);
        assert_eq!(nearest.class(&[0.0, 0.0]), "b");
        assert_eq!(nearest.class(&[6.0, 6.0]), "a");
        // one vote each among b, a and c
        let nearest = Nearest::new("c,0\nb,1\na,2\na,9", 3);
        assert_eq!(nearest.class(&[0.0]), "a");
        // equally near: the first of the asset
        let nearest = Nearest::new("b,1\na,-1", 1);
        assert_eq!(nearest.class(&[0.0]), "b");
    }
}
