"""A git server for tests: git http-backend behind TLS with Basic authentication, on loopback.

GitServer(directory, leaf) serves bare repositories below DIRECTORY; repo(name) makes one with a commit. Every request is
noted in .requests as (path, headers); user and password of None let everybody in.
"""
import base64
import http.server
import os
import ssl
import subprocess
import threading
import time

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
       "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example", "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@example"}


def git(*args, cwd=None, stdin=None):
    p = subprocess.run(["git", *args], cwd=cwd, env=ENV, input=stdin, capture_output=True, check=False)
    assert p.returncode == 0, f"git {args}: {p.stderr.decode()}"
    return p.stdout.decode().strip()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args):
        pass

    def _serve(self):
        s = self.server.git
        s.requests.append((self.path, dict(self.headers)))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            while (n := int(self.rfile.readline().split(b";")[0], 16)) > 0:
                body += self.rfile.read(n)
                self.rfile.readline()
            self.rfile.readline()
        s.stall.wait()
        if s.answer is not None:
            return self._send(*s.answer)
        want = None if s.password is None else "Basic " + base64.b64encode(f"{s.user}:{s.password}".encode()).decode()
        got = self.headers.get("Authorization")
        if want is not None and got != want:
            return self._send(401, [("WWW-Authenticate", 'Basic realm="git"')], b"who are you? " + (got or "").encode())
        path, _, query = self.path.partition("?")
        env = dict(ENV, GIT_PROJECT_ROOT=s.dir, GIT_HTTP_EXPORT_ALL="1", PATH_INFO=path, QUERY_STRING=query,
                   REQUEST_METHOD=self.command, CONTENT_TYPE=self.headers.get("Content-Type", ""), REMOTE_USER="t",
                   CONTENT_LENGTH=str(len(body)), HTTP_CONTENT_ENCODING=self.headers.get("Content-Encoding", ""),
                   GIT_PROTOCOL=self.headers.get("Git-Protocol", ""))
        out = subprocess.run(["/usr/lib/git-core/git-http-backend"], input=body, env=env, capture_output=True, check=False).stdout
        head, _, body = out.partition(b"\r\n\r\n")
        fields = [tuple(line.decode().split(": ", 1)) for line in head.split(b"\r\n") if b": " in line]
        status = next((int(v.split()[0]) for k, v in fields if k == "Status"), 200)
        self._send(status, [f for f in fields if f[0] != "Status"], body)

    def _send(self, status, fields, body):
        self.send_response(status)
        for k, v in fields:
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _serve


class GitServer:
    user, password = "x-access-token", None

    def __init__(self, directory, leaf):
        self.dir, self.requests, self.answer = directory, [], None
        self.stall = threading.Event()
        self.stall.set()
        os.makedirs(directory, exist_ok=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(leaf.cert_file, leaf.key_file)
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.http.git = self
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def url(self, name):
        return f"https://localhost:{self.http.server_address[1]}/{name}"

    def stop(self):
        self.stall.set()
        self.http.shutdown()
        self.http.server_close()

    def repo(self, name="r.git", files=None):
        """A bare repository with one commit of these files; returns the commit."""
        path = os.path.join(self.dir, name)
        git("init", "--quiet", "--bare", "-b", "main", path)
        git("config", "http.receivepack", "true", cwd=path)
        git("config", "uploadpack.allowAnySHA1InWant", "true", cwd=path)
        return self.commit(name, files or {"README": b"hello\n"})

    def commit(self, name, files, branch="main", links=None, parent=True, modules=None):
        """Adds a commit without a work tree, so that any path and mode can be in it. modules: path -> commit, of a submodule."""
        path = os.path.join(self.dir, name)
        lines = ""
        for file, content in {**(files or {}), **(links or {})}.items():
            blob = git("hash-object", "-w", "--stdin", cwd=path, stdin=content)
            lines += f"{'120000' if links and file in links else '100644'} {blob}\t{file}\n"
        lines += "".join(f"160000 {sha}\t{file}\n" for file, sha in (modules or {}).items())
        index = os.path.join(self.dir, f"index.{time.monotonic_ns()}")
        env = dict(ENV, GIT_INDEX_FILE=index)
        old = git("rev-parse", "--verify", "--quiet", branch, cwd=path) if parent and self.has(name, branch) else None
        if old:
            subprocess.run(["git", "read-tree", old], cwd=path, env=env, check=True)
        subprocess.run(["git", "update-index", "--index-info"], cwd=path, env=env, input=lines.encode(), check=True)
        tree = subprocess.run(["git", "write-tree"], cwd=path, env=env, capture_output=True, check=True).stdout.decode().strip()
        os.unlink(index)
        commit = git("commit-tree", "-m", "c", *(["-p", old] if old else []), tree, cwd=path)
        git("update-ref", f"refs/heads/{branch}", commit, cwd=path)
        return commit

    def has(self, name, branch):
        return subprocess.run(["git", "rev-parse", "--verify", "--quiet", branch], cwd=os.path.join(self.dir, name), env=ENV,
                              capture_output=True, check=False).returncode == 0
