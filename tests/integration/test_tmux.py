"""Attach in a terminal that people use: tmux draws what an editor, a pager and a shell with jobs send through edgehub attach and edgectl attach.

Where it could go wrong: common/term.c (modes, escapes, the guard that puts a terminal back), workerd/launcher/attached.c (the terminal inside),
sizes on their way through hub/attach.c, connectd/attach.c and workerd/attach.c. What tmux shows is compared, and stty's whole word.
"""
import os
import shlex
import shutil
import signal
import subprocess
import tempfile

import pytest

from lib import proc
from lib.agent import exe
from lib.proc import wait_for
from test_attach import attach, dev, events, make, session_processes, start      # noqa: F401

SHELL = "PS1='outer$ ' exec sh"
pytestmark = [pytest.mark.timeout(180), pytest.mark.skipif(shutil.which("tmux") is None, reason="skipped: no tmux")]


class Tmux:
    """One pane with a shell in it, on a server of its own."""

    def __init__(self, cols, rows):
        self.dir = tempfile.mkdtemp(prefix="ewtmux.")
        env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0", "LC_ALL": "C.UTF-8", "SHELL": "/bin/sh"}
        env.pop("TMUX", None)
        subprocess.run(["tmux", "-S", f"{self.dir}/s", "-f", "/dev/null", "new-session", "-d", "-x", str(cols), "-y", str(rows), SHELL], env=env, check=True)
        self.tmux("set", "-g", "status", "off")
        self.size(cols, rows)
        self.sees("outer$")
        self.before = self.stty()

    def tmux(self, *args, stdin=None):
        return subprocess.run(["tmux", "-S", f"{self.dir}/s", *args], capture_output=True, text=True, check=True, input=stdin, timeout=20).stdout

    def type(self, text):
        self.tmux("send-keys", "-l", text)

    def keys(self, *names):
        self.tmux("send-keys", *names)

    def enter(self, text):
        self.type(text)
        self.keys("Enter")

    def size(self, cols, rows):
        self.tmux("resize-window", "-x", str(cols), "-y", str(rows))

    @property
    def screen(self):
        return self.tmux("capture-pane", "-p")

    @property
    def lines(self):
        return [line for line in self.screen.split("\n") if line]

    def at(self, n):
        """A line, "" where there is none (yet)."""
        lines = self.lines
        return lines[n].rstrip() if -len(lines) <= n < len(lines) else ""

    def var(self, name):
        return self.tmux("display-message", "-p", "#{%s}" % name).strip()

    def sees(self, text, timeout=20):
        """On the screen, at the end of a line or as a line of its own; several texts: all of them."""
        wait_for(lambda: text in self.screen, timeout, lambda: f"{text!r} on the screen:\n{self.screen}")

    def last(self, text, timeout=20):
        wait_for(lambda: self.at(-1) == text, timeout, lambda: f"{text!r} as the last line of:\n{self.screen}")

    def stty(self):
        tty = self.var("pane_tty")
        with open(tty, encoding="ascii") as f:
            return subprocess.run(["stty", "-a"], stdin=f, capture_output=True, text=True, check=True).stdout.split("\n", 1)[1]

    def restored(self, timeout=20):
        """The modes are as before, the screen is the shell's, the cursor is seen, and the shell answers."""
        wait_for(lambda: self.var("pane_current_command") == "sh" and self.stty() == self.before, timeout,
                 lambda: f"{self.var('pane_current_command')}: {self.stty()} is not {self.before}\n{self.screen}")
        wait_for(lambda: (self.var("alternate_on"), self.var("cursor_flag"), self.var("mouse_any_flag")) == ("0", "1", "0"), 5, "an ordinary screen")
        self.enter("echo out''side")
        self.sees("outside")

    def leave(self, how="exit"):
        """Ends the shell inside."""
        self.enter(how)
        self.restored()

    def client(self):
        """The pid of what runs in the foreground of the pane."""
        shell = int(self.var("pane_pid"))
        return wait_for(lambda: next((p for p in proc.children(shell) if proc.alive(p)), None), 10, "a client")

    def close(self):
        subprocess.run(["tmux", "-S", f"{self.dir}/s", "kill-server"], check=False, capture_output=True)
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture
def tmux():
    made = []

    def factory(cols=80, rows=24):
        made.append(Tmux(cols, rows))
        return made[-1]
    yield factory
    for t in made:
        t.close()


