"""Errors that a user can mend."""


class UserError(Exception):
    """Something that the user can mend; the message is one line that names the key or file and the remedy."""


class DataError(UserError, RuntimeError):
    """A data set is unknown, missing, wrong or damaged; the message is one line and says what to do."""
