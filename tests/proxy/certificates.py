"""Certificates for tests: an authority of our own, and what it vouches for."""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)


class Authority:
    """An authority that nobody trusts who was not told to."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority for tests")])
        made = self._begun(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        self._certificate = made.sign(self._key, hashes.SHA256())

    def write(self, path: Path) -> Path:
        """Its own certificate, for who is to trust it."""
        path.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))
        return path

    def context(self, folder: Path, host: str, *, days: int = 1) -> ssl.SSLContext:
        """TLS context of a server for this host; `days` below 0: its certificate has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        named = x509.SubjectAlternativeName([x509.DNSName(host)])
        made = self._begun(subject, key, days).add_extension(named, critical=False)
        chain, secret = folder / f"{host}.pem", folder / f"{host}.key"
        certificate = made.sign(self._key, hashes.SHA256())
        chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain, secret)
        return context

    def _begun(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int = 1
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 10 * _DAY)
            .not_valid_after(now + days * _DAY)
        )
