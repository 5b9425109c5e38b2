"""The error that tools print without a traceback."""


class ConvertError(Exception):
    """An input that cannot be converted, with a message for the user."""
