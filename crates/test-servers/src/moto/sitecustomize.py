"""Puts a plain server in front of moto: one thread, one request after the other; Python runs this before it.

The server that moto comes with answers each request in a thread and on a connection of its own. Its requests are not apart: moto looks
whether a key is free, and writes some time after, so that now and then two conditional writes of one key both succeed. (Seen once in
some 500 races of 16 writers on a busy machine.) And nine tenths of the time of a request were its thread, its connection, its line in
the log, and the list of moto's services, read from the disk each time. What a request is answered is moto's alone, here as there.
"""

import asyncio
import functools
import io
import sys
import traceback
from email.utils import formatdate
from urllib.parse import unquote

try:
    import werkzeug.serving
except ImportError:
    # A Python without moto, such as the one of the health check.
    pass
else:
    CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

    class Partial(Exception):
        """More bytes have to come."""

    def line(data, at):
        end = data.find(b"\r\n", at)
        if end < 0:
            raise Partial
        return bytes(data[at:end]), end + 2

    def chunks(data, at):
        """Returns a body that comes in chunks, and where it ends."""
        body = bytearray()
        while True:
            size, at = line(data, at)
            size = int(size.split(b";")[0], 16)
            if size == 0:
                break
            if len(data) < at + size + 2:
                raise Partial
            body += data[at : at + size]
            at += size + 2
        while True:
            trailer, at = line(data, at)
            if not trailer:
                return bytes(body), at

    class Connection(asyncio.Protocol):
        def __init__(self, app, host, port):
            self.app, self.host, self.port = app, host, port
            self.data, self.told = bytearray(), False

        def connection_made(self, transport):
            self.transport = transport

        def data_received(self, data):
            self.data += data
            try:
                while self.data and not self.transport.is_closing():
                    self.answer(*self.request())
            except Partial:
                pass
            except Exception:
                traceback.print_exc()
                self.transport.close()

        def request(self):
            """Takes a request that is there as a whole, as WSGI has it."""
            end = self.data.find(b"\r\n\r\n")
            if end < 0:
                raise Partial
            first, *lines = bytes(self.data[:end]).decode("latin-1").split("\r\n")
            method, target, version = first.split(" ")
            path, _, query = target.partition("?")
            environ = {
                "wsgi.version": (1, 0),
                "wsgi.url_scheme": "http",
                "wsgi.errors": sys.stderr,
                "wsgi.multithread": False,
                "wsgi.multiprocess": False,
                "wsgi.run_once": False,
                "REQUEST_METHOD": method,
                "SCRIPT_NAME": "",
                "PATH_INFO": unquote(path).encode().decode("latin-1"),
                "QUERY_STRING": query,
                "REQUEST_URI": target,
                "RAW_URI": target,
                "REMOTE_ADDR": "127.0.0.1",
                "SERVER_NAME": self.host,
                "SERVER_PORT": str(self.port),
                "SERVER_PROTOCOL": version,
            }
            for header in lines:
                name, _, value = header.partition(":")
                name, value = name.upper().replace("-", "_"), value.strip(" \t")
                if name not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
                    name = "HTTP_" + name
                    if name in environ:
                        value = f"{environ[name]},{value}"
                environ[name] = value
            try:
                if "chunked" in environ.get("HTTP_TRANSFER_ENCODING", "").lower():
                    body, end = chunks(self.data, end + 4)
                    environ["wsgi.input_terminated"] = True
                else:
                    begin, end = end + 4, end + 4 + int(environ.get("CONTENT_LENGTH") or 0)
                    if len(self.data) < end:
                        raise Partial
                    body = bytes(self.data[begin:end])
            except Partial:
                if not self.told and environ.get("HTTP_EXPECT", "").lower() == "100-continue":
                    self.told = True
                    self.transport.write(CONTINUE)
                raise
            del self.data[:end]
            self.told = False
            environ["wsgi.input"] = io.BytesIO(body)
            return environ, version == "HTTP/1.1" and environ.get("HTTP_CONNECTION", "").lower() != "close"

        def answer(self, environ, stays):
            head = []

            def start(status, headers, failed=None):
                head[:] = [status, headers]

            parts = self.app(environ, start)
            body = b"".join(parts)
            if hasattr(parts, "close"):
                parts.close()
            status, headers = head
            names = {name.lower() for name, _ in headers}
            if "content-length" not in names and status[:3] not in ("204", "304"):
                headers = [*headers, ("Content-Length", str(len(body)))]
            headers = [*headers, ("Date", formatdate(usegmt=True)), ("Connection", "keep-alive" if stays else "close")]
            lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers), "", ""]
            self.transport.write("\r\n".join(lines).encode("latin-1") + body)
            if not stays:
                self.transport.close()

    def run(host, port, app, **options):
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication as Dispatcher

        # Which service a host is: a search through all of them, and through a folder.
        Dispatcher.get_backend_for_host = functools.lru_cache(1024)(Dispatcher.get_backend_for_host)

        async def serve():
            loop = asyncio.get_running_loop()
            server = await loop.create_server(lambda: Connection(app, host, port), host, port, backlog=1024)
            await server.serve_forever()

        asyncio.run(serve())

    werkzeug.serving.run_simple = run
