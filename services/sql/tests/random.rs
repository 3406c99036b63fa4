//! The SQL engine on random statements, against naive evaluation and against itself.

mod common;

use std::collections::BTreeMap;

use common::{Shell, int};
use e3_service_sql::engine::Value;
use e3_testkit::{Random, seeds};

/// Random comparisons on a key of two columns, against a filter over all rows.
#[test]
fn ranges_take_what_a_full_scan_takes() {
    let mut shell = Shell::new();
    let create = "CREATE TABLE t (a INT, b REAL, c INT, PRIMARY KEY (a, b))";
    shell.run(create, &[]).unwrap();
    let mut random = Random::new(42);
    let mut all = BTreeMap::new();
    for _ in 0..300 {
        let (a, b, c) = (
            random.below(8) as i64 - 4,
            random.below(40) as i64 - 20,
            random.below(5) as i64,
        );
        let insert = "INSERT INTO t VALUES (?, ?, ?)";
        let row = [int(a), Value::Real(b as f64 / 2.0), int(c)];
        let inserted = shell.run(insert, &row);
        assert_eq!(inserted.is_ok(), all.insert((a, b), c).is_none());
        if inserted.is_err() {
            let update = "UPDATE t SET c = ? WHERE a = ? AND b = ?";
            let row = [int(c), int(a), Value::Real(b as f64 / 2.0)];
            assert_eq!(shell.run(update, &row), Ok(1));
        }
    }
    let ops = ["=", "<", "<=", ">", ">=", "<>"];
    let holds = |op: &str, x: i64, y: i64| match op {
        "=" => x == y,
        "<" => x < y,
        "<=" => x <= y,
        ">" => x > y,
        ">=" => x >= y,
        _ => x != y,
    };
    for round in 0..2000 {
        let mut terms = Vec::new();
        for _ in 0..1 + random.below(3) {
            let column = ["a", "b", "c"][random.index(3)];
            let op = ops[random.index(6)];
            // In halves, as b is.
            let value = random.below(24) as i64 - 12;
            terms.push((column, op, value));
        }
        let filter: Vec<_> = terms
            .iter()
            .map(|(column, op, value)| format!("{column} {op} {:.1}", *value as f64 / 2.0))
            .collect();
        let descending = random.one_in(2);
        let direction = if descending { "DESC" } else { "ASC" };
        let query = format!(
            "SELECT a, b, c FROM t WHERE {} ORDER BY a {direction}, b {direction} LIMIT 20",
            filter.join(" AND ")
        );
        let mut expected: Vec<Vec<Value>> = all
            .iter()
            .filter(|((a, b), c)| {
                terms.iter().all(|(column, op, value)| match *column {
                    "a" => holds(op, *a * 2, *value),
                    "b" => holds(op, *b, *value),
                    _ => holds(op, **c * 2, *value),
                })
            })
            .map(|((a, b), c)| vec![int(*a), Value::Real(*b as f64 / 2.0), int(*c)])
            .collect();
        if descending {
            expected.reverse();
        }
        expected.truncate(20);
        assert_eq!(
            shell.rows(&query, &[]),
            Ok(expected),
            "round {round}: {query}"
        );
    }
}

