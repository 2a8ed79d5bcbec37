"""The schema, capture, attribution and analysis. Imports no framework, no adapter and no reader."""

from .moved import install

install()
