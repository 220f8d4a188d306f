"""A mirror over TLS that serves files as they are, or misbehaves: one thread a connection. mirror.files: path -> bytes."""
import re
import socket
import ssl
import threading
import time


class Mirror:
    def __init__(self, leaf, etag=True, port=0):
        self.files, self.requests = {}, []
        self.etag = etag
        self.ranges = True          # knows Range
        self.cut_at = []            # bytes of a body after which the connection is reset, one for each answer in turn
        self.answers = []           # whole answers instead, in turn; bytes, or a callable that gets the socket
        self.rate = 0               # bytes a second, 0 = no limit
        self.change = None          # body -> body, the head stays
        self.before = None          # called before each answer
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(leaf.cert_file, leaf.key_file)
        self.sock = socket.create_server(("127.0.0.1", port), backlog=64)
        self.port = self.sock.getsockname()[1]
        self.stopped = False
        threading.Thread(target=self._main, daemon=True).start()

    @property
    def url(self):
        return f"https://localhost:{self.port}/m"

    def close(self):
        self.stopped = True
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    def paths(self):
        return [path for path, _ in self.requests]

    def _main(self):
        while not self.stopped:
            try:
                s, _ = self.sock.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(s,), daemon=True).start()

    def _one(self, s):
        s.settimeout(20)
        try:
            s = self.context.wrap_socket(s, server_side=True)
            head = b""
            while b"\r\n\r\n" not in head:
                data = s.recv(4096)
                if not data:
                    return
                head += data
            lines = head.decode("latin-1").split("\r\n")
            headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines[1:] if ": " in line)}
            self.requests.append((lines[0].split(" ")[1], headers))
            if self.before:
                self.before()
            self._answer(s, lines[0].split(" ")[1], headers)
        except OSError:
            pass
        finally:
            s.close()

    def _answer(self, s, path, headers):
        if self.answers:
            answer = self.answers.pop(0)
            if callable(answer):
                answer(s)
            elif answer is not None:
                s.sendall(answer)
            if answer is not None:
                return
        data = self.files.get(path)
        if data is None:
            s.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return
        tag = f'"{len(data)}-{hash(data)}"'
        first, status, extra = 0, "200 OK", ""
        wanted = re.fullmatch(r"bytes=(\d+)-", headers.get("range", ""))
        if wanted and self.ranges and headers.get("if-range", tag) == tag:
            first = int(wanted[1])
            if first >= len(data):
                s.sendall(b"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n")
                return
            status, extra = "206 Partial Content", f"Content-Range: bytes {first}-{len(data) - 1}/{len(data)}\r\n"
        if self.etag:
            extra += f"ETag: {tag}\r\n"
        s.sendall(f"HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\nContent-Length: {len(data) - first}\r\n{extra}\r\n".encode())
        body = self.change(data)[first:] if self.change else data[first:]
        if self.cut_at:
            s.sendall(body[:max(0, self.cut_at.pop(0) - first)])
            s.unwrap().close()
            return
        if not self.rate:
            s.sendall(body)
            return
        for i in range(0, len(body), self.rate // 20):
            s.sendall(body[i:i + self.rate // 20])
            time.sleep(0.05)
