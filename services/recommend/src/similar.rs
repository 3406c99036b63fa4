//! How similar items are: the cosine of their ratings over all users, from the ratings' dot products.
//!
//! Source: Sarwar et al., "Item-based collaborative filtering recommendation algorithms", WWW 2001.
//! Dot products are whole numbers, so updated and rebuilt ones are equal to the last bit.

use crate::ratings::{CENTS, ITEMS_MAX, Item, Ratings};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Predictions are rounded to this fraction, so that floating-point errors decide no tie.
const PARTS: f64 = 1e9;

/// There are too many items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// Dot products of the items' ratings over all users.
#[derive(Clone, Debug)]
pub struct Similar {
    /// Place of each item among the dot products.
    places: BTreeMap<Item, usize>,
    /// `dots[i * ITEMS_MAX + j]`, symmetric, in hundredths squared.
    dots: Vec<u64>,
}

/// A user's rating of an item, known or predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Recommendation {
    /// The item.
    pub item: Item,
    /// Its predicted rating, or the user's own.
    pub rating: f64,
    /// It is the user's own.
    pub rated: bool,
}

/// One of a user's ratings: place of the item, rating before and now.
type Change = (usize, u64, u64);

impl Default for Similar {
    fn default() -> Self {
        Self {
            places: BTreeMap::new(),
            dots: alloc::vec![0; ITEMS_MAX * ITEMS_MAX],
        }
    }
}

impl Similar {
    /// Takes a user's ratings `new` instead of `old`, which has no item that `new` has not. Nothing
    /// changes if there are too many items.
    pub fn replace(&mut self, old: &Ratings, new: &Ratings) -> Result<(), TooMany> {
        let unknown = new.0.iter().filter(|(i, _)| !self.places.contains_key(i));
        if self.places.len() + unknown.count() > ITEMS_MAX {
            return Err(TooMany);
        }
        let mut before = old.0.iter().peekable();
        let changes: Vec<Change> = new
            .0
            .iter()
            .map(|(item, now)| {
                let was = before.next_if(|(i, _)| i == item).map_or(0, |(_, r)| *r);
                (self.place(item), u64::from(was), u64::from(*now))
            })
            .collect();
        for &(i, was_i, is_i) in changes.iter().filter(|(_, was, is)| was != is) {
            for &(j, was_j, is_j) in &changes {
                let more = (is_i * is_j).wrapping_sub(was_i * was_j);
                self.add(i, j, more);
                // where both changed, the other one is updated in its own iteration
                if was_j == is_j {
                    self.add(j, i, more);
                }
            }
        }
        Ok(())
    }

    fn place(&mut self, item: &Item) -> usize {
        if let Some(place) = self.places.get(item) {
            return *place;
        }
        let place = self.places.len();
        self.places.insert(item.clone(), place);
        place
    }

    fn add(&mut self, i: usize, j: usize, more: u64) {
        let dot = &mut self.dots[i * ITEMS_MAX + j];
        *dot = dot.wrapping_add(more);
    }

    fn dot(&self, i: usize, j: usize) -> f64 {
        self.dots[i * ITEMS_MAX + j] as f64
    }

    /// The items most similar to this one, the most similar first, of equals the first in their
    /// order; None if nobody rated the item.
    pub fn most(&self, item: &Item, count: usize) -> Option<Vec<(&Item, f64)>> {
        let i = *self.places.get(item)?;
        let others = self.places.iter().filter(|(_, j)| **j != i);
        let mut all: Vec<_> = others
            .map(|(other, &j)| {
                let norms = e3_sdk::math::sqrt(self.dot(i, i) * self.dot(j, j));
                (other, rounded(self.dot(i, j) / norms))
            })
            .collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.truncate(count);
        Some(all)
    }

    /// What a user has rated an item, or would: then it is the mean of the user's ratings, weighted by
    /// how similar their items are to this one. None if none of them is.
    pub fn rating(&self, ratings: &Ratings, item: Item) -> Option<Recommendation> {
        let (rating, rated) = match ratings.of(&item) {
            Some(cents) => (f64::from(cents) / f64::from(CENTS), true),
            None => {
                let place = *self.places.get(&item)?;
                (self.predict(&self.weighted(ratings), place)?, false)
            }
        };
        Some(Recommendation {
            item,
            rating,
            rated,
        })
    }

    /// The user's ratings: place, rating, and one over the norm of the item's ratings.
    fn weighted(&self, ratings: &Ratings) -> Vec<(usize, f64, f64)> {
        let known = ratings.0.iter();
        known
            .filter_map(|(item, cents)| {
                let j = *self.places.get(item)?;
                let rating = f64::from(*cents) / f64::from(CENTS);
                Some((j, rating, 1.0 / e3_sdk::math::sqrt(self.dot(j, j))))
            })
            .collect()
    }

    /// The weighted mean. The norm of the item itself is left out: numerator and denominator have it.
    fn predict(&self, weighted: &[(usize, f64, f64)], i: usize) -> Option<f64> {
        let (mut sum, mut weights) = (0.0, 0.0);
        for &(j, rating, by_norm) in weighted {
            let weight = self.dot(i, j) * by_norm;
            sum += weight * rating;
            weights += weight;
        }
        (weights > 0.0).then(|| rounded(sum / weights))
    }

    /// The best by prediction of what the user has not rated; if there is none to predict, the best
    /// of what the user has rated. Of equals the first in the order of items.
    pub fn recommend(&self, ratings: &Ratings) -> Option<Recommendation> {
        let weighted = self.weighted(ratings);
        let unrated = self.places.iter().filter(|(i, _)| ratings.of(i).is_none());
        let predicted = unrated.filter_map(|(item, i)| Some((item, self.predict(&weighted, *i)?)));
        let own = ratings.0.iter();
        let own = own.map(|(item, cents)| (item, f64::from(*cents) / f64::from(CENTS)));
        let (found, rated) = match best(predicted) {
            Some(found) => (found, false),
            None => (best(own)?, true),
        };
        Some(Recommendation {
            item: found.0.clone(),
            rating: found.1,
            rated,
        })
    }
}

fn best<'a>(all: impl Iterator<Item = (&'a Item, f64)>) -> Option<(&'a Item, f64)> {
    all.reduce(|best, next| if next.1 > best.1 { next } else { best })
}

fn rounded(value: f64) -> f64 {
    e3_sdk::math::round(value * PARTS) / PARTS
}
