"""CUPTI's activity records: the files they are kept in, their layouts in each version, and walking a buffer.

The program's side keeps the buffers as CUPTI filled them; the analyst's side decodes them after the run.
"""
