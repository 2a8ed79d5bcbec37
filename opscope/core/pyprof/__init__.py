"""PyProf's columns: one row a kernel, made from any trace."""
