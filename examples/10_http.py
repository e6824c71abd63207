"""A service of HTTP loses its answer; the worker asks it by key, and does not send again."""

import json
import logging
import multiprocessing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from urllib.parse import unquote

import counterfoil as cf
from counterfoil.adapters.http import Endpoint, Question, Service, When, open_http
from counterfoil.engine.clock import SystemClock

orders: dict[str, bytes] = {}


class Shop(BaseHTTPRequestHandler):
    """One order per Idempotency-Key, and no answer to the first one."""

    def do_POST(self) -> None:
        key = self.headers["Idempotency-Key"].strip('"')
        order = self.rfile.read(int(self.headers["Content-Length"]))
        print("on the wire:", order.decode().strip("{}"), flush=True)
        is_first = not orders
        orders.setdefault(key, order)
        if is_first:
            self.close_connection = True  # done, and nobody hears of it
        else:
            self.answer(201, orders[key])

    def do_GET(self) -> None:
        key = unquote(self.path.removeprefix("/orders/"))
        if self.path == "/orders":
            self.answer(200, json.dumps({"count": len(orders)}).encode())
        elif key in orders:
            self.answer(200, orders[key])
        else:
            self.answer(404, b"{}")

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def serve(up: Connection) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    up.send(server.server_port)
    server.serve_forever()


def shop_at(port: int) -> Service:
    url = f"http://127.0.0.1:{port}/orders"
    order = Endpoint(
        name="shop.order",
        method="POST",
        url=url,
        level=cf.Level.DEDUPLICATING,
        look_up=Question(url=f"{url}/{{key}}"),
    )
    check = Endpoint(
        name="shop.check",
        method="GET",
        url=url,
        risk=cf.Risk.VERIFICATION,
        passes=When(status=200, at="/count", equals=2),
    )
    return Service(name="shop", endpoints=(order, check))


def main(port: int) -> None:
    scope = {"hosts": (f"127.0.0.1:{port}",), "methods": ("GET", "POST"), "paths": ("orders",)}
    task = cf.Task(
        id="restock",
        policy=cf.Policy(permissions=("shop.order", "shop.check"), scope={"shop": scope}),
        verifier=cf.Verification(kind="shop.check"),
    )
    shop = open_http(shop_at(port), now_ms=SystemClock().now_ms, networks=("127.0.0.0/8",))
    with cf.open(adapters=(shop,)) as keeper, keeper.run(task, run_id="restock-1") as run:
        for sku in ("A-7", "B-9"):
            order = run.do("shop.order", body={"sku": sku})
            print("the shop has", order["sku"], flush=True)
        print("two orders at the shop:", run.verify()["passed"], flush=True)
        print("the run is", run.finish().phase)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)  # that an answer is lost is a warning
    here, there = multiprocessing.Pipe()
    service = multiprocessing.get_context("fork").Process(target=serve, args=(there,), daemon=True)
    service.start()
    main(here.recv())
    service.terminate()

# output:
# on the wire: "sku":"A-7"
# the shop has A-7
# on the wire: "sku":"B-9"
# the shop has B-9
# two orders at the shop: True
# the run is completed
