"""What a table says: one row of its data, its notes by their start."""


def datum(table, **key):
    (found,) = [one for one in table.data.to_dict("records") if all(one[k] == v for k, v in key.items())]
    return found


def notes(table, start):
    return [note for note in table.notes if note.startswith(start)]
