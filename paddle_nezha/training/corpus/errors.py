"""What is wrong with a corpus, or with the texts for one."""


class CorpusError(ValueError):
    """A corpus cannot be built or opened; the message says what was found and what to do."""


class TextError(CorpusError):
    """No corpus comes of these texts with these settings, however often the build is run."""
