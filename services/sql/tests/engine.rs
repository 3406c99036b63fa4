//! The SQL engine on an ordered map in memory, against naive evaluation.

use std::collections::BTreeMap;

use e3_service_sql::engine::{Database, Plan, Scope, SqlError, Store, Value, Visit};
use e3_service_sql::limits;

#[derive(Default)]
struct Memory(BTreeMap<Vec<u8>, Vec<u8>>);

impl Store for Memory {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, SqlError> {
        Ok(self.0.get(key).cloned())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), SqlError> {
        self.0.insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), SqlError> {
        self.0.remove(key);
        Ok(())
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        reverse: bool,
        _expected: u32,
        visit: &mut Visit<'_>,
    ) -> Result<(), SqlError> {
        let mut entries: Vec<_> = self.0.range(from.to_vec()..to.to_vec()).collect();
        if reverse {
            entries.reverse();
        }
        for (key, value) in entries {
            if !visit(key, value)? {
                break;
            }
        }
        Ok(())
    }
}

struct Shell(Database<Memory>);

impl Shell {
    fn new() -> Self {
        Self(Database::new(Memory::default(), "").unwrap())
    }

    fn run(&mut self, text: &str, parameters: &[Value]) -> Result<u64, SqlError> {
        self.change(text, parameters, None)
    }

    fn change(
        &mut self,
        text: &str,
        parameters: &[Value],
        scope: Option<&Scope>,
    ) -> Result<u64, SqlError> {
        self.0.enter(0).unwrap();
        let prepared = self.0.prepare(text)?;
        let changed = self.0.execute(&prepared.plan, parameters, scope);
        match &changed {
            Ok(_) => self.0.commit().unwrap(),
            Err(_) => self.0.rollback(),
        }
        changed
    }

    fn rows(&mut self, text: &str, parameters: &[Value]) -> Result<Vec<Vec<Value>>, SqlError> {
        self.scoped(text, parameters, None)
    }

    fn scoped(
        &mut self,
        text: &str,
        parameters: &[Value],
        scope: Option<&Scope>,
    ) -> Result<Vec<Vec<Value>>, SqlError> {
        self.0.enter(0).unwrap();
        let prepared = self.0.prepare(text)?;
        let mut rows = Vec::new();
        self.0
            .query(&prepared.plan, parameters, scope, &mut |row| {
                rows.push(row.to_vec());
                true
            })?;
        Ok(rows)
    }

    /// One value of one row.
    fn value(&mut self, text: &str) -> Result<Value, SqlError> {
        Ok(self.rows(text, &[])?.remove(0).remove(0))
    }
}

const fn int(value: i64) -> Value {
    Value::Integer(value)
}

fn text(value: &str) -> Value {
    Value::Text(value.into())
}

fn rooms() -> Shell {
    let mut shell = Shell::new();
    let create = "CREATE TABLE rooms (house INT, name TEXT, area REAL, floor INT NOT NULL,
                  PRIMARY KEY (house, name))";
    shell.run(create, &[]).unwrap();
    let insert = "INSERT INTO rooms (house, name, area, floor) VALUES
                  (1, 'hall', 12.5, 0), (1, 'attic', NULL, 2), (2, 'hall', 30, 0),
                  (2, 'bath', 8.25, 1), (-3, 'cellar', 99.0, -1)";
    assert_eq!(shell.run(insert, &[]), Ok(5));
    shell
}

#[test]
fn selects_in_the_order_of_the_key() {
    let mut shell = rooms();
    let rows = shell.rows("SELECT house, name FROM rooms", &[]).unwrap();
    let expected = [
        (-3, "cellar"),
        (1, "attic"),
        (1, "hall"),
        (2, "bath"),
        (2, "hall"),
    ];
    assert_eq!(
        rows,
        expected.map(|(house, name)| vec![int(house), text(name)])
    );
    let rows = shell
        .rows("SELECT * FROM rooms WHERE house = 2 AND name = 'bath'", &[])
        .unwrap();
    assert_eq!(rows, [[int(2), text("bath"), Value::Real(8.25), int(1)]]);
}

