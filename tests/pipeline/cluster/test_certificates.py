"""Existing clusters with certificates; without them only those of this machine are joined."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Security

import pipeline.cluster.existing
from pipeline.cluster.existing import _is_here
from pipeline.cluster.placement import Placement
from pipeline.errors import PipelineError, UsageError
from tests.pipeline.cluster.dask_processes import WORKER, address_in, counted, scheduler, started, text_of

Files = dict[str, str]


def certificates(folder: Path) -> Files:
    """Files of an authority, and of a certificate that it signed, with its key."""
    folder.mkdir()
    security = Security.temporary()
    texts = {"tls_ca_file": security.tls_ca_file, "tls_cert": security.tls_client_cert,
             "tls_key": security.tls_client_key}  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {name: str(folder / name) for name in texts}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Files]]:
    """The address of a scheduler with certificates, with a worker, and the files."""
    folder = tmp_path_factory.mktemp("tls")
    files = certificates(folder / "own")
    flags = [word for name, path in files.items() for word in (f"--{name.replace('_', '-')}", path)]
    with (
        scheduler(folder, "--protocol", "tls", *flags) as (file, _),
        started("worker", *WORKER, *flags, "--scheduler-file", file),
    ):
        yield address_in(file), files


def test_run_with_certificates(path: str, cluster: tuple[str, Files]) -> None:
    address, files = cluster
    assert address.startswith("tls://")
    assert text_of(counted(path, Placement(scheduler=address, **files))) == text_of(counted(path, Placement("cpu")))


@pytest.mark.usefixtures("impatient")
def test_strangers_are_refused(path: str, cluster: tuple[str, Files], tmp_path: Path) -> None:
    """With certificates of another authority, none, or without encryption."""
    address, _ = cluster
    strange = certificates(tmp_path / "strange")
    plain = address.replace("tls:", "tcp:")
    for joined, files in ((address, strange), (address, {}), (plain, {})):
        with pytest.raises(PipelineError, match=f"scheduler {joined}: expected an answer within 1 s, got "):
            counted(path, Placement(scheduler=joined, **files))


@pytest.mark.parametrize("scheduler", ["tcp://192.0.2.1:8786", "192.0.2.1:8786", "ws://192.0.2.1", "tls://192.0.2.1:8786",
                                       "tls://[2001:db8::1]:8786"])  # fmt: skip
def test_other_machine_without_certificates_is_refused(path: str, scheduler: str) -> None:
    with pytest.raises(UsageError, match=r"expected a tls:// address with --tls-ca-file, .* can run code as you$"):
        counted(path, Placement(scheduler=scheduler))


def test_other_machine_without_encryption_is_refused(path: str, tmp_path: Path) -> None:
    """Although there are certificates."""
    with pytest.raises(UsageError, match="expected a tls:// address"):
        counted(path, Placement(scheduler="tcp://192.0.2.1:8786", **certificates(tmp_path / "own")))


@pytest.mark.parametrize(
    ("host", "here"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("localhost", True), ("::1", True), ("", True), ("0.0.0.0", False),
     ("192.0.2.1", False), ("2001:db8::1", False)],
)  # fmt: skip
def test_addresses_of_this_machine(host: str, here: bool) -> None:
    assert _is_here(host) is here


def test_name_of_this_machine_is_what_it_resolves_to(monkeypatch: pytest.MonkeyPatch) -> None:
    for numbers, here in ((["127.0.0.1", "::1"], True), (["127.0.0.1", "192.0.2.1"], False)):
        answers = [(0, 0, 0, "", (number, 0)) for number in numbers]
        monkeypatch.setattr(pipeline.cluster.existing, "getaddrinfo", lambda *_, answers=answers: answers)
        assert _is_here("machine") is here


@pytest.mark.parametrize(
    ("given", "text"),
    [(("tls_cert",), "expected --tls-ca-file, --tls-cert and --tls-key together, got --tls-cert alone"),
     (("tls_ca_file", "tls_cert", "missing"), r"--tls-key \S+missing: expected a file in PEM format, found none"),
     (("tls_ca_file", "tls_cert", "broken"), "--tls-ca-file, --tls-cert, --tls-key: expected certificates and")],
)  # fmt: skip
def test_certificates_that_cannot_be(path: str, tmp_path: Path, given: tuple[str, ...], text: str) -> None:
    files = certificates(tmp_path / "own")
    (tmp_path / "broken").write_text("-----BEGIN PRIVATE KEY-----\nnonsense\n-----END PRIVATE KEY-----\n")
    if given[-1] in ("missing", "broken"):
        files["tls_key"] = str(tmp_path / given[-1])
    else:
        files = {name: files[name] for name in given}
    with pytest.raises(UsageError, match=text):
        counted(path, Placement(scheduler="tls://127.0.0.1:1", **files))
