//! Which candidate is cheapest when, and what moves that.

use crate::closed::Subject;
use crate::cost::{break_even_price, break_even_years, cost_efficiency};
use crate::inputs::Settings;
use crate::limits::{LOADS, PRICES, YEARS_COMPARED};
use crate::outputs::{Outputs, World};
use crate::plan::{End, Entry, Input, PartQuantity, Varied, planned};
use crate::report::{
    Assumption, BreakEven, CandidateReport, Figure, Figures, Grid, GridRow, LoadRow, Plan,
    SensitivityEnd, SensitivityRow,
};

use e3_hardware::guesses::GUESSES;
use e3_hardware::servers::Quantity;
use e3_hardware::{Estimate, Origin};
use e3_model::NodeKind;

/// Prices of electricity that are compared where the given one is 0.
const PRICES_USD_KWH: [f64; 5] = [0.0, 0.05, 0.1, 0.2, 0.4];

/// Everything that was computed.
pub(crate) struct Compared<'a> {
    pub subject: &'a Subject<'a>,
    pub settings: &'a Settings,
    pub entries: &'a [Entry<'a>],
    pub varied: &'a [Varied],
}

/// Index of the lowest value; of equal ones the first.
fn lowest(values: &[Option<f64>]) -> Option<usize> {
    let known = values
        .iter()
        .enumerate()
        .filter_map(|(at, v)| Some((at, (*v)?)));
    let least = known.reduce(|a, b| if b.1 < a.1 { b } else { a });
    least.map(|(at, _)| at)
}

fn cost(outputs: &Option<Outputs>) -> Option<f64> {
    outputs.as_ref().map(|o| o.ownership_usd)
}