#[test]
fn three_valued_logic() {
    let mut shell = rooms();
    for (filter, count) in [
        ("area > 10", 3),
        ("NOT area > 10", 1),
        ("area IS NULL", 1),
        ("area IS NOT NULL", 4),
        ("area = NULL", 0),
        ("area > 10 OR floor = 2", 4),
        ("area > 10 AND floor = 2", 0),
        ("NOT (area > 10 AND floor = 2)", 4),
        ("area BETWEEN 8.25 AND 12.5", 2),
        ("area NOT BETWEEN 8.25 AND 12.5", 2),
        ("house IN (1, 2.0)", 4),
        ("house NOT IN (1, NULL)", 0),
        ("name >= 'b' AND name < 'c'", 1),
        ("floor + 1 = house * 1", 2),
        ("floor / 0 IS NULL", 5),
        ("floor % 2 = 1", 1),
        ("-house = 3", 1),
        ("rooms.house <> 1", 3),
        ("house > 1.5", 2),
        ("1 = 1 AND 2 <= house", 2),
    ] {
        let query = format!("SELECT count(*) FROM rooms WHERE {filter}");
        assert_eq!(shell.value(&query), Ok(int(count)), "{filter}");
    }
}

#[test]
fn aggregates() {
    let mut shell = rooms();
    let query = "SELECT count(*), count(area), sum(area), avg(area), min(name), max(area) + 1,
                 sum(floor) FROM rooms WHERE house >= 0";
    let expected = vec![
        int(4),
        int(3),
        Value::Real(50.75),
        Value::Real(50.75 / 3.0),
        text("attic"),
        Value::Real(31.0),
        int(3),
    ];
    assert_eq!(shell.rows(query, &[]), Ok(vec![expected]));
    let query = "SELECT count(*), sum(area), avg(area), min(area) FROM rooms WHERE house = 77";
    let expected = vec![int(0), Value::Null, Value::Null, Value::Null];
    assert_eq!(shell.rows(query, &[]), Ok(vec![expected]));
}

#[test]
fn orders_and_limits() {
    let mut shell = rooms();
    let mut names = |query: &str, parameters: &[Value]| -> Vec<String> {
        let rows = shell.rows(query, parameters).unwrap();
        rows.iter().map(|row| format!("{:?}", row[0])).collect()
    };
    let text = |names: &[&str]| -> Vec<String> {
        names.iter().map(|name| format!("Text({name:?})")).collect()
    };
    // By no key: sorted. NULL comes first.
    assert_eq!(
        names("SELECT name FROM rooms ORDER BY area", &[]),
        text(&["attic", "bath", "hall", "hall", "cellar"])
    );
    assert_eq!(
        names(
            "SELECT name FROM rooms ORDER BY floor DESC, house LIMIT 2 OFFSET 1",
            &[]
        ),
        text(&["bath", "hall"])
    );
    // By the key, backwards.
    assert_eq!(
        names(
            "SELECT name FROM rooms ORDER BY house DESC, name DESC LIMIT ?",
            &[int(3)]
        ),
        text(&["hall", "bath", "hall"])
    );
    assert_eq!(
        names(
            "SELECT name FROM rooms WHERE house = 1 ORDER BY name DESC",
            &[]
        ),
        text(&["hall", "attic"])
    );
    // By the key in mixed directions: sorted.
    assert_eq!(
        names("SELECT name FROM rooms ORDER BY house DESC, name", &[]),
        text(&["bath", "hall", "attic", "hall", "cellar"])
    );
    assert_eq!(names("SELECT name FROM rooms LIMIT 0", &[]), text(&[]));
}

#[test]
fn updates_and_deletes() {
    let mut shell = rooms();
    let update = "UPDATE rooms SET area = area + ?, floor = floor - 1 WHERE house = 2";
    assert_eq!(shell.run(update, &[Value::Real(0.5)]), Ok(2));
    let query = "SELECT area, floor FROM rooms WHERE house = 2";
    let rows = shell.rows(query, &[]).unwrap();
    assert_eq!(
        rows,
        [[Value::Real(8.75), int(0)], [Value::Real(30.5), int(-1)]]
    );
    assert_eq!(shell.run("DELETE FROM rooms WHERE area > 20", &[]), Ok(2));
    assert_eq!(shell.value("SELECT count(*) FROM rooms"), Ok(int(3)));
    assert_eq!(shell.run("DELETE FROM rooms", &[]), Ok(3));
}

