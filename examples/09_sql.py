"""A payment in a database: each change and its receipt are one commit, whoever comes twice."""

import time

import apsw

import counterfoil as cf
from counterfoil.adapters.sql import Statement, install_sql, open_sql

shop = apsw.Connection("shop.db")  # in one process a file is opened by apsw alone
with shop:
    shop.execute("CREATE TABLE account (name TEXT PRIMARY KEY, cents INT CHECK (cents >= 0))")
    shop.execute("CREATE TABLE ledger (payer TEXT, payee TEXT, cents INT)")
    shop.execute("INSERT INTO account VALUES ('ann', 5000), ('bob', 0)")

install_sql("sqlite:shop.db")  # or: counterfoil adapters sql install sqlite:shop.db

STATEMENTS = {  # what planners may run; they give names and values, and never SQL
    "move": Statement(
        text="UPDATE account SET cents = cents + :cents WHERE name = :name",
        parameters={"name": str, "cents": int},
        rows=1,
    ),
    "enter": Statement(
        text="INSERT INTO ledger VALUES (:payer, :payee, :cents)",
        parameters={"payer": str, "payee": str, "cents": int},
    ),
    "sums": Statement(text="SELECT name, cents FROM account ORDER BY name", is_query=True),
}

task = cf.Task(
    id="pay",
    policy=cf.Policy(
        permissions=("sql.execute", "sql.query", "sql.check"),
        scope={"sql": {"statements": tuple(STATEMENTS)}},
    ),
    verifier=cf.Verification(
        kind="sql.check",
        arguments={
            "statement": "sums",
            "expected": [{"name": "ann", "cents": 4000}, {"name": "bob", "cents": 1000}],
        },
    ),
)


def payment(payer: str, payee: str, cents: int) -> list[dict[str, object]]:
    return [
        {"name": "move", "parameters": {"name": payer, "cents": -cents}},
        {"name": "move", "parameters": {"name": payee, "cents": cents}},
        {"name": "enter", "parameters": {"payer": payer, "payee": payee, "cents": cents}},
    ]


def work(run_id: str, payee: str) -> None:
    adapter = open_sql(
        "sqlite:shop.db",
        statements=STATEMENTS,
        watch="SELECT name, cents FROM account",
        now_ms=lambda: time.time_ns() // 1_000_000,
    )
    with cf.open(adapters=(adapter,)) as keeper, keeper.run(task, run_id=run_id) as run:
        try:
            done = run.do("sql.execute", statements=payment("ann", payee, 1000))
        except cf.StaleObservationError as error:
            print(run_id, "did nothing:", error.message)
            return
        run.verify()
        print(run_id, run.finish().phase, "by", len(done["statements"]), "statements")


work("pay-1", "bob")
work("pay-1", "bob")  # started again: what is settled answers from the record
work("pay-2", "nobody")  # its second statement meets no row, so its first one is undone
for name, cents in shop.execute("SELECT name, cents FROM account ORDER BY name"):
    print(name, "has", cents)
print("entries in the ledger:", shop.execute("SELECT count(*) FROM ledger").get)

# output:
# pay-1 completed by 3 statements
# pay-1 completed by 3 statements
# pay-2 did nothing: move meets 0 rows, expected were 1
# ann has 4000
# bob has 1000
# entries in the ledger: 1
