//! Reads the imports and exports of a WebAssembly module and compares them with `docs/abi.md`.
//!
//! Source: WebAssembly core specification, chapter 5 (binary format).

use std::collections::BTreeSet;

use crate::architecture::code_spans;

/// The imports and exports of a module.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Border {
    /// Module and field of each import.
    pub imports: BTreeSet<(String, String)>,
    /// Name of each export.
    pub exports: BTreeSet<String>,
}

/// The names that `docs/abi.md` lists.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Abi {
    imports: BTreeSet<String>,
    required_exports: BTreeSet<String>,
}

impl Abi {
    /// From the tables under the headings `Exports` and `Imports`.
    pub fn parse(document: &str) -> Result<Self, String> {
        let mut abi = Self::default();
        let mut heading = "";
        for line in document.lines() {
            heading = line.strip_prefix("## ").unwrap_or(heading);
            let first = line
                .strip_prefix('|')
                .and_then(|l| l.split('|').next())
                .unwrap_or_default();
            let Some(name) = code_spans(first).into_iter().next() else {
                continue;
            };
            if heading.starts_with("Imports") {
                abi.imports.insert(name);
            } else if heading.starts_with("Exports") && !first.contains("optional") {
                abi.required_exports.insert(name);
            }
        }
        if abi.imports.is_empty() || abi.required_exports.is_empty() {
            return Err("docs/abi.md: no tables under \"Exports\" and \"Imports\"".into());
        }
        Ok(abi)
    }

    /// Missing exports and unknown imports of a module.
    pub fn problems(&self, border: &Border) -> Vec<String> {
        let missing = self.required_exports.difference(&border.exports);
        let mut found: Vec<String> = missing
            .map(|name| format!("export {name} is missing"))
            .collect();
        for (module, name) in &border.imports {
            if module != "e3" || !self.imports.contains(name) {
                found.push(format!("import {module}.{name} is not in docs/abi.md"));
            }
        }
        found
    }
}

/// Reads a module's imports and exports; none if the bytes are not a module.
pub fn border(bytes: &[u8]) -> Option<Border> {
    let mut reader = Reader {
        rest: bytes.strip_prefix(b"\0asm\x01\0\0\0")?,
    };
    let mut border = Border::default();
    while !reader.rest.is_empty() {
        let id = reader.byte()?;
        let len = reader.number()?;
        let mut section = Reader {
            rest: reader.take(len)?,
        };
        match id {
            2 => {
                for _ in 0..section.number()? {
                    border.imports.insert((section.name()?, section.name()?));
                    section.skip_import_kind()?;
                }
            }
            7 => {
                for _ in 0..section.number()? {
                    border.exports.insert(section.name()?);
                    section.byte()?;
                    section.number()?;
                }
            }
            _ => {}
        }
    }
    Some(border)
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(len).ok()?)?;
        self.rest = rest;
        Some(taken)
    }

    /// LEB128, unsigned.
    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..=63).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn name(&mut self) -> Option<String> {
        let len = self.number()?;
        String::from_utf8(self.take(len)?.to_vec()).ok()
    }

    fn limits(&mut self) -> Option<()> {
        let flags = self.byte()?;
        self.number()?;
        if flags & 1 == 1 {
            self.number()?;
        }
        Some(())
    }

    fn skip_import_kind(&mut self) -> Option<()> {
        match self.byte()? {
            0 => self.number().map(drop),
            1 => {
                self.byte()?;
                self.limits()
            }
            2 => self.limits(),
            3 => self.take(2).map(drop),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
## Exports

| name | type |
|---|---|
| `memory` | memory |
| `e3_init` (optional) | `() -> i32` |

## Imports (module `e3`)

| name | type |
|---|---|
| `now` | `() -> i64` |
";

    /// One function import, one memory export.
    fn module(import: &str) -> Vec<u8> {
        let mut bytes = b"\0asm\x01\0\0\0".to_vec();
        let mut section = |id: u8, body: &[u8]| {
            bytes.extend([id, u8::try_from(body.len()).expect("short")]);
            bytes.extend(body);
        };
        section(1, &[1, 0x60, 0, 1, 0x7e]);
        let mut body = vec![1, 2, b'e', b'3', u8::try_from(import.len()).expect("short")];
        body.extend(import.as_bytes());
        body.extend([0, 0]);
        section(2, &body);
        section(5, &[1, 0, 1]);
        section(7, b"\x01\x06memory\x02\x00");
        bytes
    }

    #[test]
    fn a_module_within_the_page_passes() {
        let abi = Abi::parse(PAGE).expect("tables");
        assert_eq!(
            abi.problems(&border(&module("now")).expect("module")),
            [""; 0]
        );
    }

    #[test]
    fn what_is_missing_or_unknown_is_named() {
        let abi = Abi::parse(PAGE).expect("tables");
        let found = abi.problems(&border(&module("open")).expect("module"));
        assert_eq!(found, ["import e3.open is not in docs/abi.md"]);
        assert_eq!(
            abi.problems(&Border::default()),
            ["export memory is missing"]
        );
    }

    #[test]
    fn cut_modules_are_refused() {
        let whole = module("now");
        // cut between sections it is a shorter module, anywhere else none
        let between = [8, 15, 27, 32];
        for len in 0..whole.len() {
            assert_eq!(
                border(&whole[..len]).is_some(),
                between.contains(&len),
                "{len}"
            );
        }
    }

    #[test]
    fn the_repository_page_has_the_tables() {
        let abi = Abi::parse(include_str!("../../docs/abi.md")).expect("tables");
        assert!(abi.required_exports.contains("e3_handle"));
        assert!(!abi.required_exports.contains("e3_init"));
        assert!(abi.imports.contains("send"));
    }
}
