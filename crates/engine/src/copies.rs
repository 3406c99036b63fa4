//! Makes short copies and fills cheap: before a module is compiled, its `memory.copy` and
//! `memory.fill` become calls of two functions that are added to it.
//!
//! Wasmtime compiles both instructions to calls out of WebAssembly, some 20 ns each, unless a copy's
//! length is a small constant. Compilers write them for every vector that grows and every array that
//! is cleared. The functions move short ranges with a few loads and stores, all loads before the
//! first store, so that ranges may overlap, and leave long ones to the instructions. One thing differs: a short
//! range that lies partly outside of the memory may be written in part before the trap,
//! after which the instance is discarded anyway.

use std::sync::OnceLock;
use wasmparser::{FunctionBody, Operator, Parser, Payload, TypeRef};

/// Constant lengths up to which wasmtime itself copies without a call.
const CONSTANT_LEN_MAX: i32 = 128;
const TYPE_SECTION: u8 = 1;
const FUNCTION_SECTION: u8 = 3;
const CODE_SECTION: u8 = 10;
/// `(func (param i32 i32 i32))`.
const TYPE: [u8; 6] = [0x60, 3, 0x7f, 0x7f, 0x7f, 0];

/// The two functions. They mention no other function, type or global, so their bodies can be taken
/// into any module with one memory.
const FUNCTIONS: &str = r#"(module
  (memory 1)
  (func (param $to i32) (param $from i32) (param $len i32)
    (local $a v128) (local $b v128) (local $c v128) (local $d v128) (local $e i64) (local $f i64)
    (if (i32.gt_u (local.get $len) (i32.const 64)) (then
      (memory.copy (local.get $to) (local.get $from) (local.get $len)) (return)))
    (if (i32.ge_u (local.get $len) (i32.const 32)) (then
      (local.set $a (v128.load (local.get $from)))
      (local.set $b (v128.load offset=16 (local.get $from)))
      (local.set $from (i32.sub (i32.add (local.get $from) (local.get $len)) (i32.const 32)))
      (local.set $c (v128.load (local.get $from)))
      (local.set $d (v128.load offset=16 (local.get $from)))
      (v128.store (local.get $to) (local.get $a))
      (v128.store offset=16 (local.get $to) (local.get $b))
      (local.set $to (i32.sub (i32.add (local.get $to) (local.get $len)) (i32.const 32)))
      (v128.store (local.get $to) (local.get $c))
      (v128.store offset=16 (local.get $to) (local.get $d))
      (return)))
    (if (i32.ge_u (local.get $len) (i32.const 16)) (then
      (local.set $a (v128.load (local.get $from)))
      (local.set $b (v128.load
        (i32.sub (i32.add (local.get $from) (local.get $len)) (i32.const 16))))
      (v128.store (local.get $to) (local.get $a))
      (v128.store
        (i32.sub (i32.add (local.get $to) (local.get $len)) (i32.const 16)) (local.get $b))
      (return)))
    (if (i32.ge_u (local.get $len) (i32.const 8)) (then
      (local.set $e (i64.load (local.get $from)))
      (local.set $f (i64.load
        (i32.sub (i32.add (local.get $from) (local.get $len)) (i32.const 8))))
      (i64.store (local.get $to) (local.get $e))
      (i64.store
        (i32.sub (i32.add (local.get $to) (local.get $len)) (i32.const 8)) (local.get $f))
      (return)))
    (if (i32.ge_u (local.get $len) (i32.const 4)) (then
      (local.set $e (i64.load32_u (local.get $from)))
      (local.set $f (i64.load32_u
        (i32.sub (i32.add (local.get $from) (local.get $len)) (i32.const 4))))
      (i64.store32 (local.get $to) (local.get $e))
      (i64.store32
        (i32.sub (i32.add (local.get $to) (local.get $len)) (i32.const 4)) (local.get $f))
      (return)))
    (if (i32.ge_u (local.get $len) (i32.const 2)) (then
      (local.set $e (i64.load16_u (local.get $from)))
      (local.set $f (i64.load16_u
        (i32.sub (i32.add (local.get $from) (local.get $len)) (i32.const 2))))
      (i64.store16 (local.get $to) (local.get $e))
      (i64.store16
        (i32.sub (i32.add (local.get $to) (local.get $len)) (i32.const 2)) (local.get $f))
      (return)))
    (if (local.get $len) (then
      (i32.store8 (local.get $to) (i32.load8_u (local.get $from))))))
  (func (param $to i32) (param $byte i32) (param $len i32)
    (local $a v128) (local $e i64) (local $last i32)
    (if (i32.gt_u (local.get $len) (i32.const 256)) (then
      (memory.fill (local.get $to) (local.get $byte) (local.get $len)) (return)))
    (if (i32.ge_u (local.get $len) (i32.const 16)) (then
      (local.set $a (i8x16.splat (local.get $byte)))
      (local.set $last (i32.sub (i32.add (local.get $to) (local.get $len)) (i32.const 16)))
      (loop $more
        (v128.store (local.get $to) (local.get $a))
        (local.set $to (i32.add (local.get $to) (i32.const 16)))
        (br_if $more (i32.lt_u (local.get $to) (local.get $last))))
      (v128.store (local.get $last) (local.get $a))
      (return)))
    (local.set $e (i64.mul
      (i64.and (i64.extend_i32_u (local.get $byte)) (i64.const 0xff))
      (i64.const 0x0101010101010101)))
    (if (i32.ge_u (local.get $len) (i32.const 8)) (then
      (i64.store (local.get $to) (local.get $e))
      (i64.store
        (i32.sub (i32.add (local.get $to) (local.get $len)) (i32.const 8)) (local.get $e))
      (return)))
    (if (i32.ge_u (local.get $len) (i32.const 4)) (then
      (i64.store32 (local.get $to) (local.get $e))
      (i64.store32
        (i32.sub (i32.add (local.get $to) (local.get $len)) (i32.const 4)) (local.get $e))
      (return)))
    (if (i32.ge_u (local.get $len) (i32.const 2)) (then
      (i64.store16 (local.get $to) (local.get $e))
      (i64.store16
        (i32.sub (i32.add (local.get $to) (local.get $len)) (i32.const 2)) (local.get $e))
      (return)))
    (if (local.get $len) (then
      (i64.store8 (local.get $to) (local.get $e))))))"#;

