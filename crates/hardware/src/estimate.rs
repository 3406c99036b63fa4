//! A value that is not known exactly: the best single value, and the range in which it plausibly is.

use serde::Serialize;

/// A value with its plausible range. Invariant: `low <= value <= high`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// Lowest plausible value.
    pub low: f64,
    /// Best single value.
    pub value: f64,
    /// Highest plausible value.
    pub high: f64,
}

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Measured by `e3 profile`.
    Measured,
    /// From a table of the paper.
    Paper,
    /// From the maker's data sheet.
    DataSheet,
    /// The maker's list price.
    ListPrice,
    /// Given by the user, or a default.
    Assumed,
    /// From a model.
    Modelled,
    /// Nobody states it.
    Guess,
}

impl Estimate {
    /// A value that is known.
    pub fn exact(value: f64) -> Estimate {
        Estimate {
            low: value,
            value,
            high: value,
        }
    }

    /// A value that is known only roughly: `low` and `high` are factors.
    pub fn within(value: f64, low: f64, high: f64) -> Estimate {
        Estimate {
            low: value * low,
            value,
            high: value * high,
        }
    }

    /// Whether nothing about it is uncertain.
    pub fn is_exact(&self) -> bool {
        self.low == self.high
    }

    /// Product of two estimates of positive values, both at the same end.
    pub fn times(&self, other: &Estimate) -> Estimate {
        Estimate {
            low: self.low * other.low,
            value: self.value * other.value,
            high: self.high * other.high,
        }
    }

    /// Sum of two estimates, both at the same end.
    pub fn plus(&self, other: &Estimate) -> Estimate {
        Estimate {
            low: self.low + other.low,
            value: self.value + other.value,
            high: self.high + other.high,
        }
    }

    /// Times an exact factor, 0 or more.
    pub fn scaled(&self, factor: f64) -> Estimate {
        self.times(&Estimate::exact(factor))
    }
}

impl Origin {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Origin::Measured => "measured",
            Origin::Paper => "paper",
            Origin::DataSheet => "data sheet",
            Origin::ListPrice => "list price",
            Origin::Assumed => "assumed",
            Origin::Modelled => "modelled",
            Origin::Guess => "guess",
        }
    }

    /// As written in `profiles/present/parts.csv`.
    pub fn parse(text: &str) -> Option<Origin> {
        match text {
            "data-sheet" => Some(Origin::DataSheet),
            "list-price" => Some(Origin::ListPrice),
            "guess" => Some(Origin::Guess),
            _ => None,
        }
    }
}
