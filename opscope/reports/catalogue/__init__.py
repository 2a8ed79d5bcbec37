"""The reports, one module each: it has the report's name and its record ``REPORT`` (``reports/report.py``)."""
