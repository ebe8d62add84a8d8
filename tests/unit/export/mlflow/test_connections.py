"""Kept-alive connections, proxies, and aborts, with a small HTTP/1.1 server."""

from __future__ import annotations

import base64
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mlworkbench.errors import HostError
from mlworkbench.export.mlflow import rest_client
from mlworkbench.export.mlflow.connections import Connections
from mlworkbench.export.mlflow.rest_client import Server
from tests.machines.network import wait_until


class KeepAliveServer:
    """A server that records the requests of each connection. ``hold`` delays responses until it is set."""

    def __init__(self, close_idle=False):
        self.connections = []
        self.hold = threading.Event()
        self.hold.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                self.requests = []
                outer.connections.append(self.requests)

            def do_GET(self):
                self.requests.append((self.path, dict(self.headers)))
                outer.hold.wait(60)
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")
                self.close_connection = close_idle

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # an aborted request
        self.uri = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hold.set()
        self._server.shutdown()
        self._server.server_close()


def connections_to(uri):
    return Connections(uri, ssl.create_default_context(), 60)


def test_requests_share_a_connection():
    with KeepAliveServer() as server:
        with Server(server.uri, {}) as client:
            for number in range(3):
                client.get("x", number=number)
        assert [len(requests) for requests in server.connections] == [3]


def test_request_that_must_not_be_repeated_gets_its_own_connection():
    with KeepAliveServer() as server:
        pool = connections_to(server.uri)
        pool.request("GET", "/first", None, {})
        pool.request("GET", "/second", None, {}, reuse=False)
        pool.close()
        assert len(server.connections) == 2


def test_connection_that_the_server_closed_is_replaced():
    with KeepAliveServer(close_idle=True) as server:
        pool = connections_to(server.uri)
        for _ in range(3):
            assert pool.request("GET", "/", None, {}).data == b"{}"
            wait_until(lambda: _is_closed(pool), "the end of the connection")
        assert [len(requests) for requests in server.connections] == [1, 1, 1]


def _is_closed(pool):
    idle = pool._take()
    if idle is not None:
        pool._release(idle, keep=True)
    return idle is None


def test_threads_use_different_connections():
    with KeepAliveServer() as server:
        server.hold.clear()
        client = Server(server.uri, {})
        threads = [threading.Thread(target=client.get, args=("x",)) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_until(lambda: sum(map(len, server.connections)) == 3, "three requests")
        server.hold.set()
        for thread in threads:
            thread.join()
        client._connections.close()
        assert [len(requests) for requests in server.connections] == [1, 1, 1]


def test_abort_ends_requests_of_other_threads(monkeypatch):
    monkeypatch.setattr(rest_client, "_PAUSE", 60)  # a retry would wait
    with KeepAliveServer() as server:
        client, errors = Server(server.uri, {}), []
        client.get("x")
        server.hold.clear()

        def get():
            try:
                client.get("x")
            except HostError as error:
                errors.append(error)

        thread = threading.Thread(target=get)
        thread.start()
        wait_until(lambda: sum(map(len, server.connections)) == 2, "a request")
        client.abort()
        thread.join(30)
        client._connections.close()
        assert errors and not thread.is_alive()


def test_plain_http_proxy_gets_the_url_and_its_own_login(monkeypatch):
    with KeepAliveServer() as proxy:
        monkeypatch.setenv("http_proxy", proxy.uri.replace("http://", "http://me:p%40ss@"))
        monkeypatch.setenv("no_proxy", "localhost,.intern")
        with Server("http://tracking.example:5000/base", {"MLFLOW_TRACKING_TOKEN": "tok"}) as client:
            client.get("x", a=1)
        ((path, headers),) = proxy.connections[0]
        assert path == "http://tracking.example:5000/base/api/2.0/mlflow/x?a=1"
        assert headers["Host"] == "tracking.example:5000" and headers["Authorization"] == "Bearer tok"
        assert headers["Proxy-Authorization"] == "Basic " + base64.b64encode(b"me:p@ss").decode()
    with KeepAliveServer() as server:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with Server(server.uri, {}) as client:
            client.get("x")
        assert len(server.connections) == 1


def test_certificates_are_verified_unless_mlflows_variable_says_otherwise():
    context = rest_client._tls_context({})
    assert context.check_hostname and context.verify_mode == ssl.CERT_REQUIRED
    assert rest_client._tls_context({"MLFLOW_TRACKING_INSECURE_TLS": "true"}).verify_mode == ssl.CERT_NONE
