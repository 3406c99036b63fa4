//! Against a naive list of prefixes.

use super::*;
use alloc::collections::btree_map::Entry;
use core::convert::Infallible;
use e3_testkit::Random;

impl Bytes for &[u8] {
    type Error = Infallible;

    fn length(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact(&self, offset: u64, out: &mut [u8]) -> Result<(), Infallible> {
        let from = offset as usize;
        out.copy_from_slice(&self[from..from + out.len()]);
        Ok(())
    }
}

#[test]
fn routes_equal_the_naive_match() {
    let mut random = Random::new(0x5eed);
    let (mut text, mut naive) = (String::new(), BTreeMap::new());
    while naive.len() < 500_000 {
        // lengths much as in a full table: most are /24, few are longer or very short
        let len = match random.below(10_000) {
            0..=5_999 => 24,
            6_000..=9_799 => 16 + random.below(8) as u8,
            9_800..=9_998 => 25 + random.below(8) as u8,
            _ => 8 + random.below(8) as u8,
        };
        let mask = (!0u64 << (32 - u32::from(len))) as u32;
        let prefix = random.next_u64() as u32 & mask;
        let hop = Ipv4Addr::new(192, 0, 2, random.below(250) as u8);
        if let Entry::Vacant(new) = naive.entry((len, prefix)) {
            new.insert(hop);
            text += &format!("{}/{len} {hop}\n", Ipv4Addr::from_bits(prefix));
        }
    }
    let compiled = compile(&text).unwrap();
    let routes = Routes::open(&compiled[..]).unwrap().unwrap();
    let naive_hop = |address: u32| {
        (0..=32u8).rev().find_map(|len| {
            let mask = (!0u64 << (32 - u32::from(len))) as u32;
            naive.get(&(len, address & mask)).copied()
        })
    };
    // around the ends of every tenth route, and anywhere
    let edges = naive.keys().step_by(10).flat_map(|(len, prefix)| {
        let last = prefix | (!0u64 >> 32 >> len) as u32;
        [*prefix, last, prefix.wrapping_sub(1), last.wrapping_add(1)]
    });
    let (mut found, mut none) = (0u32, 0u32);
    for address in edges.chain((0..100_000).map(|_| random.next_u64() as u32)) {
        let hop = routes.next_hop(Ipv4Addr::from_bits(address)).unwrap();
        assert_eq!(hop, naive_hop(address), "{}", Ipv4Addr::from_bits(address));
        *(if hop.is_some() { &mut found } else { &mut none }) += 1;
    }
    assert!(found > 200_000 && none > 1_000, "{found} {none}");
}

#[test]
fn a_wrong_line_of_a_route_table_is_named() {
    let error = |text: &str| compile(text).unwrap_err().to_string();
    let good = "10.0.0.0/8 192.0.2.1\n\n# more\n";
    for (line, reason) in [
        (
            "10.0.0.0/8 192.0.2.2",
            "10.0.0.0/8 is a duplicate of line 1",
        ),
        ("10.0.0.0/33 192.0.2.2", "length is \"33\", must be 0..=32"),
        ("10.0.0.0/+8 192.0.2.2", "length is \"+8\", must be 0..=32"),
        ("10.0.0.0/08 192.0.2.2", "length is \"08\", must be 0..=32"),
        ("10.0.0.0/-0 192.0.2.2", "length is \"-0\", must be 0..=32"),
        ("10.0.0.0/ 192.0.2.2", "length is \"\", must be 0..=32"),
        (
            "10.0.0.00/8 192.0.2.2",
            "address is \"10.0.0.00\", must be four numbers below 256",
        ),
        (
            "+10.0.0.0/8 192.0.2.2",
            "address is \"+10.0.0.0\", must be four numbers below 256",
        ),
        (
            "11.0.0.0/8 192.0.2.+2",
            "next hop is \"192.0.2.+2\", must be an address",
        ),
        (
            "11.0.0.0/8 192.0.02.2",
            "next hop is \"192.0.02.2\", must be an address",
        ),
        (
            "10.0.0.1/8 192.0.2.2",
            "10.0.0.1/8 has bits set after the first 8",
        ),
        (
            "10.0.0/8 192.0.2.2",
            "address is \"10.0.0\", must be four numbers below 256",
        ),
        (
            "10.0.0.0 192.0.2.2",
            "prefix is \"10.0.0.0\", must be ADDRESS/LEN",
        ),
        ("11.0.0.0/8", "has 1 words, must be PREFIX/LEN NEXTHOP"),
        (
            "11.0.0.0/8 gateway",
            "next hop is \"gateway\", must be an address",
        ),
    ] {
        let must_be = format!("line 4: {reason}");
        assert_eq!(error(&format!("{good}{line}\n")), must_be);
    }
    let many: String = (0..=BLOCKS_MAX as u32)
        .map(|i| format!("{}/25 192.0.2.1\n", Ipv4Addr::from_bits(i << 8)))
        .collect();
    assert!(error(&many).ends_with("line 32769: block 32769, must be at most 32768"));
    let many: String = (1..=NEXT_HOPS_MAX as u32 + 1)
        .map(|i| format!("{0}/32 {0}\n", Ipv4Addr::from_bits(i)))
        .collect();
    assert!(error(&many).ends_with("line 32768: next hop number 32768, must be at most 32767"));
}

#[test]
fn what_is_no_compiled_table_is_told_so() {
    let mut table = compile("10.0.0.0/8 192.0.2.1\n").unwrap();
    let why = |bytes: &[u8]| Routes::open(bytes).unwrap().unwrap_err();
    assert!(why(b"10.0.0.0/8 192.0.2.1").contains("must begin with E3DIR248"));
    assert!(why(&table[..table.len() - 1]).contains("must be 33685568 bytes"));
    table[12] = 1;
    assert!(why(&table).contains("must be 33686080 bytes"));
}
