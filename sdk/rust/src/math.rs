//! Functions that are WebAssembly instructions but not part of `core`: a module without `std` would
//! compute them in software.

/// The square root.
#[inline]
pub fn sqrt(value: f64) -> f64 {
    #[cfg(target_arch = "wasm32")]
    {
        use core::arch::wasm32::{f64x2_extract_lane, f64x2_splat, f64x2_sqrt};
        f64x2_extract_lane::<0>(f64x2_sqrt(f64x2_splat(value)))
    }
    #[cfg(not(target_arch = "wasm32"))]
    value.sqrt()
}

/// The whole number towards zero.
#[inline]
pub fn trunc(value: f64) -> f64 {
    #[cfg(target_arch = "wasm32")]
    {
        use core::arch::wasm32::{f64x2_extract_lane, f64x2_splat, f64x2_trunc};
        f64x2_extract_lane::<0>(f64x2_trunc(f64x2_splat(value)))
    }
    #[cfg(not(target_arch = "wasm32"))]
    value.trunc()
}

/// The nearest whole number; of two that are equally near, the one further from zero.
#[inline]
pub fn round(value: f64) -> f64 {
    // with 0.5 the sum could itself be rounded up to the next whole number
    trunc(value + 0.5f64.next_down().copysign(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Host;

    #[test]
    fn halves_go_away_from_zero() {
        let host = Host::new();
        let edges = [
            0.0,
            -0.0,
            0.5,
            0.5f64.next_down(),
            2.5,
            -3.5,
            1e300,
            f64::NAN,
        ];
        let any = (0..100_000).map(|_| f64::from_bits(host.random()));
        let near = (0..100_000).map(|n| f64::from(n - 50_000) / 4.0);
        for value in any.chain(near).chain(edges) {
            let (ours, expected) = (round(value), value.round());
            let same = ours.to_bits() == expected.to_bits() || ours.is_nan() && expected.is_nan();
            assert!(same, "{value}: {ours}, not {expected}");
        }
    }
}
