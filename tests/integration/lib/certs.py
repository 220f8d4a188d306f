"""Certificates for the tests: a private CA and leaves with chosen names, times and keys."""
import base64
import datetime as dt
import hashlib
import ipaddress
import os

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

UTC = dt.timezone.utc
DEFAULT_NAMES = ("localhost", "hub.test", "127.0.0.1", "::1")


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general(name):
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class CA:
    """A root in DIR. leaf() writes NAME.pem (chain) and NAME.key and returns a Leaf."""

    def __init__(self, directory, common_name="Test CA"):
        self.dir = directory
        os.makedirs(directory, mode=0o755, exist_ok=True)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = _name(common_name)
        start = dt.datetime(2000, 1, 1, tzinfo=UTC)
        builder = (x509.CertificateBuilder().subject_name(self.name).issuer_name(self.name)
                   .public_key(self.key.public_key()).serial_number(x509.random_serial_number())
                   .not_valid_before(start).not_valid_after(dt.datetime(2120, 1, 1, tzinfo=UTC))
                   .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
                   .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False)
                   .add_extension(x509.KeyUsage(False, False, False, False, False, True, True, False, False),
                                  critical=True))
        self.cert = builder.sign(self.key, hashes.SHA256())
        self.file = os.path.join(directory, "ca.pem")
        _write(self.file, self.cert.public_bytes(serialization.Encoding.PEM))
        self.count = 0

    def leaf(self, names=DEFAULT_NAMES, before=None, after=None, key=None):
        self.count += 1
        key = key or ec.generate_private_key(ec.SECP256R1())
        before = before or dt.datetime(2020, 1, 1, tzinfo=UTC)
        after = after or dt.datetime(2100, 1, 1, tzinfo=UTC)
        builder = (x509.CertificateBuilder().subject_name(_name(names[0])).issuer_name(self.name)
                   .public_key(key.public_key()).serial_number(x509.random_serial_number())
                   .not_valid_before(before).not_valid_after(after)
                   .add_extension(x509.SubjectAlternativeName([_general(n) for n in names]), critical=False)
                   .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
                   .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                                  critical=False)
                   .add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]
                                                        if hasattr(x509, "ExtendedKeyUsageOID") else
                                                        [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False))
        cert = builder.sign(self.key, hashes.SHA256())
        base = os.path.join(self.dir, f"leaf{self.count}")
        _write(base + ".pem", cert.public_bytes(serialization.Encoding.PEM))
        _write(base + ".key", key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                                serialization.NoEncryption()), 0o600)
        return Leaf(base + ".pem", base + ".key", key)


class Leaf:
    def __init__(self, cert_file, key_file, key):
        self.cert_file, self.key_file, self.key = cert_file, key_file, key

    @property
    def pin(self):
        spki = self.key.public_key().public_bytes(serialization.Encoding.DER,
                                                  serialization.PublicFormat.SubjectPublicKeyInfo)
        return "sha256:" + base64.b64encode(hashlib.sha256(spki).digest()).decode()


def _write(path, data, mode=0o644):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "wb") as f:
        f.write(data)
