"""Files at URLs: listed, identified, copied to scratch and written, through fsspec."""
