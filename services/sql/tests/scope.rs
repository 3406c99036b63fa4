//! Within a scope, a statement does and says what it would if there were no rows of others.

mod common;

use common::{Shell, int, text};
use e3_service_sql::engine::memory::Memory;
use e3_service_sql::engine::{Database, Scope, SqlError, Value};
use e3_testkit::{Random, seeds};

/// `notes` leaves the scope's column out of its key, `logs` has it in the middle, `marks` first.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, user TEXT, n INTEGER, body TEXT);
    CREATE TABLE IF NOT EXISTS logs (t INTEGER, user TEXT, k REAL, n INTEGER, PRIMARY KEY (t, user, k));
    CREATE TABLE IF NOT EXISTS marks (user TEXT, a INTEGER, n INTEGER NOT NULL, PRIMARY KEY (user, a));
    CREATE TABLE IF NOT EXISTS shared (a INTEGER PRIMARY KEY, n INTEGER);
    CREATE INDEX IF NOT EXISTS notes_n ON notes (n);
    CREATE INDEX IF NOT EXISTS notes_user_n ON notes (user, n);
    CREATE INDEX IF NOT EXISTS logs_n ON logs (n, t)";
const USERS: [&str; 3] = ["ann", "bob", "cy"];

fn shell() -> Shell {
    Shell(Database::scoped(Memory::default(), SCHEMA, Some("user")).unwrap())
}

fn scope(user: &str) -> Scope {
    Scope {
        column: "user".into(),
        value: text(user),
    }
}

/// What a statement says: rows, or the number of rows changed, or why not.
fn said(shell: &mut Shell, statement: &str, user: &str) -> Result<Vec<Vec<Value>>, SqlError> {
    let scope = scope(user);
    if statement.starts_with("SELECT") {
        shell.scoped(statement, &[], Some(&scope))
    } else {
        let changed = shell.change(statement, &[], Some(&scope))?;
        Ok(vec![vec![int(changed as i64)]])
    }
}

fn one<'a>(random: &mut Random, of: &[&'a str]) -> &'a str {
    of[random.index(of.len())]
}

/// A statement of a user, who tries the keys and the names of others.
fn statement(random: &mut Random, user: &str) -> String {
    let table = one(random, &["notes", "logs", "marks", "notes", "shared"]);
    let who = match random.below(6) {
        0 => one(random, &USERS),
        _ => user,
    };
    // Sums of these overflow.
    let n = one(random, &["0", "1", "2", "3", "NULL", "9223372036854775807"]);
    let (a, b) = (random.below(5), random.below(3));
    let row = |a: u64| match table {
        "notes" => format!("({a}, '{who}', {n}, 'text')"),
        "logs" => format!("({a}, '{who}', {b}.5, {n})"),
        "marks" => format!("('{who}', {a}, {n})"),
        _ => format!("({a}, {n})"),
    };
    let key = match table {
        "notes" => "id",
        "logs" => "t",
        _ => "a",
    };
    let filter = match random.below(5) {
        0 => format!(" WHERE {key} = {a}"),
        1 => format!(" WHERE n >= {b} AND {key} <> {a}"),
        2 => format!(" WHERE user = '{who}' OR n = {n}"),
        3 => format!(" WHERE n + {b} > 1"),
        _ => String::new(),
    };
    let order = one(random, &["n", "n DESC, 1", "user, n", "1"]);
    match random.below(14) {
        0 | 1 => format!("INSERT INTO {table} VALUES {}", row(a)),
        2 => format!("INSERT INTO {table} VALUES {}, {}", row(a), row(a + 1)),
        3 => format!(
            "INSERT OR REPLACE INTO {table} VALUES {}, {}",
            row(a),
            row(b)
        ),
        4 => format!("INSERT OR IGNORE INTO {table} VALUES {}", row(a)),
        5 => format!("REPLACE INTO {table} VALUES {}", row(a)),
        6 => {
            let set = one(
                random,
                &["n = n + 1", "n = 1", "user = 'bob'", "body = 'x'", "a = 1"],
            );
            format!("UPDATE {table} SET {set}{filter}")
        }
        7 => format!("DELETE FROM {table}{filter}"),
        8 => format!("SELECT count(*), sum(n), min(user), max({key}) FROM {table}{filter}"),
        9 => format!("SELECT user, count(*) FROM {table} GROUP BY user, n HAVING sum(n) > 0"),
        10 => format!("SELECT * FROM {table}{filter} ORDER BY {order} LIMIT 3 OFFSET {b}"),
        11 => format!(
            "SELECT x.n, y.user, y.n FROM {table} x JOIN marks y ON x.n = y.n AND y.a < {a}"
        ),
        12 => one(
            random,
            &[
                "EXPLAIN SELECT * FROM notes",
                "DROP TABLE notes",
                "CREATE TABLE x (user TEXT PRIMARY KEY)",
                "INSERT INTO notes SELECT * FROM notes",
                "INSERT INTO notes VALUES (1, 'ann', 1, '') ON CONFLICT DO NOTHING",
                "DELETE FROM notes RETURNING *",
            ],
        )
        .into(),
        _ => format!("SELECT * FROM {table}{filter}"),
    }
}

