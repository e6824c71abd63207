"""A service commits its answer with its effect: a key sent twice, or into a crash, counts once."""

import json
import os
import signal
import socket
import subprocess
import sys

import apsw
import httpx
import uvicorn

from counterfoil.integrations.asgi import (
    Answer,
    Commits,
    ReceiptMiddleware,
    Rules,
    install_journal,
    open_journal,
    receipt_of,
)

SHOP = "shop.db"


async def shop(scope, receive, send):
    order = json.loads((await receive())["body"])
    connection = apsw.Connection(SHOP)
    connection.set_busy_timeout(5_000)
    with connection:  # one transaction: the order, and the receipt for it
        connection.execute("INSERT INTO orders (item) VALUES (?)", (order["item"],))
        body = json.dumps({"order": connection.last_insert_rowid()}).encode()
        receipt_of(scope).commit_in(connection, Answer(status_code=201, body=body))
        if "dies" in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
    await send({"type": "http.response.start", "status": 201})
    await send({"type": "http.response.body", "body": body})


def serve(listener: int) -> None:
    rules = Rules(commits=Commits.TOGETHER, lease_ms=500)
    app = ReceiptMiddleware(shop, journal=open_journal(SHOP), rules=rules)
    config = uvicorn.Config(app, lifespan="off", ws="none", log_level="critical")
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=listener)])


def start(*words: str) -> subprocess.Popen:
    command = [sys.executable, __file__, str(listener.fileno()), *words]
    return subprocess.Popen(command, pass_fds=[listener.fileno()])


def order(client: httpx.Client, key: str) -> httpx.Response:
    return client.post("/", json={"item": "tea"}, headers={"Idempotency-Key": f'"{key}"'})


if __name__ == "__main__" and len(sys.argv) > 1:
    serve(int(sys.argv[1]))
elif __name__ == "__main__":
    install_journal(SHOP)
    apsw.Connection(SHOP).execute("CREATE TABLE orders (number INTEGER PRIMARY KEY, item TEXT)")
    listener = socket.create_server(("127.0.0.1", 0))  # it outlives each process of the service
    address = "http://{}:{}".format(*listener.getsockname())
    with httpx.Client(base_url=address, headers={"Authorization": "Bearer ada"}) as client:
        service = start()
        for _ in range(2):
            answer = order(client, "breakfast")
            print(answer.status_code, answer.text, answer.headers.get("Idempotent-Replayed", "-"))
        service.kill()
        service.wait()

        service = start("dies")
        try:
            order(client, "lunch")
        except httpx.TransportError:
            print("no answer, the service died; exit code", service.wait())

        service = start()
        while (answer := order(client, "lunch")).status_code == 409:
            pass  # it counts as under way until its lease is over
        print(answer.status_code, answer.text)
        receipt = client.get("/counterfoil/receipts/lunch").json()
        print("receipt:", receipt["key"], receipt["status"], receipt["commits"])
        service.kill()
        service.wait()
    listener.close()
    ((count,),) = apsw.Connection(SHOP).execute("SELECT count(*) FROM orders").fetchall()
    print("orders in the shop:", count)

# output:
# 201 {"order": 1} -
# 201 {"order": 1} true
# no answer, the service died; exit code -9
# 201 {"order": 2}
# receipt: lunch 201 together
# orders in the shop: 2
