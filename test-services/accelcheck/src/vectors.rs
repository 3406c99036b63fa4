//! Published test vectors, as hexadecimal text, for both implementations of every accelerator.

use crate::{op, request};

/// One request and its result.
#[derive(Clone, Copy, Debug)]
pub struct Vector {
    /// Its source.
    pub source: &'static str,
    /// The operation.
    pub op: u8,
    /// The arguments.
    pub arguments: &'static [&'static str],
    /// The expected result.
    pub result: &'static str,
}

impl Vector {
    /// The request to the service.
    pub fn request(&self) -> Vec<u8> {
        let arguments: Vec<Vec<u8>> = self.arguments.iter().map(|a| bytes(a)).collect();
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        request(self.op, &arguments)
    }
}

/// Reads hexadecimal text of this file.
pub fn bytes(hex: &str) -> Vec<u8> {
    let digit = |c: &u8| (*c as char).to_digit(16).expect("hexadecimal") as u8;
    let (pairs, _) = hex.as_bytes().as_chunks::<2>();
    pairs
        .iter()
        .map(|[high, low]| digit(high) << 4 | digit(low))
        .collect()
}

/// The vectors.
pub const VECTORS: &[Vector] = &[
    Vector {
        source: "NIST SP 800-38A F.2.1",
        op: op::CBC_ENCRYPT,
        arguments: &[
            "2b7e151628aed2a6abf7158809cf4f3c",
            "000102030405060708090a0b0c0d0e0f",
            "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e5130c81c46a35c\
            e411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710",
        ],
        result: "7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b273bed6b8e3c1\
            743b7116e69e222295163ff1caa1681fac09120eca307586e1a7",
    },
    Vector {
        source: "NIST SP 800-38A F.2.2",
        op: op::CBC_DECRYPT,
        arguments: &[
            "2b7e151628aed2a6abf7158809cf4f3c",
            "000102030405060708090a0b0c0d0e0f",
            "7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b273bed6b8e3c1\
            743b7116e69e222295163ff1caa1681fac09120eca307586e1a7",
        ],
        result: "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e5130c81c46a35c\
            e411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710",
    },
    Vector {
        source: "NIST SP 800-38A F.2.5",
        op: op::CBC_ENCRYPT,
        arguments: &[
            "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
            "000102030405060708090a0b0c0d0e0f",
            "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e5130c81c46a35c\
            e411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710",
        ],
        result: "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d39f23369a9d9\
            bacfa530e26304231461b2eb05e2c39be9fcda6c19078c6a9d1b",
    },
    Vector {
        source: "NIST SP 800-38A F.2.6",
        op: op::CBC_DECRYPT,
        arguments: &[
            "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
            "000102030405060708090a0b0c0d0e0f",
            "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d39f23369a9d9\
            bacfa530e26304231461b2eb05e2c39be9fcda6c19078c6a9d1b",
        ],
        result: "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e5130c81c46a35c\
            e411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710",
    },
    Vector {
        source: "GCM specification, case 1",
        op: op::GCM_SEAL,
        arguments: &[
            "00000000000000000000000000000000",
            "000000000000000000000000",
            "",
            "",
        ],
        result: "58e2fccefa7e3061367f1d57a4e7455a",
    },
    Vector {
        source: "GCM specification, case 4",
        op: op::GCM_SEAL,
        arguments: &[
            "feffe9928665731c6d6a8f9467308308",
            "cafebabefacedbaddecaf888",
            "feedfacedeadbeeffeedfacedeadbeefabaddad2",
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c959568\
            09532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        ],
        result: "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466\
            931c7d8f6a5aac84aa051ba30b396a0aac973d58e0915bc94fbc3221a5db94fae95ae7121a47",
    },
    Vector {
        source: "GCM specification, case 4, opened",
        op: op::GCM_OPEN,
        arguments: &[
            "feffe9928665731c6d6a8f9467308308",
            "cafebabefacedbaddecaf888",
            "feedfacedeadbeeffeedfacedeadbeefabaddad2",
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466\
            931c7d8f6a5aac84aa051ba30b396a0aac973d58e0915bc94fbc3221a5db94fae95ae7121a47",
        ],
        result: "01d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c9595\
            6809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
    },
    Vector {
        source: "GCM specification, case 4, a bit of the tag changed",
        op: op::GCM_OPEN,
        arguments: &[
            "feffe9928665731c6d6a8f9467308308",
            "cafebabefacedbaddecaf888",
            "feedfacedeadbeeffeedfacedeadbeefabaddad2",
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466\
            931c7d8f6a5aac84aa051ba30b396a0aac973d58e0915bc94fbc3221a5db94fae95ae7121a46",
        ],
        result: "0042831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b254\
            66931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
    },
    Vector {
        source: "GCM specification, case 16",
        op: op::GCM_SEAL,
        arguments: &[
            "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
            "cafebabefacedbaddecaf888",
            "feedfacedeadbeeffeedfacedeadbeefabaddad2",
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c959568\
            09532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        ],
        result: "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590d\
            bb3da7b08b1056828838c5f61e6393ba7a0abcc9f66276fc6ece0f4e1768cddf8853bb2d551b",
    },
    Vector {
        source: "GCM specification, case 16, opened",
        op: op::GCM_OPEN,
        arguments: &[
            "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
            "cafebabefacedbaddecaf888",
            "feedfacedeadbeeffeedfacedeadbeefabaddad2",
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590d\
            bb3da7b08b1056828838c5f61e6393ba7a0abcc9f66276fc6ece0f4e1768cddf8853bb2d551b",
        ],
        result: "01d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c9595\
            6809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
    },
    Vector {
        source: "RFC 2202, case 1",
        op: op::HMAC_SHA1,
        arguments: &[
            "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b",
            "4869205468657265",
        ],
        result: "b617318655057264e28bc0b6fb378c8ef146be00",
    },
    Vector {
        source: "RFC 2202, case 2",
        op: op::HMAC_SHA1,
        arguments: &[
            "4a656665",
            "7768617420646f2079612077616e7420666f72206e6f7468696e673f",
        ],
        result: "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
    },
    Vector {
        source: "RFC 2202, case 3",
        op: op::HMAC_SHA1,
        arguments: &[
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd\
            dddddddddddddddddddddddd",
        ],
        result: "125d7342b9ac11cd91a39af48aa17b4f63f175d3",
    },
    Vector {
        source: "RFC 2202, case 6",
        op: op::HMAC_SHA1,
        arguments: &[
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
            aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
            aaaaaaaa",
            "54657374205573696e67204c6172676572205468616e20426c6f636b2d53697a65204b657920\
            2d2048617368204b6579204669727374",
        ],
        result: "aa4ae5e15272d00e95705637ce8a3b55ed402112",
    },
    Vector {
        source: "RFC 4231, case 1",
        op: op::HMAC_SHA256,
        arguments: &[
            "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b",
            "4869205468657265",
        ],
        result: "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
    },
    Vector {
        source: "RFC 4231, case 2",
        op: op::HMAC_SHA256,
        arguments: &[
            "4a656665",
            "7768617420646f2079612077616e7420666f72206e6f7468696e673f",
        ],
        result: "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
    },
    Vector {
        source: "RFC 4231, case 3",
        op: op::HMAC_SHA256,
        arguments: &[
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd\
            dddddddddddddddddddddddd",
        ],
        result: "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
    },
    Vector {
        source: "RFC 4231, case 6",
        op: op::HMAC_SHA256,
        arguments: &[
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
            aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
            aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\
            aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "54657374205573696e67204c6172676572205468616e20426c6f636b2d53697a65204b657920\
            2d2048617368204b6579204669727374",
        ],
        result: "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
    },
    Vector {
        source: "the check value of CRC-32",
        op: op::CRC32,
        arguments: &["00000000", "313233343536373839"],
        result: "2639f4cb",
    },
    Vector {
        source: "the check value of CRC-32, in two parts",
        op: op::CRC32,
        arguments: &["a3e0e39b", "3536373839"],
        result: "2639f4cb",
    },
    Vector {
        source: "Aho and Corasick 1975, figure 1",
        op: op::MATCH,
        arguments: &[
            "757368657273",
            "006865",
            "00736865",
            "00686973",
            "0068657273",
        ],
        result: "000000000400000001000000040000000300000006000000",
    },
    Vector {
        source: "the same without regard to case for two of them",
        op: op::MATCH,
        arguments: &[
            "755348457273",
            "006865",
            "01736865",
            "00686973",
            "0148455253",
        ],
        result: "01000000040000000300000006000000",
    },
    Vector {
        source: "RFC 3602, case 1",
        op: op::CBC_ENCRYPT,
        arguments: &[
            "06a9214036b8a15b512e03d534120006",
            "3dafba429d9eb430b422da802c9fac41",
            "53696e676c6520626c6f636b206d7367",
        ],
        result: "e353779c1079aeb82708942dbe77181a",
    },
    Vector {
        source: "RFC 3602, case 2",
        op: op::CBC_ENCRYPT,
        arguments: &[
            "c286696d887c9aa0611bbb3e2025a45a",
            "562e17996d093d28ddb3ba695a2e6f58",
            "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        ],
        result: "d296cd94c2cccf8a3a863028b5e1dc0a7586602d253cfff91b8266bea6d61ab1",
    },
];
