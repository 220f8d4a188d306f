"""https services beyond loopback: whose certificate is verified, and what is said when it is refused (connectd/svcconn.c, tlswhy.c).

The device and its edgehub are in a network namespace of their own, the services in another one at the end of a cable. On loopback no certificate is
asked for: test_services.py.
"""
import datetime as dt
import os
import pathlib

import pytest

from lib import openmetrics
from lib.certs import CA, UTC
from lib.netns import Net
from lib.services import Site, Tls, get

pytestmark = [pytest.mark.timeout(120), pytest.mark.skipif(os.geteuid() != 0, reason="skipped: network namespaces need root here")]

FAR = "10.77.0.1"


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """net, site and a function that puts up a service with a certificate and answers with the target for it."""
    root = tmp_path_factory.mktemp("tls")
    known, unknown = CA(str(root / "known"), "A CA of the devices"), CA(str(root / "unknown"), "A CA of nobody's")
    net, services, ends = Net(), [], []
    net.hosts(f"{FAR} cam.test other.test")
    site = None

    def service(ca, names=("cam.test",), **dates):
        services.append(net.hub.call(lambda: Tls(ca.leaf(names, **dates), host=FAR)))
        return services[-1].port
    try:
        site = Site(policy={"networks": "10.77.0.0/24"}, ns=net.dev)
        # The hub's CA is made at its first start: the file the device trusts is that and ours.
        trusted = pathlib.Path(site.agent.dir, "etc", "trusted.pem")
        trusted.write_bytes(b"".join(pathlib.Path(f).read_bytes() for f in (site.hub.ca_file.file, known.file)))
        os.chmod(trusted, 0o644)
        site.agent.conf["hub"]["ca-file"] = str(trusted)
        site.agent.write_conf()
        ends += site.agent.stop()
        site.agent.start(wait=False)
        site.connected()
        yield site, service, known, unknown
    finally:
        if site is not None:
            site.close()
        for s in services:
            s.close()
        net.close()
    assert not ends, ends


def counted(site, outcome):
    return openmetrics.value(openmetrics.parse(site.agent.ctl("metrics", json_out=False).out), "edgeward_service_requests_total", outcome=outcome) or 0


@pytest.mark.parametrize("host,names", [("cam.test", ("cam.test",)), (FAR, (FAR,))])
def test_one_that_is_verified(there, host, names):
    site, service, known, _ = there
    before = counted(site, "connected")
    assert get(site.proxy(f"https://{host}:{service(known, names)}").port, "/hello")[2] == b"hello"
    assert counted(site, "connected") == before + 1


@pytest.mark.parametrize("what,said", [
    ("name", "the service's certificate is not for other.test but for cam.test"),
    ("address", f"the service's certificate is not for {FAR} but for cam.test"),
    ("expired", "the service's certificate has expired; this device takes today for {today}: check its clock and the certificate"),
    ("early", "the service's certificate is not yet valid; this device takes today for {today}: check its clock and the certificate"),
    ("unknown", "add its CA to those this device trusts, or to [hub] ca-file"),
], ids=["name", "address", "expired", "early", "unknown"])
def test_one_that_is_refused(there, what, said):
    """Each with its cause and the next step, in the answer and in the device's record, and counted; no request reaches the service. When the hub
    says that any certificate will do, it does."""
    site, service, known, unknown = there
    now = dt.datetime.now(UTC)
    dates = {"expired": {"before": now - dt.timedelta(days=9), "after": now - dt.timedelta(days=2)},
             "early": {"before": now + dt.timedelta(days=2), "after": now + dt.timedelta(days=9)}}.get(what, {})
    port = service(unknown if what == "unknown" else known, **dates)
    host = {"name": "other.test", "address": FAR}.get(what, "cam.test")
    before, reached = counted(site, "untrusted"), counted(site, "connected")
    status, _, body = get(site.proxy(f"https://{host}:{port}").port, "/hello")
    said = said.format(today=now.strftime("%Y-%m-%d"))
    assert status == 502 and said in body.decode(), body
    if what in ("name", "address"):
        assert b": ask for it by a name that is in it" in body
    if what == "unknown":
        assert b"the service's certificate is not trusted (unable to get local issuer certificate): " in body
    assert counted(site, "untrusted") == before + 1 and counted(site, "connected") == reached
    told = [e["text"] for e in site.events("service") if e["subject"] == f"{host}:{port}"]
    assert len(told) == 1 and told[0].startswith(f"untrusted for uid {os.geteuid()}: the service's certificate ") and said[:40] in told[0], told
    assert get(site.proxy(f"https://{host}:{port}", "--tls-insecure").port, "/hello")[2] == b"hello"