/// The parser is fed damaged statements: an error or a result, never a panic.
#[test]
fn damaged_statements_do_no_harm() {
    let whole = "SELECT a, -b * 2 AS x, 'it''s' FROM t WHERE a IN (1, ?) AND b BETWEEN 0 AND 9.5 \
                 OR NOT c IS NULL ORDER BY a DESC, b LIMIT 5 OFFSET ?";
    let mut shell = Shell::new();
    shell
        .run(
            "CREATE TABLE t (a INT, b REAL, c TEXT, PRIMARY KEY (a))",
            &[],
        )
        .unwrap();
    assert_eq!(shell.rows(whole, &[int(1), int(0)]), Ok(vec![]));
    let mut random = Random::new(7);
    for _ in 0..3000 {
        let mut bytes = whole.as_bytes().to_vec();
        for _ in 0..1 + random.below(4) {
            let at = random.index(bytes.len());
            if bytes.is_empty() {
                break;
            }
            match random.below(3) {
                0 => bytes[at] = b' ' + random.below(95) as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let text = String::from_utf8(bytes).unwrap();
        let _ = shell.rows(&text, &[int(1), int(0)]);
    }
}

/// Keys of rows and of entries of indices.
fn keys(shell: &Shell) -> [usize; 2] {
    let entries = shell.0.store();
    [1, 2].map(|kind| entries.0.keys().filter(|key| key[2] == kind).count())
}

/// The same statements with indices and without: the same rows, and an entry for each row.
#[test]
fn indices_change_no_result() {
    for seed in seeds(3) {
        let mut random = Random::new(seed);
        let mut shells = [Shell::new(), Shell::new()];
        let create = "CREATE TABLE t (a INT, b REAL, c TEXT, d INT, PRIMARY KEY (d, a))";
        for shell in &mut shells {
            shell.run(create, &[]).unwrap();
        }
        let mut indices = 0;
        for round in 0..600 {
            let number =
                |random: &mut Random| format!("{:.2}", random.below(32) as f64 / 4.0 - 4.0);
            let [n, m] = [0; 2].map(|_| number(&mut random));
            // Few rows, so that an UPDATE of all with all indices fits into what may be written.
            let whole = random.below(3) as i64;
            let letter = ["'x'", "'y'", "'yy'", "NULL"][random.index(4)];
            let ops = ["=", "=", "<", "<=", ">", ">="];
            let op = ops[random.index(6)];
            let key = round % 12;
            let statement = match random.below(10) {
                0..3 => format!("INSERT OR REPLACE INTO t VALUES ({whole}, {n}, {letter}, {key})"),
                3 => format!("INSERT OR REPLACE INTO t VALUES ({whole}, NULL, {letter}, {key})"),
                4 => format!("UPDATE t SET b = {n}, c = {letter} WHERE b {op} {m}"),
                5 => format!("UPDATE t SET b = b + {n} WHERE c {op} {letter} AND d > {m}"),
                6 => format!("DELETE FROM t WHERE c = {letter} AND b {op} {m} AND d < {key}"),
                7 if random.one_in(4) => {
                    let columns = ["b", "c", "c, b", "b, a"][indices % 4];
                    let create = format!("CREATE INDEX i{indices} ON t ({columns})");
                    indices += usize::from(shells[1].run(&create, &[]).is_ok());
                    continue;
                }
                _ => format!("SELECT * FROM t WHERE b {op} {n} AND c >= {letter} OR a = {m}"),
            };
            let run = |shell: &mut Shell| {
                if statement.starts_with("SELECT") {
                    shell.rows(&statement, &[])
                } else {
                    shell
                        .run(&statement, &[])
                        .map(|n| vec![vec![int(n as i64)]])
                }
            };
            let [plain, indexed] = shells.each_mut().map(run);
            assert_eq!(plain, indexed, "seed {seed}, round {round}: {statement}");
            let [rows, entries] = keys(&shells[1]);
            assert_eq!(
                entries,
                rows * indices.min(8),
                "seed {seed}, round {round}: {statement}"
            );
            for filter in [
                format!("b {op} {n}"),
                format!("c {op} {letter} AND b {op} {m}"),
                format!("c = {letter}"),
                format!("c = {letter} AND b > {m} AND a < {n}"),
            ] {
                let query =
                    format!("SELECT * FROM t WHERE {filter} ORDER BY c, b DESC, d, a LIMIT 30");
                let [plain, indexed] = shells.each_mut().map(|shell| shell.rows(&query, &[]));
                assert_eq!(plain, indexed, "seed {seed}, round {round}: {query}");
                let query =
                    format!("SELECT b, d, a FROM t WHERE {filter} ORDER BY b, d, a LIMIT 5");
                let [plain, indexed] = shells.each_mut().map(|shell| shell.rows(&query, &[]));
                assert_eq!(plain, indexed, "seed {seed}, round {round}: {query}");
            }
        }
        assert!(indices >= 4, "seed {seed}");
    }
}

/// Joins against two loops over all rows.
#[test]
fn a_join_is_two_loops() {
    let mut shell = Shell::new();
    let mut random = Random::new(3);
    let mut all: [Vec<[i64; 3]>; 2] = Default::default();
    for (table, rows) in ["t", "u"].iter().zip(&mut all) {
        let create = format!("CREATE TABLE {table} (a INT PRIMARY KEY, b INT, c INT NOT NULL)");
        shell.run(&create, &[]).unwrap();
        for a in 0..40 {
            let row = [a, random.below(12) as i64, random.below(5) as i64];
            let insert = format!(
                "INSERT INTO {table} VALUES ({}, {}, {})",
                row[0], row[1], row[2]
            );
            shell.run(&insert, &[]).unwrap();
            rows.push(row);
        }
    }
    for round in 0..300 {
        if round == 100 {
            shell.run("CREATE INDEX tb ON t (b, c)", &[]).unwrap();
        }
        if round == 200 {
            shell.run("CREATE INDEX uc ON u (c)", &[]).unwrap();
        }
        let [x, y, z] = [0; 3].map(|_| random.index(3));
        let (least, most) = (random.below(12) as i64, random.below(40) as i64);
        let name = |at: usize| ["a", "b", "c"][at];
        let query =
            format!(
            "SELECT t.a, u.a FROM t JOIN u ON t.{} = u.{} WHERE t.{} >= {least} AND u.a < {most}
             ORDER BY t.a, u.a",
            name(x), name(y), name(z)
        );
        let mut expected = Vec::new();
        for t in &all[0] {
            for u in &all[1] {
                if t[x] == u[y] && t[z] >= least && u[0] < most {
                    expected.push(vec![int(t[0]), int(u[0])]);
                }
            }
        }
        assert_eq!(
            shell.rows(&query, &[]),
            Ok(expected),
            "round {round}: {query}"
        );
    }
}
