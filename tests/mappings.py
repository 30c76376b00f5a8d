"""Copies of nested dictionaries, such as a configuration, with some keys replaced."""

import copy


def changed(mapping: dict, **changes) -> dict:
    """A copy with keys replaced; `network__depth` is the key depth of the section network."""
    copied = copy.deepcopy(mapping)
    for key, value in changes.items():
        *sections, name = key.split("__")
        target = copied
        for section in sections:
            target = target[section]
        target[name] = value
    return copied


def experiment(config: dict, name: str, /, **changes) -> dict:
    """A copy of a configuration with keys of the experiment of that name replaced, as by `changed`."""
    blocks = [changed(block, **changes) if block["name"] == name else block for block in config["experiments"]]
    return {**copy.deepcopy(config), "experiments": blocks}


def row(config: dict, name: str, number: int, /, **changes) -> dict:
    """A copy of a configuration with keys of one row of an experiment replaced; its rows count from 0."""
    (block,) = (block for block in config["experiments"] if block["name"] == name)
    rows = [changed(one, **changes) if at == number else one for at, one in enumerate(block["rows"])]
    return experiment(config, name, rows=rows)


def only(config: dict, *names: str) -> dict:
    """A copy of a configuration with these experiments alone."""
    return {**copy.deepcopy(config), "experiments": [one for one in config["experiments"] if one["name"] in names]}
