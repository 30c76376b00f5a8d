"""What tables and figures call the data sets."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from highways.experiments.own_data import TITLES
from highways.experiments.runs import Config

_OWN: ContextVar[Mapping[str, str]] = ContextVar("titles")


class _Titles(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return _OWN.get({}).get(name, name)


# Titles by name of the data set. A user's own data set has its title within `titles_of`, else its name.
DATASET_TITLES = _Titles(TITLES)


@contextmanager
def titles_of(config: Config) -> Iterator[None]:
    """Inside this context, DATASET_TITLES has the titles that a configuration gives the user's own data sets.

    A context, since many functions make labels without access to the configuration.
    """
    token = _OWN.set({entry["name"]: entry["title"] for entry in config["data"] if "title" in entry})
    try:
        yield
    finally:
        _OWN.reset(token)
