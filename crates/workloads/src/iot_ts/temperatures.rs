//! The readings that thermostats replay: hourly climate normals of two real stations (data/README.md).

use crate::error::WorkloadError;

const CSV: &str = include_str!("../../../../data/temperatures.csv");

/// Hourly temperatures of one station over a year, in tenths of a degree Celsius.
pub(super) type Series = Vec<i16>;

/// The stations of the data set.
pub(super) fn stations() -> Result<[Series; 2], WorkloadError> {
    parse(CSV)
}

fn parse(csv: &str) -> Result<[Series; 2], WorkloadError> {
    let mut stations = [Series::new(), Series::new()];
    for (n, line) in csv.lines().enumerate().skip(1) {
        let fault = || WorkloadError::Temperatures {
            line: n + 1,
            text: line.to_owned(),
        };
        let mut fields = line.split(',').skip(1).map(|f| f.trim().parse::<i16>());
        for station in &mut stations {
            match fields.next() {
                Some(Ok(value)) if (-1000..=1000).contains(&value) => station.push(value),
                _ => return Err(fault()),
            }
        }
        if fields.next().is_some() {
            return Err(fault());
        }
    }
    if stations[0].is_empty() {
        return Err(WorkloadError::Temperatures {
            line: 2,
            text: String::new(),
        });
    }
    Ok(stations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_is_a_year_of_two_stations() {
        let [a, b] = stations().unwrap();
        assert_eq!(a.len(), b.len());
        assert!((8000..=8784).contains(&a.len()), "{}", a.len());
    }

    #[test]
    fn faults_name_the_line() {
        for bad in [
            "h,a,b\n0,1,2\n1,2",
            "h,a,b\n0,1,2\n1,2,x",
            "h,a,b\n0,1,2\n1,2,3,4",
        ] {
            assert!(
                matches!(parse(bad), Err(WorkloadError::Temperatures { line: 3, .. })),
                "{bad}"
            );
        }
        assert!(parse("h,a,b\n").is_err());
        assert!(parse("h,a,b\n0,1,1001\n").is_err());
    }
}
