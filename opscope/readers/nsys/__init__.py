"""Nsight Systems: SQLite, Parquet and Arrow exports, and reports."""
