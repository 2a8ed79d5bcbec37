"""The reports, one module each: named like the report, with its record ``REPORT`` (``reports/report.py``)."""
