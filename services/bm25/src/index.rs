//! The inverted index: the documents that contain a word, and how often. It is an asset: the postings are
//! read where they are, everything else is held in memory.
//!
//! Format, numbers of 32 bits, little endian:
//!
//! | part | what |
//! |---|---|
//! | magic | `E3BM25`, 0, 1 |
//! | sizes | documents N, terms T, bytes of all names, bytes of all terms, postings P |
//! | N numbers | words of each document |
//! | N numbers | end of each document's name among all names |
//! | T numbers | end of each term among all terms |
//! | T numbers | end of each term's postings among all postings |
//! | names | UTF-8, each of 1 to 255 bytes |
//! | terms | in the order of their bytes |
//! | P pairs | document (from 0), occurrences; for each term by document |

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use e3_sdk::{Asset, Error};

/// First bytes of an index.
pub const MAGIC: &[u8; 8] = b"E3BM25\0\x01";
/// Most documents.
pub const DOCUMENTS_MAX: usize = 1 << 20;
/// Most terms.
pub const TERMS_MAX: usize = 1 << 20;
/// Most bytes of all names, and of all terms.
pub const TEXT_BYTES_MAX: usize = 16 << 20;
/// Longest name of a document.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of postings read at once.
const CHUNK_BYTES: usize = 4 * 1024;
const HEADER_BYTES: usize = MAGIC.len() + 5 * 4;
const POSTING_BYTES: usize = 8;

/// An index.
#[derive(Debug)]
pub struct Index {
    asset: Asset,
    name: &'static str,
    /// Words of each document.
    pub lengths: Vec<u32>,
    names: Texts,
    terms: Texts,
    posting_ends: Vec<u32>,
    /// Where the postings begin in the asset.
    postings_at: u64,
}

/// Texts, concatenated.
#[derive(Debug)]
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Texts {
    fn get(&self, index: usize) -> &[u8] {
        &self.bytes[range(&self.ends, index)]
    }
}

fn range(ends: &[u32], index: usize) -> core::ops::Range<usize> {
    let start = index.checked_sub(1).map_or(0, |i| ends[i]);
    start as usize..ends[index] as usize
}

/// Reads an asset from front to back.
struct Reader {
    asset: Asset,
    name: &'static str,
    at: u64,
}

impl Reader {
    fn bytes(&mut self, len: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = alloc::vec![0; len];
        let mut filled = 0;
        // the sizes were compared with that of the asset
        while filled < len {
            match self.asset.read(self.at, &mut bytes[filled..])? {
                0 => return Err(Error::Index),
                read => {
                    filled += read;
                    self.at += read as u64;
                }
            }
        }
        Ok(bytes)
    }

    fn numbers(&mut self, count: usize) -> Result<Vec<u32>, Error> {
        let bytes = self.bytes(count * 4)?;
        Ok(bytes.chunks_exact(4).map(number).collect())
    }

    /// An error at a byte of the asset.
    fn error<T>(&self, at: u64, why: String) -> Result<T, Error> {
        Err(Error::Asset {
            name: self.name,
            line: 0,
            reason: format!("byte {at}: {why}"),
        })
    }

    /// The header: numbers of documents and terms, bytes of names and terms, number of postings. They are
    /// within their bounds and match the length of the asset.
    fn sizes(&mut self) -> Result<[usize; 5], Error> {
        if self.asset.len() < HEADER_BYTES as u64 || self.bytes(8)? != MAGIC {
            let why = format!("must begin with {:?}", MAGIC.escape_ascii().to_string());
            return self.error(0, why);
        }
        let sizes = self.numbers(5)?;
        let sizes = [0, 1, 2, 3, 4].map(|i| sizes[i] as usize);
        let [documents, terms, names_bytes, terms_bytes, postings] = sizes;
        for (i, size, bound, what) in [
            (0, documents, 1..=DOCUMENTS_MAX, "documents"),
            (1, terms, 0..=TERMS_MAX, "terms"),
            (2, names_bytes, 0..=TEXT_BYTES_MAX, "bytes of names"),
            (3, terms_bytes, 0..=TEXT_BYTES_MAX, "bytes of terms"),
        ] {
            if !bound.contains(&size) {
                let why = format!("{what}: are {size}, must be {bound:?}");
                return self.error(MAGIC.len() as u64 + 4 * i, why);
            }
        }
        let total = HEADER_BYTES + 8 * documents + 8 * terms + names_bytes + terms_bytes;
        let total = total as u64 + (POSTING_BYTES * postings) as u64;
        let len = self.asset.len();
        if len != total {
            let why = format!("the sizes make {total} bytes, but there are {len}");
            return self.error(HEADER_BYTES as u64, why);
        }
        Ok(sizes)
    }

