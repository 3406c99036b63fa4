"""`sql` against SQLite: the same random statements in both, the same rows.

Tables in SQLite are STRICT, since `sql` does not convert texts to numbers, and WITHOUT ROWID, since it
does not generate keys. Numbers with a fraction are multiples of 1/4, so that sums are exact in any order.
"""

import random
import sqlite3

import pytest
from e3run import Service

COLLECTIONS = {"tables": "ordered-map"}
TEXTS = ["", "a", "A", "ab", "b", "zz", "it's", "ä", "a\0b", "\U0010ffff"]
KINDS = ["INTEGER", "REAL", "TEXT"]


class Both:
    """A database in `sql`, separate because of its routing key, and one in SQLite."""

    def __init__(self, service, seed, key):
        self.random = random.Random(seed)
        self.service = service
        self.key = key
        self.lite = sqlite3.connect(":memory:", isolation_level=None)
        self.tables = {}
        self.indices = {}
        self.counts = {}

    def run(self, text, parameters=None, ordered=False):
        """Runs a statement in both; they must agree on rows or changes, or both refuse it."""
        parameters = parameters or {}
        reply = self.service.record({"sql": text, **parameters}, key=self.key)
        strict = text + (" STRICT, WITHOUT ROWID" if text.startswith("CREATE TABLE") else "")
        what = f"{text} {parameters}"
        try:
            cursor = self.lite.execute(strict, parameters)
            rows = cursor.fetchall()
        except (sqlite3.IntegrityError, sqlite3.OperationalError) as error:
            assert reply.status in (1, 2, 3), f"{what}: SQLite says {error}, sql {reply}"
            self.count("refused")
            return None
        if len(rows) > 4096 and reply.reply.startswith(b"rows to sort"):
            return None
        assert reply.status == 0, f"{what}: SQLite takes it, sql says {reply}"
        answer = reply.record()
        self.count(text.split()[0])
        if "rows" not in answer:
            if text.split()[0] in ("INSERT", "UPDATE", "DELETE"):
                assert answer["changed"] == cursor.rowcount, what
            return None
        theirs, ours = ([[plain(value) for value in row] for row in of] for of in (rows, answer["rows"]))
        if answer["more"]:
            # the reply is full
            assert 30 * 1024 < len(reply.reply) <= 32 * 1024, what
            if not ordered:
                return None
            theirs = theirs[: len(ours)]
        if not ordered:
            theirs, ours = sorted(theirs, key=order), sorted(ours, key=order)
        # not by ==, since 1 == 1.0 in Python
        assert repr(ours) == repr(theirs), f"{what}: {ours} {theirs}"
        if ours:
            self.count("rows")
        return ours

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    # Generators of statements.

    def literal(self, kind, null=0.1):
        r = self.random
        if r.random() < null:
            return "NULL"
        if kind == "TEXT":
            return "'" + r.choice(TEXTS[:8]).replace("'", "''") + "'"
        if kind == "REAL" and r.random() < 0.7:
            return repr(r.randint(-20, 20) / 4)
        return str(r.randint(-6, 6))

    def value(self, kind, null=0.1):
        r = self.random
        if r.random() < null:
            return None
        if kind == "TEXT":
            return r.choice(TEXTS)
        return r.randint(-20, 20) / 4 if kind == "REAL" and r.random() < 0.7 else r.randint(-6, 6)

    def create(self, name):
        r = self.random
        columns = [(c, r.choice(KINDS)) for c in "abcde"[: r.randint(3, 5)]]
        key = r.sample([c for c, _ in columns], r.randint(1, 2))
        # SQLite accepts NULL in primary keys by default
        defined = [f"{c} {k}{' NOT NULL' if c in key or r.random() < 0.2 else ''}" for c, k in columns]
        self.run(f"CREATE TABLE {name} ({', '.join(defined)}, PRIMARY KEY ({', '.join(key)}))")
        self.tables[name] = (columns, key)

    def create_index(self):
        r = self.random
        table = r.choice(list(self.tables))
        columns = [c for c, _ in self.tables[table][0]]
        name = f"i{r.randint(0, 5)}"
        chosen = r.sample(columns, r.randint(1, 2))
        known = name in self.indices
        self.run(f"CREATE INDEX {'IF NOT EXISTS ' if r.random() < 0.3 else ''}{name} ON {table} ({', '.join(chosen)})")
        if not known:
            self.indices[name] = table

    def number(self, columns, depth=0):
        """A numeric expression."""
        r = self.random
        numbers = [c for c, k in columns if k != "TEXT"]
        pick = r.random()
        if pick < 0.5 and numbers:
            return r.choice(numbers)
        if pick < 0.7 or depth > 2:
            return self.literal(r.choice(["INTEGER", "REAL"]))
        a, b = self.number(columns, depth + 1), self.number(columns, depth + 1)
        if pick < 0.74:
            return f"abs({a})"
        if pick < 0.78:
            return f"coalesce({a}, {b})"
        if pick < 0.82:
            return f"CASE WHEN {self.truth(columns, 2)} THEN {a} ELSE {b} END"
        if pick < 0.85:
            return f"(- {a})"
        return f"({a} {r.choice('+-*/%')} {b})"

    def truth(self, columns, depth=0):
        r = self.random
        pick = r.random()
        if depth < 2 and pick < 0.35:
            a, b = self.truth(columns, depth + 1), self.truth(columns, depth + 1)
            return f"({a} {r.choice(['AND', 'AND', 'OR'])} {b})"
        if pick < 0.42:
            return f"NOT {self.truth(columns, depth + 1)}" if depth < 2 else "1 = 1"
        column, kind = r.choice(columns)
        if pick < 0.5:
            return f"{column} IS {r.choice(['', 'NOT '])}NULL"
        negated = r.choice(["", "", "NOT "])
        if pick < 0.57:
            return f"{column} {negated}BETWEEN {self.literal(kind)} AND {self.literal(kind)}"
        if pick < 0.64:
            return f"{column} {negated}IN ({', '.join(self.literal(kind) for _ in range(r.randint(1, 3)))})"
        op = r.choice(["=", "=", "<", "<=", ">", ">=", "<>"])
        if kind == "TEXT":
            return f"{column} {op} {self.literal(kind)}"
        if pick < 0.9:
            # indices serve comparisons of a column with a constant
            return f"{column} {op} {self.literal(r.choice(['INTEGER', 'REAL']))}"
        return f"{self.number(columns)} {op} {self.number(columns)}"

    def where(self, columns):
        return f" WHERE {self.truth(columns)}" if self.random.random() < 0.85 else ""

    def source(self):
        """FROM, the columns to use, and the columns that identify a row."""
        r = self.random
        a = r.choice(list(self.tables))
        columns, key = self.tables[a]
        if r.random() < 0.65:
            return a, columns, key, ""
        b = r.choice(list(self.tables))
        others, other_key = self.tables[b]
        both = [(f"x.{c}", k) for c, k in columns] + [(f"y.{c}", k) for c, k in others]
        keys = [f"x.{c}" for c in key] + [f"y.{c}" for c in other_key]
        pairs = [(c, d) for c, k in columns for d, l in others if (k == "TEXT") == (l == "TEXT")]
        on = " AND ".join(f"x.{c} = y.{d}" for c, d in r.sample(pairs, min(len(pairs), r.choice([1, 1, 2]))))
        style = r.random()
        if style < 0.1 or not on:
            return f"{a} x CROSS JOIN {b} AS y", both, keys, ""
        if style < 0.3:
            return f"{a} x, {b} y", both, keys, on
        return f"{a} AS x {r.choice(['', 'INNER '])}JOIN {b} y ON {on}", both, keys, ""

    def select(self):
        r = self.random
        source, columns, key, on = self.source()
        where = self.where(columns)
        if on:
            where = f" WHERE {on}" + where.replace(" WHERE ", " AND ", 1)
        pick = r.random()
        if pick < 0.25:
            numbers = [c for c, k in columns if k != "TEXT"] or ["1"]
            shown = ["count(*)", f"count({r.choice(columns)[0]})", f"sum({r.choice(numbers)})",
                     f"avg({r.choice(numbers)})", f"min({r.choice(columns)[0]})", f"max({r.choice(columns)[0]}) "]
            shown = r.sample(shown, r.randint(1, 4))
            if r.random() < 0.4:
                return self.run(f"SELECT {', '.join(shown)} FROM {source}{where}")
            by = [c for c, _ in r.sample(columns, r.randint(1, 2))]
            having = f" HAVING count(*) {r.choice(['>', '<='])} {r.randint(1, 3)}" if r.random() < 0.3 else ""
            order = f" ORDER BY {', '.join(by)} LIMIT {r.randint(0, 9)}" if r.random() < 0.5 else ""
            return self.run(f"SELECT {', '.join(by + shown)} FROM {source}{where} GROUP BY {', '.join(by)}{having}{order}",
                            ordered=bool(order))
        shown = ["*"] if r.random() < 0.3 else [
            r.choice(columns)[0] if r.random() < 0.6 else f"{self.number(columns)} AS n{n}" for n in range(r.randint(1, 3))
        ]
        # a total order, or none
        if pick < 0.6:
            return self.run(f"SELECT {', '.join(shown)} FROM {source}{where}")
        way = r.choice(["", " DESC"])
        by = r.sample(columns, r.randint(0, 2))
        by = [f"{c}{way if r.random() < 0.7 else r.choice(['', ' DESC'])}" for c, _ in by]
        if shown[0].endswith(" n0") and r.random() < 0.5:
            by.insert(0, r.choice(["n0", "1 DESC"]))
        by += [f"{c}{way}" for c in key]
        limit = r.choice(["", f" LIMIT {r.randint(0, 8)}", f" LIMIT {r.randint(1, 8)} OFFSET {r.randint(0, 5)}"])
        return self.run(f"SELECT {', '.join(shown)} FROM {source}{where} ORDER BY {', '.join(by)}{limit}", ordered=True)

    def insert(self):
        r = self.random
        table = r.choice(list(self.tables))
        columns = self.tables[table][0]
        verb = r.choices(["INSERT INTO", "INSERT OR REPLACE INTO", "INSERT OR IGNORE INTO", "REPLACE INTO"], [8, 1, 1, 1])[0]
        if r.random() < 0.5:
            values = {c: self.value(k) for c, k in columns}
            self.run(f"{verb} {table} VALUES ({', '.join(':' + c for c in values)})", values)
            return
        chosen = r.sample(columns, r.randint(len(columns) - 1, len(columns)))
        rows = [f"({', '.join(self.literal(k, 0.08) for _, k in chosen)})" for _ in range(r.randint(1, 3))]
        self.run(f"{verb} {table} ({', '.join(c for c, _ in chosen)}) VALUES {', '.join(rows)}")

    def update(self):
        r = self.random
        table = r.choice(list(self.tables))
        columns, key = self.tables[table]
        free = [(c, k) for c, k in columns if c not in key]
        if not free:
            return
        chosen = r.sample(free, r.randint(1, len(free)))
        # values for INTEGER columns must be whole, and sums of REAL columns exact
        numbers = [c for c, k in columns if k != "TEXT"] + ["0"]
        sets = []
        for c, k in chosen:
            change = f"{r.choice(numbers)} {r.choice('+-')} " if k == "REAL" else ""
            sets.append(f"{c} = {change}{self.literal(k)}")
        self.run(f"UPDATE {table} SET {', '.join(sets)}{self.where(columns)}")

    def delete(self):
        table = self.random.choice(list(self.tables))
        self.run(f"DELETE FROM {table} WHERE {self.truth(self.tables[table][0])} AND {self.truth(self.tables[table][0])}")

    def everything(self):
        for table, (columns, _) in self.tables.items():
            self.run(f"SELECT * FROM {table}")
            # along each index, if possible
            for column, kind in columns:
                bound = "'a'" if kind == "TEXT" else "1"
                self.run(f"SELECT * FROM {table} WHERE {column} {self.random.choice(['>', '<=', '='])} {bound}")


