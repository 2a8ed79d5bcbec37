"""The reports, a module each: its name is the report's, its ``REPORT`` the record (``reports/report.py``)."""