/// Bodies of the two functions, as a code section has them.
fn functions() -> Option<&'static [Vec<u8>]> {
    static BODIES: OnceLock<Option<Vec<Vec<u8>>>> = OnceLock::new();
    let bodies = BODIES.get_or_init(|| {
        let module = wat::parse_str(FUNCTIONS).ok()?;
        let mut bodies = Vec::new();
        for payload in Parser::new(0).parse_all(&module) {
            if let Payload::CodeSectionEntry(body) = payload.ok()? {
                bodies.push(module[body.range()].to_vec());
            }
        }
        Some(bodies)
    });
    bodies.as_deref()
}

/// The module with cheap short copies and fills; none if it has neither, or is not of the kind that
/// services are, which whoever compiles it will say.
pub(crate) fn shorten(wasm: &[u8]) -> Option<Vec<u8>> {
    let (mut functions_len, mut types, mut memories) = (0, 0, 0);
    let mut bodies = Vec::new();
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.ok()? {
            Payload::TypeSection(section) => {
                for group in section {
                    types += u32::try_from(group.ok()?.types().len()).ok()?;
                }
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    functions_len += u32::from(matches!(import.ok()?.ty, TypeRef::Func(_)));
                }
            }
            Payload::FunctionSection(section) => functions_len += section.count(),
            Payload::MemorySection(section) => {
                for memory in section {
                    let memory = memory.ok()?;
                    if memory.memory64 || memory.shared {
                        return None;
                    }
                    memories += 1;
                }
            }
            Payload::CodeSectionEntry(body) => bodies.push(body),
            _ => {}
        }
    }
    if memories != 1 {
        return None;
    }
    let mut changed = false;
    let mut code = Vec::new();
    number(&mut code, u32::try_from(bodies.len()).ok()? + 2);
    for body in &bodies {
        let body = rewrite(wasm, body, functions_len, &mut changed)?;
        number(&mut code, u32::try_from(body.len()).ok()?);
        code.extend(body);
    }
    for body in functions()? {
        number(&mut code, u32::try_from(body.len()).ok()?);
        code.extend(body);
    }
    if !changed {
        return None;
    }
    let mut signatures = Vec::new();
    number(&mut signatures, types);
    number(&mut signatures, types);
    sections(wasm, |id, content, out| {
        match id {
            TYPE_SECTION => append(out, content, 1, &TYPE)?,
            FUNCTION_SECTION => append(out, content, 2, &signatures)?,
            CODE_SECTION => out.extend_from_slice(&code),
            _ => out.extend_from_slice(content),
        }
        Some(())
    })
}

/// A function's body with calls in place of the two instructions.
fn rewrite(wasm: &[u8], body: &FunctionBody, first: u32, changed: &mut bool) -> Option<Vec<u8>> {
    let mut reader = body.get_operators_reader().ok()?;
    let mut out = wasm[body.range().start..reader.original_position()].to_vec();
    let mut constant = None;
    while !reader.eof() {
        let at = reader.original_position();
        let operator = reader.read().ok()?;
        let small = constant.is_some_and(|len| (0..=CONSTANT_LEN_MAX).contains(&len));
        let call = match operator {
            Operator::MemoryCopy {
                dst_mem: 0,
                src_mem: 0,
            } if !small => Some(first),
            Operator::MemoryFill { mem: 0 } => Some(first + 1),
            _ => None,
        };
        match call {
            Some(function) => {
                out.push(0x10);
                number(&mut out, function);
                *changed = true;
            }
            None => out.extend_from_slice(&wasm[at..reader.original_position()]),
        }
        constant = match operator {
            Operator::I32Const { value } => Some(value),
            _ => None,
        };
    }
    Some(out)
}

