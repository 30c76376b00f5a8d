"""Changes to nested plain data."""

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