#[test]
fn faults_are_named_and_change_nothing() {
    let mut shell = rooms();
    for (statement, fault) in [
        ("SELEC", "not supported: statements"),
        ("SELECT", "syntax: "),
        ("", "not supported: no statement"),
        (
            "SELECT 1 FROM rooms; SELECT 2 FROM rooms",
            "statements: too many, must be at most 1",
        ),
        ("SELECT 1; EXPLAIN SELECT 1", "statements: too many"),
        ("SELECT x FROM rooms", "table rooms: has no column x"),
        ("SELECT count(*) FROM towns", "table towns: does not exist"),
        ("SELECT house, count(*) FROM rooms", "aggregate: "),
        ("SELECT house FROM rooms WHERE count(*) > 1", "aggregate: "),
        ("SELECT name FROM rooms GROUP BY house", "aggregate: "),
        ("SELECT house FROM rooms HAVING 1", "not supported: HAVING"),
        (
            "SELECT house FROM rooms ORDER BY 2",
            "operand: must be the number",
        ),
        (
            "SELECT DISTINCT house FROM rooms",
            "not supported: DISTINCT",
        ),
        (
            "SELECT 1 FROM rooms, rooms",
            "table rooms: stands there twice",
        ),
        (
            "SELECT name FROM rooms JOIN rooms b ON b.house = 1",
            "column name: is in both tables",
        ),
        (
            "SELECT 1 FROM rooms LEFT JOIN rooms b ON 1",
            "not supported: JOIN but INNER",
        ),
        (
            "SELECT 1 FROM rooms a, rooms b, rooms c",
            "not supported: a join of more than two tables",
        ),
        ("SELECT b.name FROM rooms", "table b: has no column name"),
        ("CREATE INDEX i ON towns (a)", "table towns: does not exist"),
        (
            "CREATE INDEX i ON rooms (a)",
            "table rooms: has no column a",
        ),
        (
            "CREATE INDEX i ON rooms (area, area)",
            "column area: is named twice",
        ),
        (
            "CREATE UNIQUE INDEX i ON rooms (area)",
            "not supported: options",
        ),
        ("DROP INDEX i", "index i: does not exist"),
        ("DROP TABLE towns", "table towns: does not exist"),
        (
            "SELECT 1 FROM rooms UNION SELECT 2 FROM rooms",
            "not supported: queries",
        ),
        ("SELECT random() FROM rooms", "not supported: functions"),
        ("SELECT (SELECT 1) FROM rooms", "not supported: expressions"),
        (
            "INSERT INTO rooms VALUES (1, 'hall', 1.0, 1)",
            "table rooms: has a row",
        ),
        (
            "INSERT INTO rooms VALUES (9, 'a', 1, 1), (9, 'a', 1, 1)",
            "table rooms: has a row",
        ),
        (
            "INSERT INTO rooms (house, name) VALUES (9, 'a')",
            "column floor: is NULL",
        ),
        (
            "INSERT INTO rooms VALUES (9, 'a', 'b', 1)",
            "column area: must be a REAL",
        ),
        (
            "INSERT INTO rooms VALUES (9.5, 'a', 1.0, 1)",
            "column house: must be an INTEGER",
        ),
        (
            "INSERT INTO rooms VALUES (9, NULL, 1.0, 1)",
            "column name: is NULL",
        ),
        (
            "INSERT INTO rooms VALUES (9, 'a', 1.0)",
            "not supported: VALUES of another length",
        ),
        (
            "UPDATE rooms SET house = 4",
            "column house: is of the primary key",
        ),
        ("UPDATE rooms SET floor = NULL", "column floor: is NULL"),
        (
            "UPDATE rooms SET floor = floor + 9223372036854775807",
            "number: out of range",
        ),
        (
            "CREATE TABLE rooms (a INT PRIMARY KEY)",
            "table rooms: exists already",
        ),
        ("CREATE TABLE t (a INT)", "table t: has no primary key"),
        (
            "CREATE TABLE t (a INT PRIMARY KEY, A INT)",
            "column a: is named twice",
        ),
        (
            "CREATE TABLE t (a BLOB PRIMARY KEY)",
            "not supported: types",
        ),
        (
            "DELETE FROM rooms WHERE name",
            "operand: must be a truth value",
        ),
        ("DROP VIEW rooms", "not supported: statements"),
        (
            "DELETE FROM rooms WHERE house = $1",
            "not supported: parameters",
        ),
        (
            "DELETE FROM rooms WHERE house = ?",
            "parameters: 0 given, must be at least 1",
        ),
    ] {
        let fault_of = |shell: &mut Shell| -> Result<u64, SqlError> {
            shell.0.enter(0).unwrap();
            let prepared = shell.0.prepare(statement)?;
            if matches!(prepared.plan, Plan::Select(_)) {
                shell.rows(statement, &[]).map(|rows| rows.len() as u64)
            } else {
                shell.run(statement, &[])
            }
        };
        let error = fault_of(&mut shell).unwrap_err().to_string();
        assert!(error.starts_with(fault), "{statement}: {error}");
    }
    let everything = shell.rows("SELECT * FROM rooms", &[]).unwrap();
    assert_eq!(
        everything,
        rooms().rows("SELECT * FROM rooms", &[]).unwrap()
    );
}

