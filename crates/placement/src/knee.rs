//! What counts come to, and which are better.

/// The application at its knee.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Knee {
    /// Requests per second.
    pub(crate) rate_rps: f64,
    /// Energy that a request adds: the mean over a day whose busiest hour is at the knee.
    pub(crate) joules: f64,
    /// The site that bounds the rate.
    pub(crate) bound: usize,
    /// By how much the longest path exceeds the latency objective, in microseconds; 0 if it does not.
    pub(crate) late_us: f64,
}

impl Knee {
    /// Whether it is closer to the latency objective, or else needs less energy. Both by more than the part
    /// `gain_min`.
    pub(crate) fn is_better(&self, than: &Knee, gain_min: f64) -> bool {
        let part = 1.0 - gain_min;
        if self.late_us == 0.0 && than.late_us == 0.0 {
            return self.joules < than.joules * part;
        }
        let is_as_late = (self.late_us - than.late_us).abs() <= than.late_us * gain_min;
        self.late_us < than.late_us * part || is_as_late && self.joules < than.joules * part
    }
}
