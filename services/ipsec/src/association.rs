//! Security associations: their stored state and their keys.
//!
//! A sequence number must never repeat under a key, and numbers start over whenever the state is lost:
//! after the loss of all replicas, after `e3 down`, in a new deployment. The secret stays. So each
//! association has an epoch of 16 random bytes, drawn with its first number and stored with it as one
//! entry, which is replicated, migrated and lost as a whole. Keys are derived from the secret and the
//! epoch (HKDF, RFC 5869), so new numbers always have new keys.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use e3_sdk::accel::{HmacSha256, same_tag};
use e3_sdk::{Error, previous_secret, random, secret};

use crate::esp::{CIPHER_KEY_LEN, Keys, TAG_KEY_LEN, Tunnel};
use crate::window::Window;

/// An epoch: the keys of an association are derived from it and the secret.
pub type Epoch = [u8; 16];

/// Sixteen bytes, an epoch or its proof, as records have them: 32 hexadecimal digits.
pub fn to_text(bytes: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*bytes))
}

/// The sixteen bytes of such a text.
pub fn from_text(text: &str) -> Option<[u8; 16]> {
    let is_whole = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let number = is_whole.then(|| u128::from_str_radix(text, 16).ok())??;
    Some(number.to_be_bytes())
}

/// Bytes of configured keys.
const KEYS_LEN: usize = CIPHER_KEY_LEN + TAG_KEY_LEN;
/// Fewest bytes of the secret.
const MASTER_LEN_MIN: usize = 16;
/// Code of an attempt that failed because stored bytes are not an association.
const CODE_CORRUPT: i32 = 1;

/// The sender's state of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Its epoch.
    pub epoch: Epoch,
    /// The last number used; 0 = none yet.
    pub sequence: u32,
}

impl Sender {
    /// Bytes that it is stored in.
    pub const BYTES: usize = 20;

    /// The stored state, or that of a new association.
    pub fn stored(bytes: Option<&[u8]>) -> Result<Sender, Error> {
        let Some(bytes) = bytes else {
            let mut epoch = Epoch::default();
            random(&mut epoch)?;
            return Ok(Sender { epoch, sequence: 0 });
        };
        let sender = bytes.split_first_chunk().and_then(|(epoch, sequence)| {
            Some(Sender {
                epoch: *epoch,
                sequence: u32::from_le_bytes(sequence.try_into().ok()?),
            })
        });
        sender.ok_or(Error::Code(CODE_CORRUPT))
    }

    /// As stored.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.epoch);
        bytes[16..].copy_from_slice(&self.sequence.to_le_bytes());
        bytes
    }
}

/// The receiver's state of an association.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receiver {
    /// The accepted epoch.
    pub epoch: Epoch,
    /// The received sequence numbers.
    pub window: Window,
}

impl Receiver {
    /// Bytes that it is stored in.
    pub const BYTES: usize = 16 + Window::BYTES;

    /// What is stored.
    pub fn stored(bytes: &[u8]) -> Result<Receiver, Error> {
        let receiver = bytes.split_first_chunk().and_then(|(epoch, window)| {
            Some(Receiver {
                epoch: *epoch,
                window: Window::from_bytes(window)?,
            })
        });
        receiver.ok_or(Error::Code(CODE_CORRUPT))
    }

    /// As stored.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.epoch);
        bytes[16..].copy_from_slice(&self.window.to_bytes());
        bytes
    }
}

/// Where keys come from.
#[derive(Debug)]
pub enum Source {
    /// The configured keys of the only association, for any epoch.
    Given(Vec<u8>),
    /// A secret, from which they are derived.
    Master(Vec<u8>),
}

impl Source {
    /// Reads the secrets.
    pub fn open(associations: u16) -> Result<Source, Error> {
        if associations == 1
            && let Ok(keys) = secret("keys")
        {
            return if keys.len() == KEYS_LEN {
                Ok(Source::Given(keys))
            } else {
                Err(Error::SecretLength {
                    name: "keys",
                    len: keys.len(),
                    must_be: "36",
                })
            };
        }
        let master = secret("master")?;
        if master.len() >= MASTER_LEN_MIN {
            Ok(Source::Master(master))
        } else {
            Err(Error::SecretLength {
                name: "master",
                len: master.len(),
                must_be: "at least 16",
            })
        }
    }

    /// What the secret was before, until that is retired. A value that is none, and was never used, counts for
    /// nothing.
    pub fn previous(&self) -> Option<Source> {
        match self {
            Source::Given(_) => previous_secret("keys")
                .filter(|keys| keys.len() == KEYS_LEN)
                .map(Source::Given),
            Source::Master(_) => previous_secret("master")
                .filter(|master| master.len() >= MASTER_LEN_MIN)
                .map(Source::Master),
        }
    }

