"""The certificate of a cluster's own processes, which lives in their memory, and in that of nobody else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

NAME = "baru"
VALID = timedelta(days=365)


def temporary_security() -> Any:
    """As `distributed.Security.temporary`, but with a key on the curve P-256, which that cannot make.

    To find the primes of its RSA key takes from 20 to 200 ms, while nothing else goes on.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID
    from distributed import Security

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + VALID)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    shown = certificate.public_bytes(pem).decode()
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain).decode()
    roles = ("client", "scheduler", "worker")
    return Security(
        require_encryption=True,
        tls_ca_file=shown,
        **{f"tls_{role}_key": secret for role in roles},
        **{f"tls_{role}_cert": shown for role in roles},
    )