    /// Increasing offsets; the last is `total`.
    fn ends(&mut self, count: usize, total: usize, what: &str) -> Result<Vec<u32>, Error> {
        let at = self.at;
        let ends = self.numbers(count)?;
        let order = ends.windows(2).position(|w| w[0] >= w[1]);
        let bad = order.map(|i| i + 1).or(match ends.last() {
            Some(last) if *last as usize == total && ends[0] > 0 => None,
            None if total == 0 => None,
            _ => Some(count.saturating_sub(1)),
        });
        match bad {
            None => Ok(ends),
            Some(i) => self.error(
                at + 4 * i as u64,
                format!(
                    "{what} {i}: its end must be greater than the previous one, the last must be {total}"
                ),
            ),
        }
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().unwrap_or_default())
}

impl Index {
    /// Reads and checks the asset of this name.
    pub fn load(name: &'static str) -> Result<Index, Error> {
        let asset = Asset::open(name).ok_or(Error::NoAsset(name))?;
        let mut reader = Reader { asset, name, at: 0 };
        let [documents, terms, names_bytes, terms_bytes, postings] = reader.sizes()?;
        let lengths = reader.numbers(documents)?;
        let name_ends = reader.ends(documents, names_bytes, "name")?;
        let term_ends = reader.ends(terms, terms_bytes, "term")?;
        let posting_ends = reader.ends(terms, postings, "postings of term")?;
        let names_at = reader.at;
        let names = Texts {
            bytes: reader.bytes(names_bytes)?,
            ends: name_ends,
        };
        let terms_at = reader.at;
        let texts = Texts {
            bytes: reader.bytes(terms_bytes)?,
            ends: term_ends,
        };
        for i in 0..documents {
            let name = names.get(i);
            if name.len() > NAME_BYTES_MAX || core::str::from_utf8(name).is_err() {
                let why = format!("name {i}: must be UTF-8 of 1..={NAME_BYTES_MAX} bytes");
                return reader.error(names_at + range(&names.ends, i).start as u64, why);
            }
        }
        let order = |i: &usize| texts.get(i - 1) >= texts.get(*i);
        if let Some(i) = (1..terms).find(order) {
            let why = format!("term {i}: must be greater than the previous one in byte order");
            return reader.error(terms_at + range(&texts.ends, i).start as u64, why);
        }
        let index = Index {
            asset,
            name,
            lengths,
            names,
            terms: texts,
            posting_ends,
            postings_at: reader.at,
        };
        index.check_postings()?;
        Ok(index)
    }

    /// Every posting must name an existing document, in order, with at least one occurrence.
    fn check_postings(&self) -> Result<(), Error> {
        for term in 0..self.posting_ends.len() {
            let mut next = 0;
            let mut at = range(&self.posting_ends, term).start;
            let mut bad = None;
            self.postings(term, |document, count| {
                let fits = document >= next && (document as usize) < self.lengths.len();
                if (!fits || count == 0) && bad.is_none() {
                    bad = Some((at, document, count));
                }
                next = document.saturating_add(1);
                at += 1;
            })?;
            if let Some((at, document, count)) = bad {
                let at = self.postings_at + (at * POSTING_BYTES) as u64;
                let documents = self.lengths.len();
                return Err(Error::Asset {
                    name: self.name,
                    line: 0,
                    reason: format!(
                        "byte {at}: posting of term {term}: document {document} with {count} occurrences, must be below {documents}, after the previous one, with at least 1"
                    ),
                });
            }
        }
        Ok(())
    }

    /// Number of a term.
    pub fn term(&self, term: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.posting_ends.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.terms.get(middle).cmp(term) {
                core::cmp::Ordering::Less => low = middle + 1,
                core::cmp::Ordering::Equal => return Some(middle),
                core::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// Documents that have the term.
    pub fn frequency(&self, term: usize) -> usize {
        range(&self.posting_ends, term).len()
    }

    /// Calls `see` with each document that has the term and the occurrences there.
    pub fn postings(&self, term: usize, mut see: impl FnMut(u32, u32)) -> Result<(), Error> {
        let range = range(&self.posting_ends, term);
        let mut at = self.postings_at + (range.start * POSTING_BYTES) as u64;
        let mut left = range.len() * POSTING_BYTES;
        let mut chunk = [0; CHUNK_BYTES];
        while left > 0 {
            let wanted = left.min(CHUNK_BYTES);
            let read = self.asset.read(at, &mut chunk[..wanted])?;
            if read < wanted {
                return Err(Error::Index);
            }
            // Four for each iteration: in WebAssembly an iteration has a cost of its own.
            let (fours, rest) = chunk[..read].as_chunks::<{ 4 * POSTING_BYTES }>();
            for four in fours {
                for posting in four.as_chunks::<POSTING_BYTES>().0 {
                    see(number(&posting[..4]), number(&posting[4..]));
                }
            }
            for posting in rest.as_chunks::<POSTING_BYTES>().0 {
                see(number(&posting[..4]), number(&posting[4..]));
            }
            at += read as u64;
            left -= read;
        }
        Ok(())
    }

    /// Name of a document.
    pub fn document(&self, document: u32) -> &str {
        // checked when it was loaded
        core::str::from_utf8(self.names.get(document as usize)).unwrap_or_default()
    }
}