#[test]
fn deep_and_long_statements_are_refused_in_time() {
    let mut shell = rooms();
    let chain = vec!["1"; limits::EXPRESSION_DEPTH_MAX + 2].join("+");
    let nested = format!("{}1{}", "(".repeat(200), ")".repeat(200));
    let nots = format!("{} 1", "NOT ".repeat(200));
    let minus = format!("{} 1", "- ".repeat(200));
    for expr in [chain, nested, nots, minus] {
        let query = format!("SELECT count(*) FROM rooms WHERE {expr}");
        assert!(shell.rows(&query, &[]).is_err(), "{query}");
    }
    let chain = vec!["floor = 7"; 30].join(" OR ");
    let query = format!("SELECT count(*) FROM rooms WHERE {chain}");
    assert_eq!(shell.value(&query), Ok(int(0)));
}

#[test]
fn a_scope_hides_the_rest() {
    let mut shell = rooms();
    let scope = Scope {
        column: "house".into(),
        value: int(2),
    };
    for (query, count) in [
        ("SELECT name FROM rooms", 2),
        ("SELECT name FROM rooms WHERE house = 1", 0),
        ("SELECT name FROM rooms WHERE house = 1 OR 1 = 1", 2),
        ("SELECT name FROM rooms WHERE house > 0 ORDER BY area", 2),
    ] {
        let rows = shell.scoped(query, &[], Some(&scope)).unwrap();
        assert_eq!(rows.len(), count, "{query}");
    }
    shell
        .run("CREATE TABLE t (a INT PRIMARY KEY)", &[])
        .unwrap();
    assert!(shell.scoped("SELECT a FROM t", &[], Some(&scope)).is_err());
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> i64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound) as i64
    }
}

/// Random comparisons on a key of two columns, against a filter over all rows.
#[test]
fn ranges_take_what_a_full_scan_takes() {
    let mut shell = Shell::new();
    let create = "CREATE TABLE t (a INT, b REAL, c INT, PRIMARY KEY (a, b))";
    shell.run(create, &[]).unwrap();
    let mut random = Random(42);
    let mut all = BTreeMap::new();
    for _ in 0..300 {
        let (a, b, c) = (random.below(8) - 4, random.below(40) - 20, random.below(5));
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
            let column = ["a", "b", "c"][random.below(3) as usize];
            let op = ops[random.below(6) as usize];
            // In halves, as b is.
            let value = random.below(24) - 12;
            terms.push((column, op, value));
        }
        let filter: Vec<_> = terms
            .iter()
            .map(|(column, op, value)| format!("{column} {op} {:.1}", *value as f64 / 2.0))
            .collect();
        let descending = random.below(2) == 1;
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
    let mut random = Random(7);
    for _ in 0..3000 {
        let mut bytes = whole.as_bytes().to_vec();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len().max(1) as u64) as usize;
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
