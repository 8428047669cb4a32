"""A web server for a directory that supports ranges, which Python's own does not: single ranges (RFC 9110, section
14)."""

import http.server
import os
import re
import threading
import urllib.parse


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        try:
            file = open(os.path.join(self.server.directory, urllib.parse.unquote(self.path[1:])), "rb")
        except FileNotFoundError:
            return self.send_error(404)
        with file:
            size = os.fstat(file.fileno()).st_size
            match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "bytes=0-"))
            first, last = match.groups()
            if first:
                start, end = int(first), min(int(last or size), size - 1)
            else:
                start, end = max(0, size - int(last)), size - 1
            self.send_response(206 if "Range" in self.headers else 200)
            self.send_header("Content-Range", f"bytes {start}-{end}/{size}")
            self.send_header("Content-Length", str(end - start + 1))
            self.end_headers()
            # Like other servers: from the page cache to the socket, sendfile(2).
            self.connection.sendfile(file, start, end - start + 1)

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        """A client may close the connection early. This is not logged."""


def serve(directory):
    """Serves until this process ends; returns the port."""
    server = Server(("127.0.0.1", 0), Handler)
    server.directory = directory
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port
