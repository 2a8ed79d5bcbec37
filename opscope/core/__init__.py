"""The schema and the analysis: imports no framework, no adapter and no reader."""

from .moved import install

install()