/// Three users of one database against each of them with a database of their own.
#[test]
fn statements_depend_on_the_rows_of_their_scope_alone() {
    for seed in seeds(8) {
        let mut random = Random::new(seed);
        let mut all = shell();
        let mut own = USERS.map(|_| shell());
        let mut changes = 0;
        for step in 0..1500 {
            let at = random.index(3);
            let user = USERS[at];
            if random.below(20) == 0 {
                // The service's own statements have no scope.
                let insert = format!(
                    "INSERT OR REPLACE INTO notes VALUES ({}, '{user}', 7, NULL)",
                    random.below(5)
                );
                assert_eq!(all.run(&insert, &[]), Ok(1));
                assert_eq!(own[at].run(&insert, &[]), Ok(1));
                continue;
            }
            let statement = statement(&mut random, user);
            let among_others = said(&mut all, &statement, user);
            let alone = said(&mut own[at], &statement, user);
            assert_eq!(
                among_others, alone,
                "seed {seed}, step {step}, {user}: {statement}"
            );
            changes += usize::from(alone.is_ok() && !statement.starts_with("SELECT"));
        }
        assert!(changes > 200, "seed {seed}: {changes}");
        for table in ["notes", "logs", "marks"] {
            let rows = |shell: &mut Shell| {
                let sorted = format!("SELECT * FROM {table} ORDER BY 1, 2, 3, 4");
                let sorted = if table == "marks" {
                    &sorted[..sorted.len() - 3]
                } else {
                    &sorted
                };
                shell.rows(sorted, &[]).unwrap()
            };
            let mut apart: Vec<_> = own.iter_mut().flat_map(rows).collect();
            let mut together = rows(&mut all);
            let text = |row: &Vec<Value>| format!("{row:?}");
            apart.sort_by_key(text);
            together.sort_by_key(text);
            assert_eq!(together, apart, "seed {seed}: {table}");
        }
    }
}

/// A join stops at a number of pairs, and a change at a number of rows: rows of others do not count.
#[test]
fn the_rows_of_others_do_not_count_towards_bounds() {
    let mut all = shell();
    for user in USERS {
        for id in 0..200 {
            let row = format!("INSERT INTO notes VALUES ({id}, '{user}', 1, NULL)");
            assert_eq!(said(&mut all, &row, user), Ok(vec![vec![int(1)]]), "{row}");
        }
    }
    let pairs = "SELECT count(*) FROM notes a JOIN notes b ON a.n = b.n";
    assert_eq!(said(&mut all, pairs, "bob"), Ok(vec![vec![int(40_000)]]));
    let update = "UPDATE notes SET n = 2";
    assert_eq!(said(&mut all, update, "bob"), Ok(vec![vec![int(200)]]));
}

/// The schema is stored with the first change. That change may write as much as later ones.
#[test]
fn what_may_be_written_does_not_tell_of_writes_before() {
    let long = "x".repeat(1000);
    for rows in 30..42 {
        let values: Vec<String> = (0..rows).map(|id| format!("({id}, 'bob', 1, ?)")).collect();
        let insert = format!("INSERT INTO notes VALUES {}", values.join(", "));
        let long: Vec<Value> = (0..rows).map(|_| text(&long)).collect();
        let mut fresh = shell();
        let mut used = shell();
        let other = "INSERT INTO notes VALUES (1, 'ann', 1, NULL)";
        said(&mut used, other, "ann").unwrap();
        let [fresh, used] =
            [&mut fresh, &mut used].map(|shell| shell.change(&insert, &long, Some(&scope("bob"))));
        assert_eq!(fresh, used, "{rows} rows");
    }
}

/// The value of a scope must be one that the column can hold: another one may round to a neighbour's.
#[test]
fn a_scope_is_exactly_one_value() {
    let create = "CREATE TABLE IF NOT EXISTS t (user REAL, a INTEGER, PRIMARY KEY (user, a))";
    let mut shell = Shell(Database::scoped(Memory::default(), create, Some("user")).unwrap());
    let of = |value: Value| Scope {
        column: "user".into(),
        value,
    };
    let neighbour = (1i64 << 53) as f64;
    let insert = "INSERT INTO t VALUES (9007199254740992.0, 1)";
    let stored = shell.change(insert, &[], Some(&of(Value::Real(neighbour))));
    assert_eq!(stored, Ok(1));
    let error = SqlError::WrongKind {
        column: "user".into(),
        kind: "a REAL",
    };
    for value in [int((1 << 53) + 1), text("9007199254740992.0"), Value::Null] {
        let scope = of(value);
        let rows = shell.scoped("SELECT a FROM t", &[], Some(&scope));
        assert_eq!(rows, Err(error.clone()), "{scope:?}");
        let change = shell.change("DELETE FROM t", &[], Some(&scope));
        assert_eq!(change, Err(error.clone()), "{scope:?}");
    }
    let zero = "INSERT INTO t VALUES (0.0, 1)";
    assert_eq!(shell.change(zero, &[], Some(&of(Value::Real(-0.0)))), Ok(1));
    let rows = shell.scoped("SELECT a FROM t", &[], Some(&of(int(0))));
    assert_eq!(rows, Ok(vec![vec![int(1)]]));
}

/// A table that was made before there was a scope keeps its key, so it can only be read.
#[test]
fn a_table_of_another_key_is_not_changed() {
    let mut shell = Shell(Database::new(Memory::default(), SCHEMA).unwrap());
    let scope = scope("bob");
    let row = "INSERT INTO notes VALUES (1, 'ann', 1, NULL), (2, 'bob', 2, NULL)";
    assert_eq!(shell.run(row, &[]), Ok(2));
    for change in [
        "INSERT INTO notes VALUES (1, 'bob', 1, NULL)",
        "INSERT OR REPLACE INTO notes VALUES (1, 'bob', 1, NULL)",
        "INSERT OR IGNORE INTO notes VALUES (7, 'bob', 1, NULL)",
        "UPDATE notes SET n = 3",
        "DELETE FROM notes",
    ] {
        let error = shell.change(change, &[], Some(&scope)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "table notes: cannot be changed within a scope, its primary key must begin with column user"
        );
    }
    let rows = shell.scoped("SELECT id FROM notes", &[], Some(&scope));
    assert_eq!(rows, Ok(vec![vec![int(2)]]));
}