/// The module with each section's content as `write` puts it.
fn sections(
    wasm: &[u8],
    mut write: impl FnMut(u8, &[u8], &mut Vec<u8>) -> Option<()>,
) -> Option<Vec<u8>> {
    let (header, mut rest) = wasm.split_at_checked(8)?;
    let mut out = header.to_vec();
    while let Some((id, after)) = rest.split_first() {
        let (len, after) = read_number(after)?;
        let (content, after) = after.split_at_checked(len as usize)?;
        let mut written = Vec::with_capacity(content.len() + 16);
        write(*id, content, &mut written)?;
        out.push(*id);
        number(&mut out, u32::try_from(written.len()).ok()?);
        out.extend(written);
        rest = after;
    }
    Some(out)
}

/// Copies a section that begins with a count, with more behind it.
fn append(out: &mut Vec<u8>, content: &[u8], count: u32, more: &[u8]) -> Option<()> {
    let (before, entries) = read_number(content)?;
    number(out, before.checked_add(count)?);
    out.extend_from_slice(entries);
    out.extend_from_slice(more);
    Some(())
}

/// Writes a number as LEB128.
fn number(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads such a number; what comes after it.
fn read_number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut value = 0u64;
    for (i, byte) in bytes.iter().enumerate().take(5) {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((u32::try_from(value).ok()?, &bytes[i + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasmtime::{Engine, Instance, Memory, Module, Store, TypedFunc};

    const MODULE: &str = r#"(module
      (memory (export "memory") 1)
      (func (export "copy") (param i32 i32 i32)
        (memory.copy (local.get 0) (local.get 1) (local.get 2)))
      (func (export "fill") (param i32 i32 i32)
        (memory.fill (local.get 0) (local.get 1) (local.get 2)))
      (func (export "constant") (memory.copy (i32.const 0) (i32.const 50) (i32.const 20))))"#;

    type Move = TypedFunc<(i32, i32, i32), ()>;

    struct Side {
        store: Store<()>,
        memory: Memory,
        moves: [Move; 2],
    }

    fn side(wasm: &[u8]) -> Side {
        let engine = Engine::default();
        let module = Module::from_binary(&engine, wasm).expect("is valid");
        let mut store = Store::new(&engine, ());
        let instance = Instance::new(&mut store, &module, &[]).expect("starts");
        let memory = instance.get_memory(&mut store, "memory").expect("there");
        let moves = ["copy", "fill"].map(|name| {
            let function = instance.get_typed_func(&mut store, name);
            function.expect("there")
        });
        Side {
            store,
            memory,
            moves,
        }
    }

    #[test]
    fn short_ones_do_what_the_instructions_do() {
        let wasm = wat::parse_str(MODULE).expect("is well-formed");
        let short = shorten(&wasm).expect("has both instructions");
        let (mut plain, mut short) = (side(&wasm), side(&short));
        let mut state = 7u64;
        let mut draw = |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % bound) as i32
        };
        for s in [&mut plain, &mut short] {
            for (i, byte) in s.memory.data_mut(&mut s.store).iter_mut().enumerate() {
                *byte = (i * 7 + i / 256) as u8;
            }
        }
        for round in 0..20_000 {
            let len = draw(if round % 8 == 0 { 600 } else { 80 });
            // near each other, so that they overlap; at the memory's end too
            let base = if draw(4) == 0 { 65_536 - 1000 } else { 2000 };
            let (to, other) = (base + draw(400), base + draw(400));
            let which = draw(2) as usize;
            for s in [&mut plain, &mut short] {
                let done = s.moves[which].call(&mut s.store, (to, other, len));
                done.expect("within the memory");
            }
        }
        assert!(plain.memory.data(&plain.store) == short.memory.data(&short.store));
    }

    #[test]
    fn long_ranges_outside_of_the_memory_trap() {
        let wasm = wat::parse_str(MODULE).expect("is well-formed");
        let mut short = side(&shorten(&wasm).expect("has both instructions"));
        for which in 0..2 {
            for len in [1, 3, 5, 9, 20, 40, 100, 300] {
                let mut call = |at| short.moves[which].call(&mut short.store, (at, 0, len));
                assert!(call(65_536 - len).is_ok(), "{which} {len}");
                assert!(call(65_536 - len + 1).is_err(), "{which} {len}");
            }
        }
    }

    #[test]
    fn what_needs_no_change_is_left_alone() {
        let none =
            "(module (memory 1) (func (memory.copy (i32.const 0) (i32.const 9) (i32.const 8))))";
        assert!(shorten(&wat::parse_str(none).expect("is well-formed")).is_none());
        assert!(shorten(b"\0asm\x01\0\0\0\x0a\x05\x01").is_none());
        assert!(shorten(b"").is_none());
    }
}
