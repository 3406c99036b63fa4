//! The K greatest of n: quickselect (Hoare, "Algorithm 65: Find", 1961) brings them to the front in
//! O(n) on average, quicksort (Hoare, "Algorithm 64", 1961) orders those K in O(K log K).
//!
//! Pivots come from a generator that keeps its state between calls, so no input is the worst case
//! every time.

use e3_random::Random;

/// Ranges up to this long are sorted by insertion.
const INSERTION_MAX: usize = 16;

/// Brings the `k` first of all (by `before`, a strict total order) to the front, in order; returns
/// how many those are, which is less than `k` only if there are no more.
pub fn top<T: Copy>(
    all: &mut [T],
    k: usize,
    pivots: &mut Random,
    before: &impl Fn(&T, &T) -> bool,
) -> usize {
    let k = k.min(all.len());
    select(all, k, pivots, before);
    sort(&mut all[..k], pivots, before);
    k
}

/// Brings the `k` first to the front, in any order.
pub fn select<T: Copy>(
    all: &mut [T],
    k: usize,
    pivots: &mut Random,
    before: &impl Fn(&T, &T) -> bool,
) {
    let (mut low, mut high) = (0, all.len());
    while k > low && k < high && high - low > 1 {
        let at = low + partition(&mut all[low..high], pivots, before);
        // the element at `at` is in its place
        if k <= at { high = at } else { low = at + 1 }
    }
}

/// Orders all.
fn sort<T: Copy>(mut all: &mut [T], pivots: &mut Random, before: &impl Fn(&T, &T) -> bool) {
    while all.len() > INSERTION_MAX {
        let at = partition(all, pivots, before);
        let (left, right) = all.split_at_mut(at);
        let right = &mut right[1..];
        // the shorter part first: the stack stays logarithmic
        let (short, long) = if left.len() < right.len() {
            (left, right)
        } else {
            (right, left)
        };
        sort(short, pivots, before);
        all = long;
    }
    for i in 1..all.len() {
        let mut j = i;
        while j > 0 && before(&all[j], &all[j - 1]) {
            all.swap(j, j - 1);
            j -= 1;
        }
    }
}

/// Moves what comes before a drawn pivot to its left (Lomuto's scheme); returns the pivot's place.
fn partition<T: Copy>(
    all: &mut [T],
    pivots: &mut Random,
    before: &impl Fn(&T, &T) -> bool,
) -> usize {
    let last = all.len() - 1;
    all.swap(pivots.index(all.len()), last);
    let pivot = all[last];
    let mut place = 0;
    for i in 0..last {
        // no branch on the data: the swap is harmless where it is not needed
        let moves = before(&all[i], &pivot);
        all.swap(i, place);
        place += usize::from(moves);
    }
    all.swap(place, last);
    place
}
