"""Every message tells its user what to do, or docs/troubleshooting.md does."""

from __future__ import annotations

import re

import pytest

from tests.cases.messages import OURS, ROOT, Message, all_messages, messages

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
WRONG_USE = ("UsageError", "click.UsageError", "ValueError")
# What a sentence begins with that says what to do.
VERBS = """
add ask await call check choose close compute convert copy create drop free give install keep leave make move multiply
name narrow pass pip raise report run save say see set sort start store test unpack use wait write
"""
HINTS = ("advice", "hint", "end")  # variables that hold such a sentence
# Modules whose errors are what another message says it got, like `expected a .npy header, got {error}`.
PARTS = ("workflows/npy_header.py", "workflows/readers.py", "workflows/reduce_result.py", "workflows/saved.py",
         "workflows/partial_text.py", "workflows/histogram_result.py")  # fmt: skip
NO_ERRORS = {
    "how fast remote storage answers is not known": "what `plan` says in the place of a time",
    "the options of this job cannot be compared": "likewise",
    "the range is not known before the data was read": "options are completed before edges are asked for",
    "their number is not known before the data was read": "likewise",
    "the dtype of the samples is not known yet": "likewise",
}


def quoted() -> list[str]:
    """Parts of messages that the page explains."""
    lines = re.findall(r"^\*\*.*", PAGE, re.MULTILINE)
    return [part.rstrip(".") for line in lines for part in re.findall(r"\*\*(.+?)\*\*", line)]


def holes_out(text: str) -> str:
    while (less := re.sub(r"\{[^{}]*\}", "", text)) != text:
        text = less
    return text


def passes_on(text: str) -> bool:
    """Nothing but what another error says, and where."""
    return len(re.findall(r"(?<![-\w])[a-z]{2,}", holes_out(text))) < 2


def says_what_to_do(text: str) -> bool:
    """Behind a semicolon a clause begins with a verb of that kind, or the question stands that is to be answered."""
    _, _, behind = text.partition("; ")
    first_words = [clause.lstrip("`").split(" ")[0] for clause in re.split(r"[;:,] | or | and ", behind)]
    return any(word in VERBS.split() or word.strip("{}") in HINTS for word in first_words) or "?" in holes_out(behind)


def names_what_is_right(text: str) -> bool:
    """Of a wrong word on the command line: what was expected is what to write in its place."""
    return re.search(r"\bexpected \S.*[,;] (got|found|but|\{got\()|\bexpected no(ne)? ", text) is not None


def is_enough(message: Message, explained: list[str]) -> bool:
    text = message.text
    return (
        passes_on(text)
        or says_what_to_do(text)
        or (message.kind in WRONG_USE and names_what_is_right(text))
        or any(part in text for part in explained)
    )


MESSAGES = [message for message in all_messages() if not message.place.startswith(PARTS)]


def test_every_message_says_what_to_do_or_is_explained() -> None:
    explained = [*quoted(), *NO_ERRORS]
    poor = [message for message in MESSAGES if not is_enough(message, explained)]
    assert poor == [], "\n".join(f"{message.place}: {message.text}" for message in poor)


def test_messages_are_one_line() -> None:
    assert [message for message in MESSAGES if "\n" in message.text] == []


@pytest.mark.parametrize(
    "poor",
    [
        'raise PipelineError("something went wrong")',
        'raise PipelineError(f"{path}: expected 5 samples, got {number}")',  # what now?
        'raise PipelineError(f"{path}: reading failed: {error}")',
        'return VerificationError(f"{name}: a sum differs; nothing was kept")',
        'raise UsageError("this cannot be done")',
        'raise UsageError(f"{name}: the file has {size} bytes")',
        'raise click.UsageError("no such job, " + name)',
        'raise PipelineError("expected an answer, got none; check the address" if known else f"no answer of {name}")',
    ],
)
def test_a_message_without_a_remedy_is_found(poor: str) -> None:
    found = list(messages(poor, "made-up.py", OURS))
    assert found and not all(is_enough(message, quoted()) for message in found)


@pytest.mark.parametrize(
    "enough",
    [
        'raise PipelineError(f"{path}: expected 5 samples, got {number}; run again when nothing writes to it")',
        'raise UsageError(f"--bins: expected 1 to {most}, got {bins}")',
        'raise PipelineError(f"{path}: was cut; is its writer still running?")',
    ],
)
def test_a_message_with_a_remedy_is_enough(enough: str) -> None:
    (message,) = messages(enough, "made-up.py", OURS)
    assert is_enough(message, [])


def test_what_is_explained_is_said_somewhere() -> None:
    """Each quotation is long enough to recognize, and is needed or helps; each exception is one of a message."""
    every = [message.text for message in all_messages()]
    assert [part for part in quoted() if len(part.split()) < 3] == []
    assert [part for part in NO_ERRORS if not any(part in text for text in every)] == []
    assert [hint for hint in HINTS if not any(f"{{{hint}}}" in text for text in every)] == []
    assert [name for name in PARTS if not any(message.place.startswith(name) for message in all_messages())] == []
    assert len(MESSAGES) > 400
