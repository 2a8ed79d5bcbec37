"""Questions asked of a profile, one a file; tables in, tables out."""
