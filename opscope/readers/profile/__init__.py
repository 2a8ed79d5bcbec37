"""Analysed profiles of our own: a folder of Parquet tables."""
