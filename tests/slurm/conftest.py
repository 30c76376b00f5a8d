"""The order of the tests on a cluster."""

# Most of the scenarios' time is waiting, which other tests fill, so they come first. A machine has room for one
# cluster at a time, so the second one comes last.
ORDER = {"test_slurm.py": 0, "test_accounting.py": 2}


def pytest_collection_modifyitems(items: list) -> None:
    items.sort(key=lambda item: ORDER.get(item.path.name, 1))
