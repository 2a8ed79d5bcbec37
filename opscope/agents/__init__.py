"""Answers for agents: small, with evidence, units, what cannot be told, and what to ask next.

``opscope ask`` prints them and ``opscope mcp`` serves them; both make them here, of the same ``Call``
records.
"""
