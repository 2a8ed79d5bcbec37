"""CUPTI's activity records: their files, their layouts in each version, and how to walk a buffer. The
program's side keeps the buffers as CUPTI filled them; the analyst's side decodes them after the run."""