def plain(value):
    """Treats both zeros as equal."""
    return 0.0 if isinstance(value, float) and value == 0.0 else value


def order(row):
    return [(value is not None, isinstance(value, str), value if value is not None else 0, repr(value)) for value in row]


@pytest.fixture(scope="module", name="service")
def one_for_all():
    with Service("sql", collections=COLLECTIONS) as service:
        yield service


@pytest.mark.parametrize("with_indices", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_random_statements(service, seed, with_indices):
    both = Both(service, seed, b"%d %d" % (seed, with_indices))
    for name in ("t", "u", "v"):
        both.create(name)
    for _ in range(40):
        both.insert()
    doings = [both.select, both.insert, both.update, both.delete, both.everything]
    weights = [20, 8, 4, 2, 0.3]
    if with_indices:
        doings += [both.create_index]
        weights += [1]
    for _ in range(1000):
        both.random.choices(doings, weights)[0]()
        if both.indices and both.random.random() < 0.01:
            name = both.random.choice(list(both.indices))
            both.run(f"DROP INDEX {name}")
            del both.indices[name]
        if both.random.random() < 0.004:
            name = both.random.choice(list(both.tables))
            both.run(f"DROP TABLE {name}")
            both.indices = {i: t for i, t in both.indices.items() if t != name}
            both.create(name)
    both.everything()
    counts = both.counts
    print(f"seed {seed}: {counts}")
    # the test is void if everything is refused or nothing is found
    assert counts["SELECT"] > 250 and counts["rows"] > counts["SELECT"] / 4, counts
    assert counts["INSERT"] > 30 and counts["UPDATE"] > 20 and counts["DELETE"] > 5, counts


def test_long_and_deep_statements_are_answered(service):
    """In WebAssembly the stack is small: a deep statement is refused or run, and never traps."""
    long = ["SELECT " + "+".join(["1"] * 1000), "SELECT " + "(" * 900 + "1" + ")" * 900, "SELECT " + "- " * 1000 + "1",
            "SELECT " + "NOT " * 500 + "1", "SELECT " + "CASE WHEN 1 THEN " * 60 + "1" + " END" * 60,
            "SELECT 1; " + "EXPLAIN " * 200 + "SELECT 1", "SELECT (" * 200 + "1" + ")" * 200, "SELECT 1 " + "UNION SELECT 1 " * 130,
            "CREATE TABLE x AS " + "SELECT 1 " + "UNION SELECT 1 " * 120, "SELECT " + ",".join(["1"] * 1000),
            "SELECT 1 IN " + "(1," * 400 + "1" + ")" * 400, "INSERT INTO x " + "EXPLAIN " * 200, "SELECT '" + "x" * 2100 + "'",
            "SELECT " + "abs(" * 400 + "1" + ")" * 400, "SELECT * FROM " + "(" * 800 + "x" + ")" * 800,
            "SELECT * FROM " + " JOIN ".join(["x"] * 250), "SELECT 1 WHERE " + " OR ".join(["1=1"] * 280)]
    for text in long:
        reply = service.record({"sql": text})
        assert reply.error is None and reply.status in (1, 2, 3), f"{text[:40]}: {reply}"
    assert service.record({"sql": "SELECT " + "+".join(["1"] * 40)}).record()["rows"] == [[40]]
