"""The format of run folders: who writes it and who reads it must mean the same."""

from pathlib import Path

from offbeat.core.errors import StoreError

FORMAT = 1


def check_format(path: Path, found: object) -> None:
    """Refuses the folder of a newer offbeat, and what is no format at all."""
    if not isinstance(found, int):
        raise StoreError(f"{path / 'run.json'} is damaged: it does not say its format")
    if found > FORMAT:
        raise StoreError(f"{path} was written by a newer offbeat (format {found}, this one reads up to {FORMAT})")
