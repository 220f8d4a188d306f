"""Streams of edgeward.1: what opens them, and what a hub may do wrongly with them.

Where it could go wrong: connectd/streams.c (claim and answer), proto/hub/mux.c (windows, order, ends), the logs beside them. A
stream that breaks a rule ends by itself; the session and the work go on.
"""
import struct

import pytest

from lib.session import DATA, END, GAP, RESET, WINDOW

pytestmark = pytest.mark.timeout(90)


def refused(answer, text=""):
    assert answer["type"] == "error" and answer["payload"]["code"] == "protocol", answer
    assert text in answer["payload"]["message"]


def works(hub):
    run = hub.start("echo fine")
    hub.finish(run)
    assert run.text == b"fine\n"


@pytest.mark.parametrize("kind", ["console", "", "RELEASE", None, 7, "x" * 500])
def test_a_kind_this_agent_does_not_have(agent, hub, kind):
    agent()
    refused(hub.request("stream_open", {"channel": 1, "kind": kind}), "kind")
    works(hub)


def test_no_streams_on_plain_cloop(agent, hub):
    agent(conf={"hub": {"dialect": "cloop"}})
    refused(hub.request("stream_open", {"channel": 1, "kind": "release", "sequence": 2, "size": 10, "sha256": "0" * 64}), "edgeward.1")
    works(hub)


def test_frames_on_a_channel_that_is_not_open(agent, hub):
    """One RESET with "gone" for what carries bytes; a late WINDOW or RESET is ordinary."""
    agent()
    s = hub.session()
    s.send_stream(WINDOW, 9, 1 << 20)
    s.send_stream(RESET, 9, 0, struct.pack("!I", 4) + b"gone")
    for offset in (0, 10):
        s.send_stream(DATA, 11, offset, b"0123456789")
    s.send_stream(GAP, 13, 0, struct.pack("!QB", 5, 1))
    s.send_stream(END, 15, 0)
    s.wait("three resets", lambda: len(s.stream_frames) >= 3, 15)
    works(hub)
    assert [f[:3] for f in s.stream_frames] == [(RESET, 11, 0), (RESET, 13, 0), (RESET, 15, 0)]
    assert all(struct.unpack("!I", f[3][:4])[0] == 4 for f in s.stream_frames)
    assert s.live
