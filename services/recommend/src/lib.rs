//! Recommends by item-based collaborative filtering ([`similar`]): a user's rating of an item is
//! predicted from the user's ratings of other items, weighted by the cosine similarity of the items'
//! ratings over all users of the shard. The recommended item is the one with the best prediction that the
//! user has not rated; if there is no prediction, the user's best-rated item. *Ties*: predictions and
//! similarities are rounded to nine decimals; equals are ordered by item: numbers first, then texts by
//! their bytes.
//!
//! Input: a rating: `user` (text, bytes or whole number), `item` (text of 1..=32 bytes or whole
//! number 0..=4294967295), `rating` (0.01..=100, stored in hundredths; it replaces the user's previous
//! rating of the item). The service adds `recommended` (an item) and `predicted` (its rating), if there is
//! something to recommend.
//!
//! With `ratings: comfort` the input is an observation instead: `user`, `time` (seconds since the Unix
//! epoch), `temperature` (degrees Celsius, outdoors); it rates comfort programmes, the items 0..=23
//! ([`comfort`]).
//!
//! Queries ([`Stage::query`]), by `op`:
//! - `get` with the user: `item`, `rating`, `rated` (1: by the user, 0: predicted), and for comfort
//!   programmes `set_point` and `hour` (the first hour, UTC). With an item as well: the rating of that item.
//! - `similar` with an item: `items`, `similarities`, the ten most similar items of the shard.
//!
//! A user or item without ratings is answered with the status NOT_FOUND.
//!
//! Configuration: `user`, `item`, `rating`, `time`, `temperature` name the fields (default: as above),
//! `ratings` (`explicit` or `comfort`, default `explicit`), and that of [`Stage`]. The users of a shard may
//! rate 256 different items; a rating of one more is refused.
//!
//! Collection: ordered map `ratings` (the request key's slot, user -> items with their ratings), so a
//! shard can be split between slots. Dot products are cached in memory; a scan of the ratings rebuilds them
//! after a restart.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod comfort;
pub mod ratings;
pub mod similar;
#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use e3_pipeline::{Builder, Query, Record, RecordError, Stage, Value, status};
use e3_sdk::{Error, OrderedMap, Request, Service, config, reply};
use ratings::{CENTS, ITEM_BYTES_MAX, ITEMS_MAX, Item, RATING_MAX, Ratings};
use similar::Similar;

/// Longest user, in bytes.
pub const USER_BYTES_MAX: usize = 256;
/// Similar items in a reply.
pub const SIMILAR_MAX: usize = 10;

/// Names of fields.
#[derive(Debug)]
struct Fields {
    user: String,
    item: String,
    rating: String,
    time: String,
    temperature: String,
}

/// The service.
#[derive(Debug)]
pub struct Recommend {
    stage: Stage,
    fields: Fields,
    /// Whether ratings are derived from observations.
    comfort: bool,
    ratings: OrderedMap,
    /// A cache.
    similar: Option<Similar>,
    out: Builder,
    value: Vec<u8>,
}

