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


# The title of a data set by its name. One of the user's own has that of the configuration shown, else its name.
DATASET_TITLES = _Titles(TITLES)


@contextmanager
def titles_of(config: Config) -> Iterator[None]:
    """While a table or a figure of a configuration is made, its own data sets have the titles that it gives them.

    A label is made in many places that see a cell and no configuration.
    """
    token = _OWN.set({entry["name"]: entry["title"] for entry in config["data"] if "title" in entry})
    try:
        yield
    finally:
        _OWN.reset(token)