    /// The keys of an association in an epoch.
    pub fn keys(&self, tunnel: &Tunnel, spi: u32, epoch: &Epoch) -> Result<Keys, Error> {
        let (mut cipher, mut tag) = ([0; CIPHER_KEY_LEN], [0; TAG_KEY_LEN]);
        match self {
            Source::Given(keys) => {
                cipher.copy_from_slice(&keys[..CIPHER_KEY_LEN]);
                tag.copy_from_slice(&keys[CIPHER_KEY_LEN..]);
            }
            Source::Master(master) => {
                let okm = hkdf(master, epoch, &info(b"e3 ipsec keys", tunnel, spi))?;
                cipher.copy_from_slice(&okm[..CIPHER_KEY_LEN]);
                tag.copy_from_slice(&okm[CIPHER_KEY_LEN..CIPHER_KEY_LEN + TAG_KEY_LEN]);
            }
        }
        Keys::new(&cipher, &tag)
    }

    /// The proof that an epoch comes from an owner of the secret; none if keys are configured.
    pub fn proof(
        &self,
        tunnel: &Tunnel,
        spi: u32,
        epoch: &Epoch,
    ) -> Result<Option<[u8; 16]>, Error> {
        let Source::Master(master) = self else {
            return Ok(None);
        };
        let okm = hkdf(master, epoch, &info(b"e3 ipsec epoch", tunnel, spi))?;
        Ok(okm.first_chunk().copied())
    }

    /// Whether `proof` is that of the epoch.
    pub fn proves(
        &self,
        tunnel: &Tunnel,
        spi: u32,
        epoch: &Epoch,
        proof: &[u8; 16],
    ) -> Result<bool, Error> {
        let right = self.proof(tunnel, spi, epoch)?;
        Ok(right.is_some_and(|right| same_tag(&right, proof)))
    }
}

/// The info of a derivation: a label, the SPI and the ends of the tunnel, in network byte order.
fn info(label: &[u8], tunnel: &Tunnel, spi: u32) -> Vec<u8> {
    let of = |address: Ipv4Addr| address.octets();
    [
        label,
        &spi.to_be_bytes(),
        &of(tunnel.source),
        &of(tunnel.destination),
    ]
    .concat()
}

/// HKDF with SHA-256 (RFC 5869): two blocks of output.
fn hkdf(secret: &[u8], salt: &[u8], info: &[u8]) -> Result<[u8; 64], Error> {
    let expand = HmacSha256::new(&HmacSha256::new(salt)?.tag(secret)?)?;
    let first = expand.tag(&[info, &[1]].concat())?;
    let second = expand.tag(&[&first, info, &[2]].concat())?;
    let mut out = [0; 64];
    out[..32].copy_from_slice(&first);
    out[32..].copy_from_slice(&second);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_sdk::testing::Host;

    /// RFC 5869, appendix A.1.
    #[test]
    fn hkdf_is_that_of_the_rfc() {
        let _host = Host::new();
        let salt: Vec<u8> = (0..=0x0c).collect();
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        let okm = hkdf(&[0x0b; 22], &salt, &info).unwrap();
        let hex: String = okm[..42].iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
        );
    }

    #[test]
    fn texts_are_32_digits() {
        let bytes = *b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\xfc\xfd\xfe\xff";
        assert_eq!(to_text(&bytes), "000102030405060708090a0bfcfdfeff");
        assert_eq!(from_text(&to_text(&bytes)), Some(bytes));
        for wrong in [
            "",
            "00",
            "+00102030405060708090a0bfcfdfeff",
            &"0".repeat(33),
        ] {
            assert_eq!(from_text(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_stored_is_read_back_and_nothing_else() {
        let _host = Host::new();
        let sender = Sender {
            epoch: [7; 16],
            sequence: u32::MAX - 1,
        };
        let bytes = sender.to_bytes();
        assert_eq!(Sender::stored(Some(&bytes)), Ok(sender));
        let receiver = Receiver {
            epoch: [9; 16],
            window: Window::default().with(77),
        };
        assert_eq!(Receiver::stored(&receiver.to_bytes()), Ok(receiver));
        // A lost epoch must not look like a new association.
        for bytes in [&bytes[..0], &bytes[..8], &bytes[..19]] {
            assert!(Sender::stored(Some(bytes)).is_err());
            assert!(Receiver::stored(bytes).is_err());
        }
    }
}