@pytest.fixture(params=["edgehub", "edgectl"])
def line(request, dev, ehub):
    """line(handle, ...) is the command line of an attach from the hub's side, and from the device's."""
    def make_line(handle, *argv, options=()):
        head = ehub.argv("attach", handle, *options) if request.param == "edgehub" else [exe("edgectl"), "-r", dev.run, "attach", handle, *options]
        return shlex.join(head + (["--", *argv] if argv else []))
    make_line.name = request.param
    return make_line


@pytest.fixture
def handle(dev, ehub):
    h = start(ehub, "sleep", "600", options=("--env", "PATH=/usr/local/bin:/usr/bin:/bin", "--env", "HOME=/tmp", "--env", "LC_ALL=C.UTF-8"))
    attach(ehub, h, "true")
    return h


@pytest.fixture
def inside(tmux, line, handle):
    """inside(cols, rows) is a terminal in which a shell of the run asks for a command; Tmux.leave() ends it."""
    def factory(*size):
        t = tmux(*size)
        t.enter(line(handle, "env", "PS1=inner$ ", "LC_ALL=C.UTF-8", "sh"))
        t.last("inner$")
        return t
    return factory


def editor():
    for name in ("vim", "vim.tiny", "vi"):
        if shutil.which(name):
            return f"{name} -u NONE -N"
    pytest.skip("skipped: no vim")


@pytest.mark.parametrize("cols, rows", [(80, 24), (250, 80)])
def test_an_editor(inside, cols, rows):
    t = inside(cols, rows)
    t.enter("stty size")
    t.sees(f"{rows} {cols}")
    t.enter(f"{editor()} -c 'set ruler noesckeys' text")
    wait_for(lambda: t.lines.count("~") == rows - 2, 20, lambda: f"an empty buffer:\n{t.screen}")
    assert t.var("alternate_on") == "1"
    t.type("i" + "x" * (cols - 1))
    t.keys("Enter")
    t.type("zażółć 漢字 — ende")
    t.keys("Escape")
    t.sees("zażółć 漢字 — ende")
    assert "x" * (cols - 1) in t.lines
    # Another size while it is open: it draws anew, over all of it.
    t.size(cols + 20, rows - 10)
    wait_for(lambda: t.lines.count("~") == rows - 10 - 3, 20, lambda: f"the smaller one:\n{t.screen}")
    t.size(cols, rows)
    wait_for(lambda: t.lines.count("~") == rows - 3, 20, lambda: f"the larger one:\n{t.screen}")
    t.enter(":wq")
    t.last("inner$")
    assert t.var("alternate_on") == "0"
    t.enter("wc -lm text; tail -n 1 text")
    t.sees("zażółć 漢字 — ende\ninner$")
    t.leave()


def test_a_pager(inside):
    t = inside()
    t.enter("seq -f 'line %g' 1 5000 | less")
    wait_for(lambda: (t.at(0), t.at(22), t.at(23)) == ("line 1", "line 23", ":"), 20, lambda: t.screen)
    t.keys("Space")
    t.sees("line 46")
    t.type("G")
    t.sees("line 5000")
    t.enter("?line 77$")
    wait_for(lambda: t.at(0) == "line 77", 20, lambda: t.screen)
    t.size(100, 50)
    wait_for(lambda: len(t.lines) == 50 and "line 125" in t.screen, 20, lambda: t.screen)
    t.type("q")
    t.sees("inner$")
    t.keys("C-d")
    t.restored()


