"""PyProf's columns: one row per kernel, made from any trace."""
