//! The ratings of one user.

use alloc::string::String;
use alloc::vec::Vec;

/// Longest item in bytes, if it is a text.
pub const ITEM_BYTES_MAX: usize = 32;
/// Most items that the users of a shard may rate.
pub const ITEMS_MAX: usize = 256;
/// Ratings are kept in hundredths, so that sums of their products are exact.
pub const CENTS: u16 = 100;
/// Highest rating.
pub const RATING_MAX: u16 = 100;
/// Bytes of an item as a number.
const NUMBER_BYTES: usize = 4;
/// A user may rate every item and is still one value of the collection.
const _: () = assert!(ITEMS_MAX * (1 + ITEM_BYTES_MAX + 2) <= e3_sdk::limits::VALUE_BYTES_MAX);

/// What is rated. Items have an order: numbers, then texts by their bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// A number.
    Number(u32),
    /// A text of 1 to [`ITEM_BYTES_MAX`] bytes.
    Text(String),
}

/// A user's ratings in hundredths, in the order of the items, each item once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ratings(pub Vec<(Item, u16)>);

impl Ratings {
    /// The rating of an item.
    pub fn of(&self, item: &Item) -> Option<u16> {
        let at = self.0.binary_search_by(|(i, _)| i.cmp(item)).ok()?;
        Some(self.0[at].1)
    }

    /// Sets the rating of an item.
    pub fn set(&mut self, item: Item, cents: u16) {
        match self.0.binary_search_by(|(i, _)| i.cmp(&item)) {
            Ok(at) => self.0[at].1 = cents,
            Err(at) => self.0.insert(at, (item, cents)),
        }
    }

    /// Appends the bytes that are stored: for each item the length of its text (0 for a number), the
    /// text or the number, and the rating, numbers little endian.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for (item, cents) in &self.0 {
            match item {
                Item::Number(n) => {
                    out.push(0);
                    out.extend_from_slice(&n.to_le_bytes());
                }
                Item::Text(text) => {
                    out.push(text.len() as u8);
                    out.extend_from_slice(text.as_bytes());
                }
            }
            out.extend_from_slice(&cents.to_le_bytes());
        }
    }

    /// Reads the stored bytes; None if they are invalid.
    pub fn decode(mut bytes: &[u8]) -> Option<Ratings> {
        let mut ratings = Vec::new();
        while let Some((len, rest)) = bytes.split_first() {
            let len = usize::from(*len);
            let (item, rest) = match len {
                0 => {
                    let (n, rest) = rest.split_first_chunk::<NUMBER_BYTES>()?;
                    (Item::Number(u32::from_le_bytes(*n)), rest)
                }
                _ => {
                    let (text, rest) = rest.split_at_checked(len)?;
                    let text = core::str::from_utf8(text).ok()?;
                    (Item::Text(text.into()), rest)
                }
            };
            let (cents, rest) = rest.split_first_chunk()?;
            ratings.push((item, u16::from_le_bytes(*cents)));
            bytes = rest;
        }
        Some(Ratings(ratings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratings_are_ordered_and_read_back() {
        let mut ratings = Ratings::default();
        let items = [
            Item::Text("b".into()),
            Item::Number(300),
            Item::Text("é".repeat(16)),
            Item::Number(2),
        ];
        for (n, item) in items.iter().chain(&items).enumerate() {
            ratings.set(item.clone(), 100 + n as u16);
        }
        let cents: Vec<u16> = ratings.0.iter().map(|(_, c)| *c).collect();
        assert_eq!(cents, [107, 105, 104, 106]);
        assert_eq!(ratings.of(&items[0]), Some(104));
        assert_eq!(ratings.of(&Item::Number(0)), None);
        let mut bytes = Vec::new();
        ratings.encode(&mut bytes);
        assert_eq!(Ratings::decode(&bytes), Some(ratings));
        let whole = (0..bytes.len()).filter(|len| Ratings::decode(&bytes[..*len]).is_some());
        // cut anywhere but between ratings, it is invalid
        assert_eq!(whole.collect::<Vec<_>>(), [0, 7, 14, 18]);
    }
}
