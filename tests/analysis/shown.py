"""Helpers that read a table: the one row of its data with given values, the notes with a given start."""


def datum(table, **key):
    (found,) = [one for one in table.data.to_dict("records") if all(one[k] == v for k, v in key.items())]
    return found


def notes(table, start):
    return [note for note in table.notes if note.startswith(start)]
