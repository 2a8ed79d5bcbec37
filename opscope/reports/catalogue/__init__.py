"""The reports, one module each: named after the report, with its record ``REPORT`` (``reports/report.py``)."""
