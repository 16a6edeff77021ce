"""Whether several sources can count as one, and a table of those that cannot."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.errors import UsageError
from pipeline.storage.protocol import Source

SHOWN = 3  # files of a group in the table


def check_dtypes(sources: Sequence[Source]) -> None:
    """Raise UsageError unless all have one dtype."""
    first = sources[0]
    for source in sources[1:]:
        if source.dtype != first.dtype:
            error = UsageError(f"{source.names[0]}: expected {first.dtype} as in {first.names[0]}, got "
                               f"{source.dtype}; run them separately")  # fmt: skip
            raise with_table(error, [(str(one.dtype), one.names[0]) for one in sources])


def with_table(error: UsageError, files: Sequence[tuple[str, str]]) -> UsageError:
    """The error with a table of files by what they have, if there are more than two."""
    groups: dict[str, list[str]] = {}
    for what, name in files:
        groups.setdefault(what, []).append(name)
    width = max(map(len, groups))
    for what, names in groups.items() if len(files) > 2 else ():
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        count = f"{len(names)} file{'s'[: len(names) > 1]}"
        error.add_note(f"  {what:<{width}}  {count:>10}: {', '.join(names[:SHOWN])}{more}")
    return error
