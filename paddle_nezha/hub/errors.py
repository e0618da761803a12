"""The error of a file that could not be brought here."""


class FetchError(OSError):
    """A published file that did not come, or that came and is not what was published.

    The message names the address, what was expected, what came, and what to do. Nothing stands at the file's final
    path then.
    """
