//! The SQL engine on an ordered map in memory.

mod common;

use common::{Shell, int, text};
use e3_service_sql::engine::{Plan, Scope, SqlError, Value};
use e3_service_sql::limits;

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
    for (statement, expected) in [
        ("SELEC", "not supported: statements"),
        ("SELECT", "syntax: "),
        ("", "not supported: an empty statement"),
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
        ("SELECT 1 FROM rooms, rooms", "table rooms: is used twice"),
        (
            "SELECT name FROM rooms JOIN rooms b ON b.house = 1",
            "column name: is ambiguous",
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
            "table rooms: already has a row",
        ),
        (
            "INSERT INTO rooms VALUES (9, 'a', 1, 1), (9, 'a', 1, 1)",
            "table rooms: already has a row",
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
            "column house: belongs to the primary key",
        ),
        ("UPDATE rooms SET floor = NULL", "column floor: is NULL"),
        (
            "UPDATE rooms SET floor = floor + 9223372036854775807",
            "number: out of range",
        ),
        (
            "CREATE TABLE rooms (a INT PRIMARY KEY)",
            "table rooms: already exists",
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
        let run = |shell: &mut Shell| -> Result<u64, SqlError> {
            shell.0.enter(0).unwrap();
            let prepared = shell.0.prepare(statement)?;
            if matches!(prepared.plan, Plan::Select(_)) {
                shell.rows(statement, &[]).map(|rows| rows.len() as u64)
            } else {
                shell.run(statement, &[])
            }
        };
        let error = run(&mut shell).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{statement}: {error}");
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

#[test]
fn joins_and_groups() {
    let mut shell = rooms();
    shell
        .run("CREATE TABLE houses (id INT PRIMARY KEY, street TEXT)", &[])
        .unwrap();
    let insert = "INSERT INTO houses VALUES (1, 'Elm'), (2, 'Oak'), (3, NULL), (-3, 'Oak')";
    shell.run(insert, &[]).unwrap();
    for (query, expected) in [
        (
            "SELECT street, sum(area) AS a, count(*) FROM houses JOIN rooms r ON r.house = id
             GROUP BY street HAVING a IS NULL OR count(*) > 1 ORDER BY 1 DESC",
            "table houses: has no column a",
        ),
        (
            "SELECT street, sum(area) AS a, count(*) FROM houses JOIN rooms r ON r.house = id
             GROUP BY street HAVING count(*) > 1 ORDER BY a DESC",
            "[[Text(\"Oak\"), Real(137.25), Integer(3)], [Text(\"Elm\"), Real(12.5), Integer(2)]]",
        ),
        (
            "SELECT r.name FROM rooms r, houses WHERE house = id AND street = 'Elm' ORDER BY name",
            "[[Text(\"attic\")], [Text(\"hall\")]]",
        ),
        (
            "SELECT h.* FROM houses h CROSS JOIN houses g WHERE h.id + 1 = g.id ORDER BY h.id",
            "[[Integer(1), Text(\"Elm\")], [Integer(2), Text(\"Oak\")]]",
        ),
        (
            "SELECT floor % 2, max(house) FROM rooms GROUP BY floor % 2 ORDER BY floor % 2",
            "[[Integer(-1), Integer(-3)], [Integer(0), Integer(2)], [Integer(1), Integer(2)]]",
        ),
        (
            "SELECT count(*) FROM rooms WHERE 1 = 0 GROUP BY house",
            "[]",
        ),
        (
            "SELECT CASE WHEN area > 20 THEN 'large' WHEN area > 10 THEN 'medium' END, abs(-house),
             coalesce(area, floor, 7) FROM rooms WHERE house > 0 ORDER BY area LIMIT 3",
            "[[Null, Integer(1), Integer(2)], [Null, Integer(2), Real(8.25)], \
              [Text(\"medium\"), Integer(1), Real(12.5)]]",
        ),
        ("SELECT 1 + 1, 'x'", "[[Integer(2), Text(\"x\")]]"),
    ] {
        let found = match shell.rows(query, &[]) {
            Ok(rows) => format!("{rows:?}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{query}");
    }
}

#[test]
fn what_takes_too_much_is_refused() {
    let mut shell = Shell::new();
    shell
        .run("CREATE TABLE t (a INT PRIMARY KEY, b TEXT)", &[])
        .unwrap();
    for a in 0..limits::ROWS_CHANGED_MAX as i64 + 1 {
        shell
            .run("INSERT INTO t VALUES (?, 'b')", &[int(a)])
            .unwrap();
    }
    let long = "x".repeat(1000);
    let join = "SELECT count(*) FROM t x, t y WHERE x.b = y.b";
    for (statement, parameters, what) in [
        ("UPDATE t SET b = 'c'", vec![], "rows to change"),
        ("DELETE FROM t", vec![], "rows to change"),
        ("CREATE INDEX i ON t (b)", vec![], "rows to change"),
        ("DROP TABLE t", vec![], "rows to change"),
        (join, vec![], "pairs of rows"),
        (
            "SELECT 1 FROM t x, t y ORDER BY x.b",
            vec![],
            "rows to sort",
        ),
        (
            "SELECT x.a FROM t x, t y GROUP BY x.a, y.a",
            vec![],
            "groups",
        ),
        (
            "UPDATE t SET b = ? WHERE a < 50",
            vec![text(&long)],
            "bytes to write",
        ),
        (
            "UPDATE t SET b = ? WHERE a < 5",
            vec![text(&(long.clone() + &long))],
            "bytes of a text",
        ),
    ] {
        let error = if statement.starts_with("SELECT") {
            shell.rows(statement, &parameters).map(drop)
        } else {
            shell.run(statement, &parameters).map(drop)
        };
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with(what), "{statement}: {error}");
    }
    assert_eq!(
        shell.value("SELECT count(*) FROM t WHERE b = 'b'"),
        Ok(int(257))
    );
}

#[test]
fn schemas_are_kept_by_slot_and_change() {
    let mut shell = Shell::new();
    shell
        .run("CREATE TABLE t (a INT PRIMARY KEY, b INT)", &[])
        .unwrap();
    shell.run("CREATE INDEX i ON t (b)", &[]).unwrap();
    shell
        .run("INSERT INTO t VALUES (1, 2), (2, 1)", &[])
        .unwrap();
    shell.0.enter(1).unwrap();
    assert!(shell.0.prepare("SELECT * FROM t").is_err());
    // What is parsed is not used after a definition.
    let query = "SELECT * FROM t WHERE b > 0";
    assert_eq!(shell.rows(query, &[]).map(|rows| rows.len()), Ok(2));
    shell.run("DROP INDEX i", &[]).unwrap();
    assert_eq!(shell.rows(query, &[]).map(|rows| rows.len()), Ok(2));
    shell.run("DROP TABLE t", &[]).unwrap();
    shell
        .run("CREATE TABLE t (b TEXT, c TEXT PRIMARY KEY)", &[])
        .unwrap();
    assert_eq!(shell.rows(query, &[]), Ok(vec![]));
    assert_eq!(shell.run("DROP TABLE t", &[]), Ok(0));
    // Nothing is left but an empty schema.
    assert_eq!(shell.0.store().0.len(), 1);
}