def test_jobs(dev, inside):
    t = inside()
    t.enter("sleep 4330; echo after")
    wait_for(lambda: [p for p in proc.descendants(dev.pid("launcher")) if proc.cmdline(p) == ["sleep", "4330"]], 10, "it runs")
    t.keys("C-z")
    t.sees("topped")
    t.last("inner$")
    t.enter("jobs; echo list''ed")
    t.sees("listed\ninner$")
    t.sees("Stopped                    sleep 4330")
    t.enter("fg")
    wait_for(lambda: t.at(-1).endswith("sleep 4330") and t.at(-2) != t.at(-1), 10, lambda: t.screen)
    t.keys("C-c")
    t.last("inner$")
    t.enter("yes | cat -n | head -n 100000 | tail -n 1")
    t.sees("100000")
    t.enter("yes")
    t.sees("y\ny\ny\ny\n")
    t.keys("C-c")
    t.last("inner$")
    t.keys("C-\\")
    t.enter("kill -l 3")
    t.sees("QUIT")
    t.leave("exit 3")
    t.enter("echo code $?")
    wait_for(lambda: session_processes(dev) == [], 10, "no holder is left")


def test_a_paste_arrives_whole(inside):
    text = "".join(f"{i:05d} the quick brown fox jumps over the lazy dog\n" for i in range(600))
    t = inside()
    t.enter("stty -echo; cat > pasted; stty echo; cksum pasted")
    t.tmux("load-buffer", "-", stdin=text)
    t.tmux("paste-buffer", "-d")
    t.keys("C-d")
    want = subprocess.run(["cksum"], input=text.encode(), capture_output=True, check=True).stdout.decode().strip()
    t.sees(want + " pasted", 40)
    t.leave()


@pytest.mark.parametrize("how", ["~.", "TERM", "HUP", "KILL", "the workload", "the daemon"])
def test_the_terminal_is_put_back(dev, ehub, line, handle, inside, how):
    """Whatever happens, in the middle of an editor that has switched the screen, hidden the cursor and asked for the mouse."""
    t = inside()
    t.enter(f"{editor()} -c 'set mouse=a' text")
    wait_for(lambda: t.var("alternate_on") == "1" and "~" in t.lines, 20, lambda: t.screen)
    assert t.stty() != t.before
    if how == "~.":
        t.keys("Enter")
        t.type("~.")
    elif how == "the workload":
        assert ehub.call("signal", handle, "KILL").returncode == 0
    elif how == "the daemon":
        if line.name == "edgehub":
            ehub.kill9()
        else:
            dev.kill9("workerd")
    else:
        os.kill(t.client(), getattr(signal, f"SIG{how}"))
    t.restored()
    if how == "the daemon" and line.name == "edgehub":
        return      # the device keeps the shell for one who comes back; who killed the hub is not its matter
    wait_for(lambda: session_processes(dev) == [], 40, "no holder is left on the device")


def test_suspended_and_taken_up_again(inside):
    t = inside()
    t.enter("x=kept")
    t.type("~")
    t.keys("C-z")
    t.restored()
    t.enter("fg")
    wait_for(lambda: t.stty() != t.before, 20, "the terminal is raw again: before, a key is the outer shell's")
    t.keys("Enter")
    t.last("inner$")
    t.enter("echo still $x")
    t.sees("still kept")
    t.enter("stty size")
    t.sees("24 80")
    t.leave()


def test_a_closed_window_ends_the_session(dev, line, handle, inside):
    t = inside()
    t.enter("sleep 4331 & echo up")
    t.sees("up\ninner$")
    t.tmux("kill-pane")
    if line.name == "edgectl":
        wait_for(lambda: session_processes(dev) == [], 20, "no holder is left on the device")
    wait_for(lambda: not [p for p in proc.descendants(dev.pid("launcher")) if proc.cmdline(p) == ["sleep", "4331"]], 20, "the job is gone")
    assert any(e["subject"] == handle for e in events(dev, "attach-end"))
