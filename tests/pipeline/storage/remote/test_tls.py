"""Objects over https: certificates that are trusted, and those that are not; no way back to plain http."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

import pipeline
from pipeline.errors import PipelineError, UsageError
from pipeline.storage.remote import objects
from pipeline.storage.sources import open_source
from tests.cases.format_case import package_of
from tests.cases.web_server import WebServer, web_server


def certificate(folder: Path) -> tuple[Path, Path]:
    """Files: an authority that nobody knows, and a server's certificate and key."""

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def signed(subject: str, key: Any, extension: Any, by: Any) -> Any:
        begin = datetime.now(UTC) - timedelta(days=1)
        builder = x509.CertificateBuilder(name("authority"), name(subject), key.public_key(), 1 + (key is not by))
        builder = builder.not_valid_before(begin).not_valid_after(begin + timedelta(days=2))
        return builder.add_extension(extension, critical=False).sign(by, hashes.SHA256())

    authority, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root = signed("authority", authority, x509.BasicConstraints(True, None), authority)
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    leaf = signed("server", own, address, authority)
    trusted, served = folder / "root.pem", folder / "server.pem"
    trusted.write_bytes(root.public_bytes(Encoding.PEM))
    key = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    served.write_bytes(leaf.public_bytes(Encoding.PEM) + key)
    return trusted, served


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    """Its URLs begin with http all the same."""
    package_of("obstore")
    monkeypatch.setattr(objects, "RETRIES", 1)
    trusted, served = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(served)
    with web_server() as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.files["/a"] = b"\5" * 1000
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        yield server


@pytest.mark.usefixtures("shared")
def test_trusted(server: WebServer) -> None:
    url = server.url("/a").replace("http", "https")
    assert pipeline.run("reduce", url, dtype="int8", op="sum", verify="full").values == {"sum": 5000}


def test_unknown(server: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate(tmp_path / "other")[0]))
    with pytest.raises(PipelineError, match="/a: expected to read it, got a certificate that is not trusted; check"):
        open_source((server.url("/a").replace("http", "https"),))


def test_redirect_to_plain_http(server: WebServer) -> None:
    def moved(answer: Any, _: int) -> None:
        answer.status, answer.headers, answer.body = 302, {"Location": "http://127.0.0.1:1/a"}, b""

    server.faults["/a"] = moved
    with pytest.raises(UsageError, match="/a: expected https, got http, or a redirect to it"):
        open_source((server.url("/a").replace("http", "https"),))