impl Service for Recommend {
    fn init() -> Result<Self, Error> {
        let comfort = match config("ratings").as_deref() {
            None | Some("explicit") => false,
            Some("comfort") => true,
            Some(other) => {
                return Err(Error::Config {
                    name: "ratings",
                    value: other.into(),
                });
            }
        };
        let field = |name: &str| config(name).unwrap_or_else(|| name.into());
        Ok(Self {
            stage: Stage::open()?,
            fields: Fields {
                user: field("user"),
                item: field("item"),
                rating: field("rating"),
                time: field("time"),
                temperature: field("temperature"),
            },
            comfort,
            ratings: OrderedMap::open("ratings")?,
            similar: None,
            out: Builder::new(),
            value: Vec::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let handled = match self.on_request(request) {
            Ok(()) => Ok(()),
            Err(Stop::Refused(error)) => self.stage.refuse(&error),
            Err(Stop::Host(error)) => Err(error),
        };
        if handled.is_err() {
            // The writes are dropped, so the cached sums must go too.
            self.similar = None;
        }
        handled
    }
}

/// Why a request was not handled.
enum Stop {
    /// The request is invalid.
    Refused(RecordError),
    /// The host failed.
    Host(Error),
}

impl From<RecordError> for Stop {
    fn from(error: RecordError) -> Self {
        Stop::Refused(error)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Host(error)
    }
}

impl Recommend {
    fn on_request(&mut self, request: &Request<'_>) -> Result<(), Stop> {
        let record = Record::parse(request.payload())?;
        match self.stage.query(request, &record)? {
            Query::Forwarded => Ok(()),
            Query::None => self.on_rating(request, &record),
            Query::Mine("get") => self.on_get(request, &record),
            Query::Mine("similar") => self.on_similar(&record),
            Query::Mine(op) => {
                let why = format!("is {op:?}, must be \"get\" or \"similar\"");
                Err(RecordError::value("op", why).into())
            }
        }
    }

    fn on_rating(&mut self, request: &Request<'_>, record: &Record<'_>) -> Result<(), Stop> {
        let user = self.fields.user(request, record)?;
        let old = self.stored(&user).unwrap_or_default();
        let mut new = old.clone();
        if self.comfort {
            self.fields.observe(record, &mut new)?
        } else {
            self.fields.rate(record, &mut new)?
        }
        let similar = cached(&mut self.similar, &self.ratings)?;
        if similar.replace(&old, &new).is_err() {
            let why = format!("the shard has {ITEMS_MAX} rated items, the maximum");
            return Ok(reply(status::REFUSED, why.as_bytes())?);
        }
        let recommended = similar.recommend(&new);
        if new != old {
            self.value.clear();
            new.encode(&mut self.value);
            self.ratings.put(&user, &self.value)?;
        }
        self.out.clear().copy(record, &["recommended", "predicted"]);
        if let Some(found) = recommended {
            self.out
                .field("recommended", value(&found.item))
                .field("predicted", Value::Float(found.rating));
        }
        Ok(self.stage.forward_record(request, &mut self.out)?)
    }

    fn on_get(&mut self, request: &Request<'_>, record: &Record<'_>) -> Result<(), Stop> {
        let user = self.fields.user(request, record)?;
        let wanted = if record.has(&self.fields.item) {
            Some(item(record, &self.fields.item)?)
        } else {
            None
        };
        let Some(ratings) = self.stored(&user) else {
            return Ok(not_found("the user has no ratings")?);
        };
        let similar = cached(&mut self.similar, &self.ratings)?;
        let found = match wanted {
            None => similar.recommend(&ratings),
            Some(item) => similar.rating(&ratings, item),
        };
        let Some(found) = found else {
            let why = "no user has rated both this item and one that the user has rated";
            return Ok(not_found(why)?);
        };
        let out = self.out.clear();
        out.field("item", value(&found.item))
            .field("rating", Value::Float(found.rating))
            .field("rated", Value::Int(found.rated.into()));
        if self.comfort
            && let Some((set_point_c, hour)) = comfort::programme(&found.item)
        {
            out.field("set_point", Value::Float(set_point_c))
                .field("hour", Value::Int(hour as i64));
        }
        Ok(reply(status::OK, out.bytes())?)
    }

    fn on_similar(&mut self, record: &Record<'_>) -> Result<(), Stop> {
        let item = item(record, &self.fields.item)?;
        let similar = cached(&mut self.similar, &self.ratings)?;
        let Some(most) = similar.most(&item, SIMILAR_MAX) else {
            return Ok(not_found("the item has no ratings")?);
        };
        let out = self.out.clear();
        out.array("items", most.len(), |a| {
            most.iter().for_each(|(item, _)| a.push(value(item)));
        });
        out.array("similarities", most.len(), |a| {
            most.iter().for_each(|(_, s)| a.push(Value::Float(*s)));
        });
        Ok(reply(status::OK, out.bytes())?)
    }

    fn stored(&self, user: &[u8]) -> Option<Ratings> {
        Ratings::decode(&self.ratings.get_vec(user)?)
    }
}

/// The dot products, rebuilt if they are missing.
fn cached<'a>(
    similar: &'a mut Option<Similar>,
    ratings: &OrderedMap,
) -> Result<&'a mut Similar, Error> {
    match similar {
        Some(similar) => Ok(similar),
        missing => Ok(missing.insert(rebuild(ratings)?)),
    }
}