impl Compared<'_> {
    pub(crate) fn report(&self) -> Plan {
        let settings = self.settings;
        let central = self.central(&settings.world());
        let costs: Vec<Option<f64>> = central.iter().map(cost).collect();
        let carbon: Vec<Option<f64>> = central.iter().map(|o| Some(o.as_ref()?.co2_kg)).collect();
        let all = self.entries.iter().enumerate();
        let candidates = all.map(|(at, entry)| self.candidate(at, entry, central[at].as_ref()));
        let by_load = self.by_load();
        Plan {
            app: self.subject.app.name.clone(),
            load_rps: settings.load_rps,
            average_rps: settings.average_rps() * settings.utilisation.value,
            p99_ms_objective: self.subject.p99_us / 1e3,
            years: settings.years,
            grow_shards: settings.grow_shards,
            assumptions: self.assumptions(),
            candidates: candidates.collect(),
            cheapest: self.name(lowest(&costs)),
            least_carbon: self.name(lowest(&carbon)),
            by_years_and_price: self.grid(),
            break_even: self.break_even(&central, &by_load),
            by_load,
            sensitivity: self.sensitivity(&costs),
        }
    }

    fn name(&self, at: Option<usize>) -> Option<String> {
        Some(self.entries[at?].entrant.candidate.name.clone())
    }

    /// The figures at the planned load.
    fn central(&self, world: &World) -> Vec<Option<Outputs>> {
        let outputs = |e: &Entry<'_>| {
            let operating = e.operating?;
            Some(operating.outputs(&e.entrant.block(), world, self.settings.average_rps()))
        };
        self.entries.iter().map(outputs).collect()
    }

    fn assumptions(&self) -> Vec<Assumption> {
        let s = self.settings;
        let given = |name, estimate, unit| Assumption {
            name,
            figure: Figure {
                estimate,
                unit,
                from: Origin::Assumed,
            },
        };
        vec![
            given("price of electricity", s.price_usd_kwh, "$/kWh"),
            given("carbon intensity", s.carbon_g_kwh, "g/kWh"),
            given("power usage effectiveness", s.pue, ""),
            given("utilisation", s.utilisation, ""),
        ]
    }

    fn candidate(
        &self,
        at: usize,
        entry: &Entry<'_>,
        central: Option<&Outputs>,
    ) -> CandidateReport {
        let candidate = &entry.entrant.candidate;
        let times = entry.entrant.service_times();
        let speed = |kind| {
            candidate.has(kind).then(|| Figure {
                estimate: entry.entrant.speed(kind),
                unit: "x",
                from: times,
            })
        };
        let cannot = entry.sized[planned()].as_ref().err();
        CandidateReport {
            name: candidate.name.clone(),
            service_times: times,
            host_speed: speed(NodeKind::Host),
            smartnic_speed: speed(NodeKind::SmartNic),
            idle_w: figure(candidate.sum(|p| p.idle_w), "W"),
            peak_w: figure(candidate.sum(|p| p.peak_w), "W"),
            price_usd: figure(candidate.sum(|p| p.price_usd), "$"),
            cannot: cannot.map(ToString::to_string),
            figures: central.and_then(|central| self.figures(at, entry, central)),
        }
    }

    fn figures(&self, at: usize, entry: &Entry<'_>, central: &Outputs) -> Option<Figures> {
        let sized = entry.sized[planned()].as_ref().ok()?;
        let modelled = |unit, estimate| Figure {
            estimate,
            unit,
            from: Origin::Modelled,
        };
        let range = |of: fn(&Outputs) -> f64| self.range(at, of(central), of);
        let servers = self.extremes(at, central.servers, |o| o.servers);
        let average = self.settings.average_rps() * self.settings.utilisation.value;
        let world = self.settings.world();
        let (years, price) = (world.years, world.price_usd_kwh);
        Some(Figures {
            servers: modelled("", servers),
            watts_peak: modelled("W", range(|o| o.watts_peak)),
            watts_average: modelled("W", range(|o| o.watts_average)),
            joules_per_request: modelled("J", range(|o| o.joules)),
            capex_usd: modelled("$", range(|o| o.capex_usd)),
            electricity_usd: modelled("$", range(|o| o.electricity_usd)),
            ownership_usd: modelled("$", range(|o| o.ownership_usd)),
            co2_kg: modelled("kg", range(|o| o.co2_kg)),
            requests_per_usd: cost_efficiency(average, &central.owned(), years, price),
            p99_ms: sized.p99_us / 1e3,
            knee_rps: sized.knee_rps,
            bottleneck: sized.bottleneck.clone(),
            shards: sized.shards.iter().cloned().collect(),
            assumptions: sized.assumptions.clone(),
            fails_at: self.fails_at(at),
        })
    }

    /// The ends of inputs at which a candidate does not carry the load.
    fn fails_at(&self, at: usize) -> Vec<String> {
        let mut fails = Vec::new();
        for v in self.varied {
            for (end, outputs) in [End::Low, End::High].into_iter().zip(&v.ends) {
                if outputs[at].is_none() {
                    let (name, part, estimate, _) = self.describe(&v.input);
                    let of = part.map_or(String::new(), |part| format!(" of {part}"));
                    fails.push(format!("{name}{of} {}", end.of(&estimate)));
                }
            }
        }
        fails
    }

    /// What a candidate's figure is at the ends of all inputs.
    fn ends(&self, at: usize, of: fn(&Outputs) -> f64) -> impl Iterator<Item = [Option<f64>; 2]> {
        let end = move |outputs: &Vec<Option<Outputs>>| outputs[at].as_ref().map(of);
        self.varied
            .iter()
            .map(move |v| [end(&v.ends[0]), end(&v.ends[1])])
    }

    /// Range of a figure: the effects of the inputs are independent, so their squares add up.
    fn range(&self, at: usize, value: f64, of: fn(&Outputs) -> f64) -> Estimate {
        let (mut below, mut above) = (0.0, 0.0);
        for ends in self.ends(at, of) {
            let known = || ends.into_iter().flatten();
            let low = known().fold(value, f64::min);
            let high = known().fold(value, f64::max);
            below += (value - low).powi(2);
            above += (high - value).powi(2);
        }
        Estimate {
            // A sum of squares may exceed a positive figure.
            low: (value - below.sqrt()).max(0.0),
            value,
            high: value + above.sqrt(),
        }
    }

    /// Range of a count: its extremes.
    fn extremes(&self, at: usize, value: f64, of: fn(&Outputs) -> f64) -> Estimate {
        let known = || self.ends(at, of).flatten().flatten();
        Estimate {
            low: known().fold(value, f64::min),
            value,
            high: known().fold(value, f64::max),
        }
    }

    fn grid(&self) -> Grid {
        let world = self.settings.world();
        let given = world.price_usd_kwh;
        let prices_usd_kwh = if given > 0.0 {
            PRICES.map(|factor| given * factor)
        } else {
            PRICES_USD_KWH
        };
        let mut years = YEARS_COMPARED.to_vec();
        years.push(world.years);
        years.sort_by(f64::total_cmp);
        years.dedup();
        let row = |years: f64| {
            let cheapest = |price: &f64| {
                let world = World {
                    years,
                    price_usd_kwh: *price,
                    ..world
                };
                let costs: Vec<_> = self.central(&world).iter().map(cost).collect();
                self.name(lowest(&costs))
            };
            GridRow {
                years,
                cheapest: prices_usd_kwh.iter().map(cheapest).collect(),
            }
        };
        Grid {
            rows: years.into_iter().map(row).collect(),
            prices_usd_kwh: prices_usd_kwh.to_vec(),
        }
    }

    fn by_load(&self) -> Vec<LoadRow> {
        let world = self.settings.world();
        let row = |(at, factor): (usize, &f64)| {
            let found = |e: &Entry<'_>| {
                let sized = e.sized[at].as_ref().ok()?;
                let average = self.settings.average_rps() * factor;
                let operating = e.operating(sized);
                Some(operating.outputs(&e.entrant.block(), &world, average))
            };
            let outputs: Vec<Option<Outputs>> = self.entries.iter().map(found).collect();
            let costs: Vec<Option<f64>> = outputs.iter().map(cost).collect();
            let servers = outputs.iter().map(|o| Some(o.as_ref()?.servers as usize));
            LoadRow {
                load_rps: self.settings.load_rps * factor,
                servers: servers.collect(),
                cheapest: self.name(lowest(&costs)),
                ownership_usd: costs,
            }
        };
        LOADS.iter().enumerate().map(row).collect()
    }

    fn break_even(&self, central: &[Option<Outputs>], by_load: &[LoadRow]) -> Vec<BreakEven> {
        let costs: Vec<Option<f64>> = central.iter().map(cost).collect();
        let Some(first) = lowest(&costs) else {
            return Vec::new();
        };
        let world = self.settings.world();
        let mut found = Vec::new();
        for (at, other) in central.iter().enumerate() {
            let (Some(a), Some(b)) = (&central[first], other) else {
                continue;
            };
            if at == first {
                continue;
            }
            let (a, b) = (a.owned(), b.owned());
            let name = |at: usize| self.entries[at].entrant.candidate.name.clone();
            found.push(BreakEven {
                cheapest: name(first),
                other: name(at),
                years: break_even_years(&a, &b, world.pue, world.price_usd_kwh),
                price_usd_kwh: break_even_price(&a, &b, world.pue, world.years),
                load_rps: change(by_load, first, at),
            });
        }
        found
    }

    /// Name, part, range and origin of an input.
    fn describe(&self, input: &Input) -> (String, Option<String>, Estimate, Origin) {
        let s = self.settings;
        let assumed = |name: &str, e: Estimate| (name.into(), None, e, Origin::Assumed);
        match input {
            Input::Price => assumed("price of electricity, $/kWh", s.price_usd_kwh),
            Input::Carbon => assumed("carbon intensity, g/kWh", s.carbon_g_kwh),
            Input::Pue => assumed("power usage effectiveness", s.pue),
            Input::Utilisation => assumed("utilisation", s.utilisation),
            Input::OfPart(part, of) => {
                let name = match of {
                    PartQuantity::Price => "price, $",
                    PartQuantity::Idle => "idle power, W",
                    PartQuantity::Peak => "peak power, W",
                };
                let quantity = of.of(part);
                let part = Some(part.name.clone());
                (name.into(), part, quantity.estimate, quantity.from)
            }
            Input::Speed(part, _, quantity) => {
                let name = "speed of a core, x".to_string();
                (name, Some(part.clone()), quantity.estimate, quantity.from)
            }
            Input::Guess(at) => {
                let guess = &GUESSES[*at];
                let estimate = Estimate {
                    low: guess.low,
                    value: guess.value,
                    high: guess.high,
                };
                (guess.name.into(), None, estimate, Origin::Guess)
            }
        }
    }

    fn sensitivity(&self, central: &[Option<f64>]) -> Vec<SensitivityRow> {
        let first = lowest(central);
        let second = first.and_then(|first| {
            let mut others = central.to_vec();
            others[first] = None;
            lowest(&others)
        });
        let matters = |v: &&Varied| v.input != Input::Carbon;
        let rows = self.varied.iter().filter(matters).map(|v| {
            let (input, part, estimate, from) = self.describe(&v.input);
            let end = |which: End, outputs: &Vec<Option<Outputs>>| {
                let costs: Vec<Option<f64>> = outputs.iter().map(cost).collect();
                SensitivityEnd {
                    value: which.of(&estimate),
                    cheapest: self.name(lowest(&costs)),
                    ownership_usd: costs,
                }
            };
            let low = end(End::Low, &v.ends[0]);
            let high = end(End::High, &v.ends[1]);
            let gap = |end: &SensitivityEnd| {
                let cost = |at: usize| end.ownership_usd[at];
                match second {
                    Some(second) => Some(cost(second)? - cost(first?)?),
                    None => cost(first?),
                }
            };
            let swing_usd = gap(&low)
                .zip(gap(&high))
                .map(|(low, high)| (high - low).abs());
            let usual = self.name(first);
            SensitivityRow {
                input,
                part,
                from,
                moves_cheapest: low.cheapest != usual || high.cheapest != usual,
                low,
                high,
                swing_usd,
            }
        });
        let mut rows: Vec<SensitivityRow> = rows.collect();
        let key = |r: &SensitivityRow| r.swing_usd.unwrap_or(f64::INFINITY);
        rows.sort_by(|a, b| key(b).total_cmp(&key(a)));
        rows
    }
}

fn figure(quantity: Quantity, unit: &'static str) -> Figure {
    Figure {
        estimate: quantity.estimate,
        unit,
        from: quantity.from,
    }
}

/// The loads between which the cheaper one of two candidates changes.
fn change(by_load: &[LoadRow], first: usize, other: usize) -> Option<(f64, f64)> {
    let is_cheaper = |row: &LoadRow| Some(row.ownership_usd[first]? <= row.ownership_usd[other]?);
    let between = by_load.windows(2).find(|w| {
        let both = is_cheaper(&w[0]).zip(is_cheaper(&w[1]));
        both.is_some_and(|(a, b)| a != b)
    });
    between.map(|w| (w[0].load_rps, w[1].load_rps))
}