/// The dot products of all ratings of the shard.
fn rebuild(ratings: &OrderedMap) -> Result<Similar, Error> {
    let mut similar = Similar::default();
    let mut scan = ratings.scan(&[], &[]);
    while let Some((_, bytes)) = scan.next()? {
        if let Some(ratings) = Ratings::decode(bytes) {
            // There are never too many; if there were, the rest would be ignored.
            let _ = similar.replace(&Ratings::default(), &ratings);
        }
    }
    Ok(similar)
}

impl Fields {
    /// The user's key in the collection.
    fn user(&self, request: &Request<'_>, record: &Record<'_>) -> Result<Vec<u8>, RecordError> {
        let bytes = match record.bytes(&self.user) {
            Ok(bytes) => bytes.to_vec(),
            Err(error) => match record.int(&self.user) {
                Ok(int) => int.to_le_bytes().to_vec(),
                Err(_) => return Err(must_be(error, "text, bytes or a whole number")),
            },
        };
        match bytes.len() {
            1..=USER_BYTES_MAX => Ok([&request.slot().to_be_bytes()[..], &bytes].concat()),
            len => Err(RecordError::value(
                &self.user,
                format!("is {len} bytes long, must be 1..={USER_BYTES_MAX}"),
            )),
        }
    }

    fn rate(&self, record: &Record<'_>, ratings: &mut Ratings) -> Result<(), RecordError> {
        let item = item(record, &self.item)?;
        let rating = record.number(&self.rating)?;
        let cents = e3_sdk::math::round(rating * f64::from(CENTS));
        if !(1.0..=f64::from(RATING_MAX * CENTS)).contains(&cents) {
            let why = format!("is {rating}, must be 0.01..={RATING_MAX}");
            return Err(RecordError::value(&self.rating, why));
        }
        ratings.set(item, cents as u16);
        Ok(())
    }

    fn observe(&self, record: &Record<'_>, ratings: &mut Ratings) -> Result<(), RecordError> {
        let time_s = record.int(&self.time)?;
        comfort::rate(ratings, time_s, record.number(&self.temperature)?);
        Ok(())
    }
}

fn item(record: &Record<'_>, field: &str) -> Result<Item, RecordError> {
    let error = match record.text(field) {
        Ok(text) if (1..=ITEM_BYTES_MAX).contains(&text.len()) => {
            return Ok(Item::Text(text.into()));
        }
        Ok(text) => {
            let len = text.len();
            let why = format!("is {len} bytes long, must be 1..={ITEM_BYTES_MAX}");
            return Err(RecordError::value(field, why));
        }
        Err(error) => error,
    };
    match record.int(field) {
        Ok(int) => u32::try_from(int).map(Item::Number).map_err(|_| {
            let why = format!("is {int}, must be 0..={}", u32::MAX);
            RecordError::value(field, why)
        }),
        Err(_) => Err(must_be(error, "text or a whole number")),
    }
}

/// The error with all types that the field may have.
fn must_be(error: RecordError, must_be: &'static str) -> RecordError {
    match error {
        RecordError::Type { field, is, .. } => RecordError::Type { field, is, must_be },
        other => other,
    }
}

fn value(item: &Item) -> Value<'_> {
    match item {
        Item::Number(n) => Value::Int(i64::from(*n)),
        Item::Text(text) => Value::Text(text),
    }
}

fn not_found(why: &str) -> Result<(), Error> {
    reply(status::NOT_FOUND, why.as_bytes())
}

e3_sdk::service!(Recommend, request_capacity = 4096);
